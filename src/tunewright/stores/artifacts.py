"""Built artifacts, kept by name in a folder, each with a label that describes it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tunewright.errors import BundleError, WireError
from tunewright.model.signature import Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.stores import files, serialization

FOLDER = "artifacts"
APPLIED = "applied"
LABEL_SUFFIX = ".json"
_NAME = re.compile(r"(?:[0-9a-f]{32}){1,2}\.[a-z0-9]{1,8}")


class ArtifactLabel(msgspec.Struct, frozen=True):
    """Describes an artifact: a config of a kernel, built for a signature; `name` is the name of its file."""

    name: str
    kernel: str
    source: str
    config: Config
    signature: Signature
    toolchain: dict[str, str]


def resolve_tool_version(
    kernel: Kernel, make_toolchain: Callable[[str], Mapping[str, str]], tool: str, local_version: Callable[[], str]
) -> str:
    """Returns the version of `tool` that built the artifacts in the store for a kernel, else the `local_version`.

    `make_toolchain` returns the toolchain that belongs to a version of the tool.
    """
    for toolchain in kernel.artifacts.toolchains(kernel.name) if kernel.artifacts else ():
        if tool in toolchain and toolchain == make_toolchain(toolchain[tool]):
            return toolchain[tool]
    return local_version()


def artifact_path(cache: Path, name: str) -> Path:
    """Returns where the artifact called `name` is kept."""
    return cache / FOLDER / name[:2] / name


def find_artifact(kernel: Kernel, name: str) -> Path | None:
    """Returns the artifact called `name` if the cache or the store has it."""
    path = artifact_path(kernel.cache, name)
    if path.is_file():
        return path
    return kernel.artifacts.fetch(kernel.name, name) if kernel.artifacts is not None else None


def save_artifact(cache: Path, built: Path, label: ArtifactLabel) -> Path:
    """Moves a built file into the cache, after its label: an artifact without a label would never be shipped."""
    path = artifact_path(cache, label.name)
    files.write_atomic(_label_path(path), serialization.encode(label))
    os.replace(built, path)
    return path


def unpack(cache: Path, content: bytes, label: ArtifactLabel) -> Path:
    """Writes an artifact from elsewhere into the cache; raises BundleError if its name is not a valid file name."""
    if not _NAME.fullmatch(label.name):
        raise BundleError(f"{label.name[:40]!r} is not the name of an artifact; do not use the bundle it came in")
    path = artifact_path(cache, label.name)
    files.write_atomic(_label_path(path), serialization.encode(label))
    files.write_atomic(path, content)
    return path


def read_labels(cache: Path) -> Iterator[ArtifactLabel]:
    """Yields the labels of all artifacts; skips unreadable labels and those without an artifact."""
    for path in sorted((cache / FOLDER).glob(f"??/*{LABEL_SUFFIX}")):
        try:
            label = serialization.decode(path.read_bytes(), ArtifactLabel)
        except (OSError, WireError):
            continue
        if label.name == path.name.removesuffix(LABEL_SUFFIX) and artifact_path(cache, label.name).is_file():
            yield label


def record_applied(cache: Path, bundle: str, labels: Iterable[ArtifactLabel]) -> None:
    """Records which artifacts a bundle brought, so that launching them needs no compiler."""
    files.write_atomic(cache / FOLDER / APPLIED / f"{bundle}{LABEL_SUFFIX}", serialization.encode(list(labels)))


def read_applied(cache: Path, kernel: str) -> list[ArtifactLabel]:
    """Returns the labels of the artifacts that applied bundles brought for a kernel."""
    labels: list[ArtifactLabel] = []
    for path in sorted((cache / FOLDER / APPLIED).glob(f"*{LABEL_SUFFIX}")):
        with suppress(OSError, WireError):
            labels += serialization.decode(path.read_bytes(), list[ArtifactLabel])
    return [label for label in labels if label.kernel == kernel]


def _label_path(artifact: Path) -> Path:
    return artifact.with_name(artifact.name + LABEL_SUFFIX)
