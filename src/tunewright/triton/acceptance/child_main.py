"""Main of a process of the acceptance kit: does one task, and writes its result."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec

from tunewright.pools.kernel_loader import load_target
from tunewright.stores import files
from tunewright.triton.acceptance.children import ChildTask


def main() -> None:
    """Does the task in the first file, and writes what it returns into the second."""
    status = 1
    try:
        task = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ChildTask)
        make, *arguments = task.device
        result = load_target(task.work)(load_target(make)(*arguments), **task.arguments)
        files.write_atomic(Path(sys.argv[2]), msgspec.json.encode(result))
        status = 0
    except BaseException:  # whoever started this process reads it
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what a device that is lost does at a regular exit is not of interest
