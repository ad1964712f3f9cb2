"""Ledger: the traces of finished replays, a line each; what it holds is not replayed again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tunewright.errors import SettingsError, WireError
from tunewright.laboratory.replays import Stamp, Trace
from tunewright.sharing import wire

NAME = "replays.jsonl"


class Ledger:
    """A file of JSON lines that only grows; a line that was torn by a killed process is passed over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A process that was killed may have left half a line: the next one starts on its own.
            torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if torn:
                os.write(self._file, b"\n")
        except OSError as error:
            raise SettingsError(f"cannot write to {self.path}: {error.strerror}; give another folder: --out") from error

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def add(self, trace: Trace) -> None:
        """Keep a trace."""
        os.write(self._file, wire.encode(trace) + b"\n")

    def known(self, wanted: Iterable[Stamp]) -> dict[bytes, Trace]:
        """The traces there are of `wanted`, by stamp as text; the last of a stamp holds."""
        asked, found = {wire.encode(stamp) for stamp in wanted}, {}
        with self.path.open("rb") as lines:
            for line in lines:
                try:
                    trace = wire.decode(line, Trace)
                except WireError:
                    continue
                if (stamp := wire.encode(trace.stamp)) in asked:
                    found[stamp] = trace
        return found
