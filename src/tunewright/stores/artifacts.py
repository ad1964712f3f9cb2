"""Built artifacts, kept by name in a folder, each with a label that describes it and has the digest of its bytes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from tunewright.errors import BackendError, BundleError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.signature import Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.stores import files, serialization
from tunewright.stores.file_lock import folder_lock

log = LazyLogger(__name__)

T = TypeVar("T")

FOLDER = "artifacts"
APPLIED = "applied"
LABEL_SUFFIX = ".json"
MAX_BYTES, MAX_LABEL_BYTES = 1 << 30, 1 << 20
TOUCH_SECONDS = 86400.0
"""How exactly the time of the last use is kept: a file system may not keep it by itself."""

_NAME = re.compile(r"(?:[0-9a-f]{32}){1,2}\.[a-z0-9]{1,8}")


class ArtifactLabel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes an artifact: a config of a kernel, built for a signature; `name` is the name of its file.

    The name digests what it was built from; `digest` is the SHA-256 of its bytes.
    """

    name: str
    kernel: str
    source: str
    config: Config
    signature: Signature
    toolchain: dict[str, str]
    digest: str = ""


def adopt_toolchain(
    kernel: Kernel, make_toolchain: Callable[[Mapping[str, str]], Mapping[str, str]], tools: Sequence[str]
) -> dict[str, str] | None:
    """Returns the fields `tools` of the toolchain that built the artifacts in the store for a kernel; None without any.

    `make_toolchain` returns the toolchain that this process would have with such fields; the first must be there.
    """
    for toolchain in kernel.artifacts.toolchains(kernel.name) if kernel.artifacts else ():
        fields = {tool: toolchain[tool] for tool in tools if tool in toolchain}
        if tools[0] in fields and toolchain == make_toolchain(fields):
            return fields
    return None


def artifact_path(cache: Path, name: str) -> Path:
    """Returns where the artifact called `name` is kept."""
    return cache / FOLDER / name[:2] / name


def find_artifact(kernel: Kernel, name: str) -> Path | None:
    """Returns the artifact called `name` if the cache or the store has it intact."""
    path = artifact_path(kernel.cache, name)
    if is_intact(path):
        return path
    return kernel.artifacts.fetch(kernel.name, name) if kernel.artifacts is not None else None


def is_intact(path: Path) -> bool:
    """Whether an artifact is there with the bytes that its label says; one that is not is to be built again."""
    return read_intact(path) is not None


def read_intact(path: Path) -> tuple[bytes, ArtifactLabel] | None:
    """Returns the bytes of an artifact and its label; None, with a warning, if it is damaged."""
    if not os.path.lexists(path):
        return None
    try:
        return read_artifact(path)
    except BackendError as error:
        log.warning("%s; it is built again", error)
        return None


def load_artifact(path: Path, open_content: Callable[[bytes], T], rebuild: Callable[[ArtifactLabel], Path]) -> T:
    """Returns what `open_content` makes of the bytes of an artifact, which are those that were checked.

    Every backend loads through this function. What is damaged, or cannot be opened, is built once more.
    """
    label = None
    try:
        content, label = read_artifact(path)
        return open_content(content)
    except BackendError as error:
        label = label or _read_label(path)
        if label is None:
            raise
        log.warning("%s: %s; it is built again", label.kernel, error)
    discard(path)
    rebuilt = rebuild(label)
    if rebuilt.name != path.name:
        raise BackendError(f"the label of {path} is that of another artifact; remove both, and call again")
    return open_content(read_artifact(rebuilt)[0])


def read_artifact(path: Path) -> tuple[bytes, ArtifactLabel]:
    """Returns the bytes of an artifact and its label; raises BackendError unless they belong together.

    A file that another user could have written is not read, since whoever writes both files can forge both.
    """
    try:
        content, label = _read_pair(path)
    except BackendError:
        if not os.access(path.parent, os.R_OK):
            raise
        with folder_lock(path.parent):  # another process may have replaced one file between the two reads
            content, label = _read_pair(path)
    _touch(path)
    return content, label


def _read_pair(path: Path) -> tuple[bytes, ArtifactLabel]:
    label = _read_label(path)
    content = read_checked(path, label.digest if label is not None else "")
    assert label is not None
    return content, label


def read_checked(path: Path, digest: str) -> bytes:
    """Returns the bytes of a file of this user whose SHA-256 is `digest`; raises BackendError if they are others."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL

    try:
        content = files.read_bounded(path, MAX_BYTES, own=True)
    except OSError as error:
        raise BackendError(f"an artifact is not loaded: {error}") from error
    if not digest:
        raise BackendError(f"{path} has no label with a digest that can be trusted")
    if sha256(content).hexdigest() != digest:
        raise BackendError(f"{path} has other bytes than were built ({len(content):,} bytes)")
    return content


def _read_label(artifact: Path) -> ArtifactLabel | None:
    """Returns the label of an artifact; None if it cannot be read or trusted, or is that of another."""
    try:
        label = serialization.decode(
            files.read_bounded(_label_path(artifact), MAX_LABEL_BYTES, own=True), ArtifactLabel
        )
    except (OSError, WireError):
        return None
    return label if label.name == artifact.name and label.digest else None


def _touch(path: Path) -> None:
    """Notes that an artifact is in use, for `remove_stale_artifacts`; at most once a day."""
    with suppress(OSError):  # a cache that cannot be written
        if path.stat().st_mtime < time.time() - TOUCH_SECONDS:
            os.utime(path)


def discard(path: Path) -> None:
    """Removes an artifact with its label, if that is possible."""
    with suppress(OSError), folder_lock(path.parent):
        path.unlink(missing_ok=True)
        _label_path(path).unlink(missing_ok=True)


def save_artifact(cache: Path, content: bytes, label: ArtifactLabel, *, durable: bool = False) -> Path:
    """Writes an artifact and its label, which gets the digest of the bytes, into the cache.

    `durable` waits until it survives a power cut, for whoever is told that it is installed.
    """
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL

    path = artifact_path(cache, label.name)
    label = msgspec.structs.replace(label, digest=sha256(content).hexdigest())
    files.make_folder(path.parent, durable=durable)
    with folder_lock(path.parent):  # of two builds with different bytes, label and artifact must be of one
        files.write_atomic(_label_path(path), serialization.encode(label), durable=durable)
        files.write_atomic(path, content, durable=durable)
    return path


def unpack(cache: Path, content: bytes, label: ArtifactLabel, *, durable: bool = False) -> Path:
    """Writes an artifact from elsewhere into the cache; raises BundleError if name or bytes are not as they must be."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL

    if not _NAME.fullmatch(label.name):
        raise BundleError(f"{label.name[:40]!r} is not the name of an artifact; do not use the bundle it came in")
    if label.digest and label.digest != sha256(content).hexdigest():
        raise BundleError(f"{label.name} has other bytes than its label says; do not use the bundle it came in")
    return save_artifact(cache, content, label, durable=durable)


def read_labels(cache: Path) -> Iterator[ArtifactLabel]:
    """Yields the labels of all artifacts; skips unreadable labels and those without an artifact."""
    for path in sorted((cache / FOLDER).glob(f"??/*{LABEL_SUFFIX}")):
        artifact = path.with_name(path.name.removesuffix(LABEL_SUFFIX))
        if artifact.is_file() and (label := _read_label(artifact)) is not None:
            yield label


def record_applied(cache: Path, bundle: str, labels: Iterable[ArtifactLabel]) -> None:
    """Records which artifacts a bundle brought, so that launching them needs no compiler."""
    path = cache / FOLDER / APPLIED / f"{bundle}{LABEL_SUFFIX}"
    files.write_atomic(path, serialization.encode(list(labels)), durable=True)


def read_applied(cache: Path, kernel: str) -> list[ArtifactLabel]:
    """Returns the labels of the artifacts that applied bundles brought for a kernel."""
    paths = sorted((cache / FOLDER / APPLIED).glob(f"*{LABEL_SUFFIX}"))
    return [label for path in paths for label in labels_in(path) if label.kernel == kernel]


def labels_in(record: Path) -> list[ArtifactLabel]:
    """Returns the labels in the record of an applied bundle; none if it cannot be read."""
    try:
        return serialization.decode(record.read_bytes(), list[ArtifactLabel])
    except (OSError, WireError):
        return []


def _label_path(artifact: Path) -> Path:
    return artifact.with_name(artifact.name + LABEL_SUFFIX)
