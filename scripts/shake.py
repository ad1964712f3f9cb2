"""Run a command while four processes compute and one writes to the disk: `python scripts/shake.py COMMAND ...`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

BUSY = 4
COMPUTE = "while True: pass"
WRITE = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(256):
            file.write(block)
            os.fsync(file.fileno())
"""


@contextmanager
def running(*arguments: str) -> Iterator[None]:
    """A Python process that is killed in the end."""
    process = subprocess.Popen([sys.executable, "-c", *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main(command: list[str]) -> int:
    """Run `command` in such company; its exit status."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, ExitStack() as company:
        for _ in range(BUSY):
            company.enter_context(running(COMPUTE))
        company.enter_context(running(WRITE, str(Path(folder) / "junk")))
        status = subprocess.run(command, check=False).returncode
        print(f"shaken by {BUSY} busy processes and a writer; load {os.getloadavg()[0]:.1f}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
