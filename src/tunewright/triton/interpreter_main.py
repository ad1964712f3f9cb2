"""The process of a check: runs configs in Triton's interpreter, and writes each result when it is known."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tunewright.triton.checking import check_options, serve_requests
from tunewright.triton.mutated_args import tensors_to_restore
from tunewright.triton.results import expected_by_reference
from tunewright.triton.tensors import Room


def run(kernel: Any, config: Any, shape: Mapping[str, int], gpu: str | None = None) -> str | None:
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
    serve_requests(sys.argv[1], run)
