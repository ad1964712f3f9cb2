"""Records what a program does to the files in a folder, and proves that nothing was missed.

A shim (`power_shim.c`, built here with cc) sits between the program and the C library, for real code in a child
process: Python's own files, SQLite's, and those of any library. `check` replays every operation; the result must equal
the folder byte for byte. SQLite's shared memory (`-shm`) is left out: it is mapped, and no durable state, since SQLite
rebuilds it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from power_model import Disk

SHIM = Path(__file__).with_name("power_shim.c")


class Missed(Exception):
    """Raised if the record of a program does not explain the files it left."""


class Operation(NamedTuple):
    """One change of a file or of names, or a marker of the program. Paths are relative to the folder."""

    kind: str
    inode: int
    offset: int
    path: str
    path2: str
    data: bytes


def build_shim(folder: Path) -> Path:
    """Compiles the shim into a folder."""
    library = folder / "power_shim.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SHIM), "-pthread"], check=True)
    return library


def record(command: Sequence[str], root: Path, shim: Path, **environment: str) -> tuple[Disk, list[Operation]]:
    """Runs a program that works in the folder `root`; returns the folder as it was before, and what was done to it."""
    disk, log = Disk.from_folder(root), shim.with_name(f"{root.name}.log")
    log.unlink(missing_ok=True)
    variables = {"LD_PRELOAD": str(shim), "POWER_ROOT": str(root), "POWER_LOG": str(log), **environment}
    done = subprocess.run([sys.executable, *command], env=os.environ | variables, check=False, capture_output=True)
    if done.returncode:
        raise Missed(f"{' '.join(command)} failed:\n{done.stderr.decode()[-2000:]}")
    operations = read_log(log.read_bytes(), str(root))
    check(disk.copy(), operations, root)
    return disk, operations


def read_log(raw: bytes, root: str) -> list[Operation]:
    """Returns the operations of a log; raises Missed for any whose effect is not known."""
    operations, at = [], 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        kind, *numbers = raw[at:end].decode().split()
        inode, offset, length, one, two = map(int, numbers)
        at = end + 1
        path, path2, data = raw[at : at + one], raw[at + one : at + one + two], raw[at + one + two :][:length]
        at += one + two + length
        names = [os.path.normpath(name.decode())[len(root) + 1 :] for name in (path, path2)]
        if kind == "unknown" or (kind == "map" and not names[0].endswith("-shm")):
            raise Missed(f"{kind} {path.decode()} {path2.decode()}: its effect on the disk is not modeled")
        if kind != "map" and not names[0].endswith("-shm"):
            operations.append(Operation(kind, inode, offset, *names, data))
    return operations


def check(disk: Disk, operations: Sequence[Operation], root: Path) -> None:
    """Raises Missed unless all operations together make the files that are in the folder."""
    for operation in operations:
        disk.apply(operation)
    expected, found = disk.everything(), Disk.from_folder(root).everything()
    if expected != found:
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise Missed(f"the record of operations does not explain {', '.join(names)}")
