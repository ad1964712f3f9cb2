"""The process of a check for a GPU that is not here: compiles configs, executes them, and writes each result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tunewright.emulator.faults import PtxError
from tunewright.emulator.launch import Options
from tunewright.emulator.triton_kernels import TritonCall, check_call, compile_call
from tunewright.triton.checking import check_options, serve_requests
from tunewright.triton.static.kernels import unwrap_kernel


def run(kernel: Any, config: Any, shape: Mapping[str, int], gpu: str) -> str | None:
    """Returns what is wrong with a config at a shape, compiled for a GPU; None if nothing is."""
    options, declaration = check_options(kernel), unwrap_kernel(kernel)
    assert options.inputs is not None
    arguments = dict(options.inputs(**shape))
    grid = arguments.pop("grid")
    if config.pre_hook:
        config.pre_hook({**arguments, **config.all_kwargs()})
    settings = declaration.settings((), arguments, config.all_kwargs())
    only = {name: value for name, value in settings.items() if name not in arguments}
    call = TritonCall(declaration.function, arguments, grid, only)
    try:
        verdict = check_call(call, compile_call(call, gpu), options.reference, Options())
    except PtxError as error:
        return f"it could not be executed: {error}"
    return str(verdict.faults[0]) if verdict.faults else verdict.wrong or None


if __name__ == "__main__":
    serve_requests(sys.argv[1], run)
