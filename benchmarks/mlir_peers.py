"""Peers of `mlir.py`: TVM, IREE or ourselves in another process and environment, asked for one call at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NEEDS = {
    # The pair of releases that works together: with the newest ffi, TVM crashes.
    "tvm": ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "numpy", "xgboost", "psutil", "cloudpickle"),
    "iree": ("iree-base-compiler==3.13.*", "iree-base-runtime==3.13.*", "numpy"),
}


def interpreter(name: str, folder: Path) -> Path:
    """The Python of a peer's environment, made if it is not there."""
    place = folder / name
    python, done = place / "bin" / "python", place / "installed"
    if not done.is_file():
        print(f"installing {name} into {place}", file=sys.stderr)
        venv.create(place, with_pip=True)
        command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *NEEDS[name]]
        subprocess.run(command, check=True)
        done.touch()
    return python


class Peer:
    """A product with relu in another process, which waits between calls; `said` is what it said first."""

    def __init__(self, python: Path, script: str, *args: object) -> None:
        argv = [str(python), str(HERE / script), *map(str, args)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said: dict[str, Any] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a peer ended with {self._process.wait()}: {self._process.args}")
        return line

    def seconds(self) -> float:
        """CPU time of one more call there, after one that does not count."""
        assert self._process.stdin is not None
        self._process.stdin.write("once more\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End it."""
        self._process.communicate()
