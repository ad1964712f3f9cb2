"""The process of a check: runs configs in Triton's interpreter, and writes each result when it is known."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunewright.pools.kernel_loader import load_target
from tunewright.triton.checking import check_options
from tunewright.triton.installing import installed
from tunewright.triton.mutated_args import tensors_to_restore
from tunewright.triton.results import expected_by_reference
from tunewright.triton.tensors import Room


def main(output: str) -> None:
    """Reads what to run from standard input, and appends a line to the file `output` for each result."""
    request = json.loads(sys.stdin.read())
    with installed():  # the kernel may be decorated by Triton itself
        kernel = load_target(request["target"])
    with Path(output).open("a") as results:
        for shape, number in request["left"]:
            results.write(json.dumps(_run(kernel, kernel.configs[number], shape)) + "\n")
            results.flush()


def _run(kernel: Any, config: Any, shape: Mapping[str, int]) -> str | None:
    """Returns what is wrong with the results of a config at a shape; None if nothing is."""
    options = check_options(kernel)
    assert options.inputs is not None
    arguments = dict(options.inputs(**shape))
    grid = arguments.pop("grid")
    stored = tensors_to_restore(kernel.fn, arguments)
    expected = expected_by_reference(options, arguments, stored, Room(0))
    if config.pre_hook:
        config.pre_hook({**arguments, **config.all_kwargs()})
    try:
        kernel.fn.run(grid=grid, warmup=False, **arguments, **config.all_kwargs())
    except Exception as error:
        if type(error).__name__ != "InterpreterError":
            raise
        return f"it raises {error}"
    return expected.mismatch(stored)


if __name__ == "__main__":
    main(sys.argv[1])
