"""Log of finished replays, so that they are not repeated."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tunewright.errors import SettingsError, WireError
from tunewright.replay.runs import RunKey, Trace
from tunewright.stores import serialization

FILE_NAME = "replays.jsonl"


class TraceLog:
    """An append-only file of JSON lines; incomplete lines of killed processes are ignored."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A killed process may have left an incomplete line: start a new one.
            incomplete = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if incomplete:
                os.write(self._file, b"\n")
        except OSError as error:
            raise SettingsError(f"cannot write to {self.path}: {error.strerror}; choose a folder with --out") from error

    def __enter__(self) -> TraceLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def add(self, trace: Trace) -> None:
        """Append a trace."""
        os.write(self._file, serialization.encode(trace) + b"\n")

    def lookup(self, keys: Iterable[RunKey]) -> dict[bytes, Trace]:
        """Returns the stored traces of `keys`, by encoded key; of several, the last."""
        encoded, traces = {serialization.encode(key) for key in keys}, {}
        with self.path.open("rb") as lines:
            for line in lines:
                try:
                    trace = serialization.decode(line, Trace)
                except WireError:
                    continue
                if (key := serialization.encode(trace.key)) in encoded:
                    traces[key] = trace
        return traces
