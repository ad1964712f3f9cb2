"""Compiles Triton kernels for a GPU that is not here, executes the PTX, and compares with the reference."""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunewright.backends.grid_launch import GridLaunch
from tunewright.emulator import tensors
from tunewright.emulator.faults import PtxError, PtxFault
from tunewright.emulator.launch import Emulation, Options, emulate
from tunewright.emulator.scheduler import ORDERS
from tunewright.emulator.types import Array

import numpy as np  # isort: skip

if TYPE_CHECKING:
    from tunewright.triton.static.aot import CompileUnit


@dataclass(frozen=True)
class TritonCall:
    """A launch of a kernel: the JIT function, its arguments by name, its grid, and the settings of a config."""

    function: Any
    arguments: Mapping[str, Any]
    grid: Any
    settings: Mapping[str, Any]

    def shape(self) -> tuple[int, int, int]:
        """Returns the grid as three numbers."""
        grid = self.grid({**self.arguments, **self.settings}) if callable(self.grid) else self.grid
        sizes = [int(size) for size in (grid if isinstance(grid, Sequence) else (grid,))]
        return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


@dataclass(frozen=True)
class Compiled:
    """A kernel as it was compiled: PTX, which arguments it takes in order, and what a launch needs."""

    ptx: str
    names: tuple[str, ...]
    warps: int
    shared: int
    scratch: int
    seconds: float


@dataclass
class Verdict:
    """What executing a kernel showed.

    `wrong` says how results differ from the reference, None if they do not, and "" if there is no reference; `orders`
    are those in which warps were run.
    """

    wrong: str | None
    faults: list[PtxFault]
    emulation: Emulation
    orders: list[str] = field(default_factory=list)
    compile_seconds: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and not self.wrong


def compile_call(call: TritonCall, target: str) -> Compiled:
    """Compiles a call as a launch on the target would."""
    return compile_unit(bind_call(call, target))


def bind_call(call: TritonCall, target: str) -> CompileUnit:
    """Returns a call for the compiler, which has a key that is equal for calls that are compiled to the same code."""
    from tunewright.triton.static import aot  # noqa: PLC0415 - loads Triton
    from tunewright.triton.static.targets import find_target  # noqa: PLC0415

    ordered = [call.arguments[name] for name in call.function.arg_names if name in call.arguments]
    named = {name: value for name, value in call.settings.items() if name not in call.arguments}
    positional = list(call.function.arg_names[: len(ordered)]) == [
        name for name in call.function.arg_names if name in call.arguments
    ]
    if not positional:
        ordered, named = [], {**call.arguments, **named}
    return aot.make_unit(call.function, find_target(target), ordered, named)


def compile_unit(unit: CompileUnit) -> Compiled:
    """Compiles a bound call."""
    from tunewright.triton.static import aot  # noqa: PLC0415 - loads Triton

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        kernel = aot.compile_unit(unit, Path(scratch))
    names = tuple(name for name, kind in unit.source.signature.items() if kind != "constexpr")
    metadata = json.loads(kernel.metadata)
    threads = metadata.get("num_warps", kernel.warps)
    return Compiled(
        kernel.assembly,
        names,
        int(threads),
        kernel.shared,
        int(metadata.get("global_scratch_size", 0)),
        time.perf_counter() - began,
    )


def run_compiled(compiled: Compiled, call: TritonCall, options: Options) -> tuple[Emulation, dict[str, Any]]:
    """Executes a compiled call; returns what it did, and the tensors as it left them."""
    grid = call.shape()
    memory: dict[int, Array] = {}
    args: list[Any] = []
    for name in compiled.names:
        value = call.arguments.get(name, call.settings.get(name))
        if tensors.is_tensor(value):
            value = memory.setdefault(value.data_ptr(), tensors.to_bytes(value))
        elif not isinstance(value, bool | int | float | np.generic | np.ndarray):
            raise PtxError(f"the argument {name} is {type(value).__name__}; tensors and numbers can be passed")
        args.append(value)
    if compiled.scratch:
        args.append(np.zeros(compiled.scratch * grid[0] * grid[1] * grid[2], np.uint8))
    launch = GridLaunch(grid, (32 * compiled.warps, 1, 1), compiled.shared)
    done = emulate(compiled.ptx, launch, args, options)
    left = {}
    for name, body in zip(compiled.names, done.arrays, strict=False):
        if body is not None and tensors.is_tensor(call.arguments.get(name)):
            left[name] = tensors.from_bytes(call.arguments[name], body)
    return done, left


def check_call(
    call: TritonCall,
    compiled: Compiled,
    reference: Callable[..., Any] | None,
    options: Options,
    orders: Sequence[str] = ORDERS,
) -> Verdict:
    """Executes a compiled call in several orders of warps and compares the results with a reference.

    The first order is checked for races; the others show whether results depend on the order.
    """
    verdict: Verdict | None = None
    for number, order in enumerate(orders):
        now = replace(options, order=order, races=options.races and number == 0)
        done, left = run_compiled(compiled, call, now)
        wrong = "" if reference is None or done.faults else _mismatch(call, compiled, reference, (done, left), verdict)
        if verdict is None:
            verdict = Verdict(wrong, done.faults, done, compile_seconds=compiled.seconds)
        else:
            verdict.faults += [fault for fault in done.faults if fault not in verdict.faults]
            verdict.wrong = verdict.wrong or wrong
        verdict.orders.append(order)
        if verdict.faults or verdict.wrong:
            break
    assert verdict is not None
    return verdict


def _mismatch(
    call: TritonCall,
    compiled: Compiled,
    reference: Callable[..., Any],
    run: tuple[Emulation, dict[str, Any]],
    first: Verdict | None,
) -> str | None:
    """Returns how results differ; where only some blocks ran, of what the first run wrote."""
    from tunewright.triton.options import AutotuneOptions  # noqa: PLC0415 - an extension of its own
    from tunewright.triton.results import expected_by_reference  # noqa: PLC0415
    from tunewright.triton.tensors import Room  # noqa: PLC0415

    done, left = run
    written = zip(compiled.names, (first.emulation if first else done).written, strict=False)
    masks = {name: mask for name, mask in written if mask is not None and mask.any()}
    stored = {name: tensor for name, tensor in left.items() if name in masks}
    if not stored:
        return "the kernel stores nothing"

    @functools.wraps(reference)
    def partial(**arguments: Any) -> Any:
        wanted = reference(**arguments)
        if not isinstance(wanted, Mapping):
            values = wanted if isinstance(wanted, tuple) else (wanted,)
            wanted = dict(zip(stored, values, strict=len(values) == len(stored)))
        if done.whole:
            return wanted
        shown = {}
        for name, value in wanted.items():
            chosen = tensors.element_mask(stored[name], masks[name])
            shown[name] = value.where(chosen, stored[name].to(value.dtype))
        return shown

    options = AutotuneOptions(reference=partial)
    return expected_by_reference(options, dict(call.arguments), stored, Room(0)).mismatch(stored)
