"""Artefacts: what backends build, kept by name in a folder, each with a label that says what it is."""

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
from tunewright.sharing import files, wire
from tunewright.spaces.config import Config

FOLDER = "artifacts"
APPLIED = "applied"
LABEL = ".json"
_NAME = re.compile(r"(?:[0-9a-f]{32}){1,2}\.[a-z0-9]{1,8}")


class Label(msgspec.Struct, frozen=True):
    """What an artefact is: a config of a kernel, built for such arguments; `name` is that of its file."""

    name: str
    kernel: str
    source: str
    config: Config
    signature: Signature
    toolchain: dict[str, str]


def adopted(kernel: Kernel, told: Callable[[str], Mapping[str, str]], part: str, here: Callable[[], str]) -> str:
    """The version of the tool that built what the store brings for a kernel, else of the one `here`.

    `told` is the toolchain that a version of it makes, in which it is called `part`.
    """
    for said in kernel.supply.toolchains(kernel.name) if kernel.supply else ():
        if part in said and said == told(said[part]):
            return said[part]
    return here()


def place(cache: Path, name: str) -> Path:
    """Where the artefact called `name` is kept."""
    return cache / FOLDER / name[:2] / name


def found(kernel: Kernel, name: str) -> Path | None:
    """The artefact called `name`, if it is in the cache or the store brings it."""
    there = place(kernel.cache, name)
    if there.is_file():
        return there
    return kernel.supply.brought(kernel.name, name) if kernel.supply is not None else None


def keep(cache: Path, made: Path, label: Label) -> Path:
    """Put what was made where it is kept, its label first: an artefact without one would never be shipped."""
    there = place(cache, label.name)
    files.put(_label_of(there), wire.encode(label))
    os.replace(made, there)
    return there


def unpack(cache: Path, content: bytes, label: Label) -> Path:
    """The same for bytes from elsewhere, whose name is not believed to be one."""
    if not _NAME.fullmatch(label.name):
        raise BundleError(f"{label.name[:40]!r} is no name of an artefact; do not use what brought it")
    there = place(cache, label.name)
    files.put(_label_of(there), wire.encode(label))
    files.put(there, content)
    return there


def labels(cache: Path) -> Iterator[Label]:
    """The labels of all artefacts; one that cannot be read is passed over, as is one without its artefact."""
    for path in sorted((cache / FOLDER).glob(f"??/*{LABEL}")):
        try:
            label = wire.decode(path.read_bytes(), Label)
        except (OSError, WireError):
            continue
        if label.name == path.name.removesuffix(LABEL) and place(cache, label.name).is_file():
            yield label


def apply(cache: Path, bundle: str, brought: Iterable[Label]) -> None:
    """Note what a bundle brought: who launches it needs no compiler."""
    files.put(cache / FOLDER / APPLIED / f"{bundle}{LABEL}", wire.encode(list(brought)))


def applied(cache: Path, kernel: str) -> list[Label]:
    """What bundles have brought for a kernel."""
    found: list[Label] = []
    for path in sorted((cache / FOLDER / APPLIED).glob(f"*{LABEL}")):
        with suppress(OSError, WireError):
            found += wire.decode(path.read_bytes(), list[Label])
    return [label for label in found if label.kernel == kernel]


def _label_of(artefact: Path) -> Path:
    return artefact.with_name(artefact.name + LABEL)
