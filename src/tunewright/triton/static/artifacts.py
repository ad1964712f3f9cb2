"""Stores compiled configs as files, and installs them into Triton's cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BackendError
from tunewright.stores import artifacts, files
from tunewright.triton.static.resources import CompiledResources

SUFFIX = ".triton"
_KEY, _NAME = re.compile(r"[0-9a-f]{64}"), re.compile(r"[A-Za-z0-9_<>.-]{1,150}")


class CompiledArtifact(msgspec.Struct, frozen=True):
    """A compiled config with all that a launch needs: machine code and Triton's metadata.

    `key` is the key of Triton's cache; it covers Triton's version, source, argument types and environment.
    """

    key: str
    name: str
    suffix: str
    metadata: bytes
    code: bytes

    def to_bytes(self) -> bytes:
        """Serializes it for a file or a bundle; equal artifacts give equal bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, body: bytes) -> CompiledArtifact:
        """Reads untrusted bytes; raises BackendError for names that could point outside of the cache."""
        try:
            artifact = msgspec.msgpack.decode(body, type=cls)
            metadata = json.loads(artifact.metadata)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BackendError(f"not a compiled Triton kernel: {error}") from error
        is_safe = _KEY.fullmatch(artifact.key) and _NAME.fullmatch(artifact.name) and not artifact.name.startswith(".")
        if not is_safe or artifact.suffix not in ("cubin", "hsaco") or not isinstance(metadata, dict):
            raise BackendError(
                f"the compiled kernel {artifact.name!r} ({artifact.key[:12]}) has an invalid name or key"
            )
        if metadata.get("hash") != artifact.key:
            raise BackendError(
                f"the key of the compiled kernel {artifact.name} is not that of its metadata; rebuild it"
            )
        return artifact


class CompileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was compiled and how it went: a JSON file beside the artifact, or alone if the compile failed.

    `environment` holds the variables in Triton's cache key.
    """

    key: str
    kernel: str
    target: str
    config: dict[str, Any]
    triton: str
    environment: dict[str, str]
    seconds: float
    cpu_seconds: float
    resources: CompiledResources | None = None
    digest: str = ""
    refused: str = ""
    rung: int = 1


class ArtifactCache:
    """Artifacts and compile records in a cache folder, by the key of Triton's cache."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "artifacts"

    def _path(self, key: str, suffix: str) -> Path:
        return self._folder / key[:2] / f"{key}{suffix}"

    def find(self, key: str) -> CompileRecord | None:
        """Returns the record of a compile; None if there is none, or its artifact is missing or damaged."""
        try:
            record = self._record(key)
            if not record.refused:
                artifacts.read_checked(self._path(key, SUFFIX), record.digest)
        except (OSError, msgspec.MsgspecError, BackendError):
            return None
        return record

    def _record(self, key: str) -> CompileRecord:
        body = files.read_bounded(self._path(key, ".json"), artifacts.MAX_LABEL_BYTES, own=True)
        return msgspec.json.decode(body, type=CompileRecord)

    def put(self, record: CompileRecord, artifact: CompiledArtifact | None) -> CompileRecord:
        """Writes artifact and record; the record last, so that it never exists without its artifact."""
        if artifact is not None:
            body = artifact.to_bytes()
            record = msgspec.structs.replace(record, digest=sha256(body).hexdigest())
            files.write_atomic(self._path(record.key, SUFFIX), body)
        files.write_atomic(self._path(record.key, ".json"), msgspec.json.encode(record))
        return record

    def read(self, key: str) -> bytes:
        """Returns the bytes of the artifact with that key; raises BackendError if they are not what was compiled."""
        try:
            record = self._record(key)
        except (OSError, msgspec.MsgspecError) as error:
            raise BackendError(f"no compiled kernel {key[:12]}; build it with `tunewright triton prebuild`") from error
        return artifacts.read_checked(self._path(key, SUFFIX), record.digest)

    def records(self) -> Iterator[CompileRecord]:
        """Yields the record of every compile."""
        for path in sorted(self._folder.glob("??/*.json")):
            if (record := self.find(path.stem)) is not None:
                yield record


def install_into_triton_cache(bodies: Iterable[bytes], folder: Path | None = None) -> int:
    """Writes artifacts into Triton's cache, or the cache in `folder`; returns how many."""
    from triton import knobs  # noqa: PLC0415 - an extra; packing a bundle imports this file without it
    from triton.runtime.cache import get_cache_manager  # noqa: PLC0415

    count = 0
    with knobs.cache.scope():
        if folder is not None:
            knobs.cache.dir = str(folder)
        for body in bodies:
            artifact = CompiledArtifact.from_bytes(body)
            manager = get_cache_manager(artifact.key)
            code_file, metadata_file = f"{artifact.name}.{artifact.suffix}", f"{artifact.name}.json"
            files_by_name = {
                code_file: manager.put(artifact.code, code_file),
                metadata_file: manager.put(artifact.metadata, metadata_file),
            }
            manager.put_group(metadata_file, files_by_name)
            count += 1
    return count
