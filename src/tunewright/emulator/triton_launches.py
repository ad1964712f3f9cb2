"""Runs launches of Triton kernels in the emulator, in a process that has no GPU and may start no programs.

After `install("sm_90")`, `kernel[grid](...)` compiles for that GPU as far as PTX, executes it, and writes to the
tensors, which are on the CPU. A fault of the compiled code is an error of the launch, and leaves the tensors as they
were.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

import triton
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from tunewright.backends.gpu_targets import find_target
from tunewright.emulator.faults import PtxError
from tunewright.emulator.launch import Options
from tunewright.emulator.triton_kernels import Compiled, TritonCall, bind_call, compile_unit, run_compiled
from tunewright.errors import BackendError

MOST_COMPILED = 256
"""Compiled kernels that are kept."""


def install(gpu: str) -> None:
    """Makes all launches of this process run in the emulator, compiled for `gpu`.

    The assembler, which is another program, is not started any more. A kernel is compiled now, so that what the
    compiler asks other programs, such as versions, is known later. Of an autotuned kernel the first config that fits is
    taken, since nothing is timed.
    """
    CUDABackend.make_cubin = lambda *args: b""
    compile_unit(bind_call(TritonCall(_nothing, {"place": 1}, (1,), {}), gpu))
    JITFunction.run = _make_run(gpu)
    Autotuner._bench = _bench
    Autotuner.check_disk_cache = lambda self, key, configs, bench: bool(bench())


@triton.jit  # type: ignore[untyped-decorator]
def _nothing(place) -> None:  # type: ignore[no-untyped-def]
    pass


def _bench(tuner: Any, *args: Any, config: Any, **named: Any) -> list[float]:
    """Returns equal times for all configs that can be launched."""
    try:
        tuner.fn.run(*args, **{**named, **config.all_kwargs(), "warmup": True})
    except (BackendError, OutOfResources):
        return [inf] * 3
    return [1.0] * 3


def _make_run(gpu: str) -> Callable[..., None]:
    compiled: dict[str, Compiled] = {}
    numbers, most = count(), find_target(gpu).shared_block

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        call = _bind(function, args, grid, named)
        unit = bind_call(call, gpu)
        if unit.key not in compiled:
            if len(compiled) >= MOST_COMPILED:
                compiled.clear()
            compiled[unit.key] = compile_unit(unit)
        if (shared := compiled[unit.key].shared) > most:
            raise OutOfResources(shared, most, "shared memory")
        if not warmup:
            _execute(compiled[unit.key], call, next(numbers))

    return run


def _bind(function: Any, args: Any, grid: Any, named: dict[str, Any]) -> TritonCall:
    own = {name: value for name, value in named.items() if name in function.arg_names}
    bound = function.signature.bind(*args, **own)
    bound.apply_defaults()
    return TritonCall(function, dict(bound.arguments), grid, {name: named[name] for name in named if name not in own})


def _execute(compiled: Compiled, call: TritonCall, number: int) -> None:
    """Runs a launch, each in an order of warps of its own."""
    done, left = run_compiled(compiled, call, Options(order="random", seed=number))
    if done.faults:
        raise PtxError(f"{done.kernel}: {done.faults[0]}")
    for name, written in zip(compiled.names, done.written, strict=False):
        if name in left and written is not None and written.any():  # what is only read may be memory that is read-only
            call.arguments[name].copy_(left[name])
