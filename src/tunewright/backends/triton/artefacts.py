"""Artefacts: compiled configs as files of ours, and put where Triton looks before it compiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tunewright.backends.triton.figures import Resources
from tunewright.errors import BackendError
from tunewright.sharing import files

SUFFIX = ".triton"
_KEY, _NAME = re.compile(r"[0-9a-f]{64}"), re.compile(r"[A-Za-z0-9_<>.-]{1,150}")


class Artefact(msgspec.Struct, frozen=True):
    """A compiled config, all that a launch needs of it: machine code and what Triton notes beside it.

    `key` is what Triton looks it up by; whoever launches has the same Triton, source, arguments and environment.
    """

    key: str
    name: str
    suffix: str
    metadata: bytes
    code: bytes

    def packed(self) -> bytes:
        """As bytes, for a file or a bundle; equal artefacts make equal bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def unpacked(cls, body: bytes) -> Artefact:
        """From bytes that may have been made by anyone: names that could lead elsewhere are refused."""
        try:
            found = msgspec.msgpack.decode(body, type=cls)
            noted = json.loads(found.metadata)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BackendError(f"this is no compiled Triton kernel: {error}") from error
        sound = _KEY.fullmatch(found.key) and _NAME.fullmatch(found.name) and not found.name.startswith(".")
        if not sound or found.suffix not in ("cubin", "hsaco") or not isinstance(noted, dict):
            raise BackendError(f"a compiled kernel named {found.name!r} ({found.key[:12]}) is not one of ours")
        if noted.get("hash") != found.key:
            raise BackendError(f"the compiled kernel {found.name} belongs to another key than it says; build it anew")
        return found


class Label(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an artefact is, in a small JSON file beside it; one of a config that did not compile stands alone.

    `environment` holds the variables that are part of Triton's key.
    """

    key: str
    kernel: str
    target: str
    config: dict[str, Any]
    triton: str
    environment: dict[str, str]
    seconds: float
    cpu_seconds: float
    resources: Resources | None = None
    digest: str = ""
    refused: str = ""
    rung: int = 1


class Shelf:
    """The artefacts in a cache folder, by Triton's key."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "artifacts"

    def _path(self, key: str, suffix: str) -> Path:
        return self._folder / key[:2] / f"{key}{suffix}"

    def label(self, key: str) -> Label | None:
        """What is known of a compile with that key; None if there was none, or its artefact is gone."""
        try:
            found = msgspec.json.decode(self._path(key, ".json").read_bytes(), type=Label)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if found.refused or self._path(key, SUFFIX).is_file() else None

    def put(self, label: Label, artefact: Artefact | None) -> Label:
        """Keep a compile; the label last, so that it never stands for what is not there."""
        if artefact is not None:
            body = artefact.packed()
            label = msgspec.structs.replace(label, digest=sha256(body).hexdigest())
            files.put(self._path(label.key, SUFFIX), body)
        files.put(self._path(label.key, ".json"), msgspec.json.encode(label))
        return label

    def body(self, key: str) -> bytes:
        """The artefact with that key, as bytes."""
        return self._path(key, SUFFIX).read_bytes()

    def labels(self) -> Iterator[Label]:
        """Every compile that is kept."""
        for path in sorted(self._folder.glob("??/*.json")):
            if (found := self.label(path.stem)) is not None:
                yield found


def install_into_triton_cache(bodies: Iterable[bytes], folder: Path | None = None) -> int:
    """Put artefacts where a launch looks for them, Triton's own cache or the one in `folder`; how many."""
    from triton import knobs  # noqa: PLC0415 - an extra, and this file is also read by what only packs
    from triton.runtime.cache import get_cache_manager  # noqa: PLC0415

    count = 0
    with knobs.cache.scope():
        if folder is not None:
            knobs.cache.dir = str(folder)
        for body in bodies:
            found = Artefact.unpacked(body)
            manager = get_cache_manager(found.key)
            code, noted = f"{found.name}.{found.suffix}", f"{found.name}.json"
            group = {code: manager.put(found.code, code), noted: manager.put(found.metadata, noted)}
            manager.put_group(noted, group)
            count += 1
    return count
