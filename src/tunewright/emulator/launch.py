"""Executes a kernel: arguments become buffers with exact bounds, blocks run in batches, results come back as arrays."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from tunewright.backends.gpu_targets import TARGETS
from tunewright.backends.grid_launch import WARP, GridLaunch, Shape
from tunewright.emulator import sampling
from tunewright.emulator.counters import Counters
from tunewright.emulator.dead_reads import AlteredReads
from tunewright.emulator.faults import FaultKind, FaultList, KernelFault, Place, PtxError, PtxFault
from tunewright.emulator.inlining import inline_calls
from tunewright.emulator.machine import Machine, Shared
from tunewright.emulator.memory import GlobalMemory
from tunewright.emulator.program import Program, layout
from tunewright.emulator.ptx_text import Module, PtxKernel, PtxParameter, parse_module
from tunewright.emulator.races import GlobalShadow
from tunewright.emulator.scheduler import ORDERS, Scheduler
from tunewright.emulator.types import Array

REGISTER_BYTES = 128 << 20
"""Memory for the registers of a batch; more blocks go into the next batch."""

MAX_ROWS = 512
"""Warps of a batch, so that their clocks stay small."""

MAX_THREADS = 1024

OLDER_LIMITS = {"sm_70": 98304, "sm_75": 65536, "sm_87": 166912}
"""The most shared memory of a block in bytes, of targets that nothing is compiled for here."""


@dataclass(frozen=True)
class Options:
    """How a kernel is executed.

    `blocks` is how many blocks to execute (None: all), or their ids; `order` one of `ascending`, `descending` and
    `random`; `races` whether accesses are checked for order; `caches` whether hits of caches are counted;
    `step_limit` the most instructions of one warp.
    """

    blocks: int | Sequence[Shape] | None = None
    order: str = "ascending"
    seed: int = 0
    races: bool = True
    caches: bool = False
    step_limit: int = 2_000_000


EVERYTHING = Options()
"""All blocks, once, with all checks."""


@dataclass
class Emulation:
    """What executing a kernel gave: arrays as the kernel left them, faults, and counts.

    `arrays` has an entry for each argument, None for numbers. `blocks` are the ids of the blocks that were executed.
    """

    kernel: str
    arrays: list[Array | None]
    faults: list[PtxFault]
    counters: Counters
    blocks: Array
    grid: Shape
    seconds: float = 0.0
    written: list[Array | None] = field(default_factory=list)
    """For each argument, which bytes the kernel wrote; None for numbers, and if races are not checked."""

    @property
    def whole(self) -> bool:
        """Whether all blocks of the grid were executed."""
        return len(self.blocks) == prod(self.grid)


@dataclass
class _Arguments:
    """Arguments as buffers: the arrays', the parameters', and those of variables of the module."""

    buffers: list[Array] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, bytes] = field(default_factory=dict)
    arrays: list[tuple[int, Any] | None] = field(default_factory=list)

    def add(self, name: str, content: Array) -> int:
        """Adds a buffer and returns its address."""
        self.buffers.append(content)
        self.names.append(name)
        return len(self.buffers) << 40


def emulate(
    ptx: str | Module, launch: GridLaunch, args: Sequence[Any], options: Options = EVERYTHING, kernel: str | None = None
) -> Emulation:
    """Executes a kernel of PTX text and returns what it did; the arrays that are given stay as they are.

    Arguments are numpy arrays and numbers, in order; the scratch pointers that Triton appends may be left out.
    """
    began = time.perf_counter()
    module = parse_module(ptx) if isinstance(ptx, str) else ptx
    code = inline_calls(module.kernel(kernel), module.functions)
    if options.order not in ORDERS:
        raise PtxError(f"no order {options.order!r}; choose one of {', '.join(ORDERS)}")
    given = _bind(module, code, args)
    addresses, shared_size = layout([*module.variables, *code.variables], launch.shared)
    locals_size = _place_locals(code, given)
    program = Program(code, given.symbols | addresses, (shared_size, locals_size), given.parameters)
    blocks = sampling.choose_blocks(launch.grid, options.blocks, options.seed)

    def execute(options: Options, altered: AlteredReads | None = None) -> Shared:
        memory = GlobalMemory(given.buffers, given.names)
        shadow = GlobalShadow(memory.bytes.size, program.global_grain) if options.races else None
        random = np.random.default_rng(options.seed) if options.order == "random" else None
        counters = Counters(code.instructions, caches=options.caches)
        state = Shared(program, launch, memory, counters, FaultList(), shadow, random, altered)
        with suppress(KernelFault):  # noted, with where it happened
            _check_resources(module.target, launch, shared_size, state)
            _run(state, blocks, options)
        return state

    state = execute(options)
    memory, shadow, faults = state.memory, state.shadow, state.faults.found
    if faults or any(
        _differs(state, execute(replace(options, races=False), one)) for one in state.doubts.alterations()
    ):
        faults += state.doubts.faults.found
    arrays = [None if place is None else _contents(memory, *place) for place in given.arrays]
    written = [
        None if place is None or shadow is None else _written(shadow, memory, place[0]) for place in given.arrays
    ]
    elapsed = time.perf_counter() - began
    return Emulation(code.name, arrays, faults, state.counters, blocks, launch.grid, elapsed, written)


def _differs(state: Shared, other: Shared) -> bool:
    """Returns whether another execution left other memory or had a fault."""
    return bool(other.faults.found) or not np.array_equal(state.memory.bytes, other.memory.bytes)


def _bind(module: Module, code: PtxKernel, args: Sequence[Any]) -> _Arguments:
    given = _Arguments()
    if len(args) > len(code.parameters):
        raise PtxError(f"{code.name} takes {len(code.parameters)} arguments, not {len(args)}")
    for variable in module.variables:
        if variable.space in ("global", "const"):
            size = variable.size or 0
            content = np.frombuffer(variable.initial.ljust(size, b"\0"), np.uint8)
            given.symbols[variable.name] = given.add(variable.name, content)
    for number, parameter in enumerate(code.parameters):
        value = args[number] if number < len(args) else 0
        given.parameters[parameter.name] = _bind_one(given, parameter, value, number)
        if number < len(args) and not isinstance(value, np.ndarray):
            given.arrays.append(None)
    for name, body in given.parameters.items():
        given.symbols[name] = given.add(f"parameter {name}", np.frombuffer(body, np.uint8))
    return given


def _bind_one(given: _Arguments, parameter: PtxParameter, value: Any, number: int) -> bytes:
    """Returns the bytes of a parameter; an array gets a buffer, and its address is the value."""
    if isinstance(value, np.ndarray):
        if parameter.size != 8:
            raise PtxError(f"argument {number} is an array, but {parameter.name} is {parameter.type}")
        same = next((place for place in given.arrays if place is not None and place[1] is value), None)
        if same is not None:  # the same array twice is the same memory
            given.arrays.append(same)
            return ((same[0] + 1) << 40).to_bytes(8, "little")
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        address = given.add(f"argument {number}", content)
        given.arrays.append((len(given.buffers) - 1, value))
        return address.to_bytes(8, "little")
    if isinstance(value, bytes):
        return value.ljust(parameter.size, b"\0")
    if isinstance(value, float | np.floating):
        code = {"f64": "<d", "b64": "<d", "f32": "<f", "b32": "<f", "u32": "<f", "f16": "<e", "b16": "<e"}
        if parameter.type not in code:
            raise PtxError(f"argument {number} is a float, but {parameter.name} is {parameter.type}")
        return struct.pack(code[parameter.type], float(value))
    if parameter.type[0] == "f":
        return struct.pack({4: "<f", 8: "<d", 2: "<e"}[parameter.size], float(value))
    return (int(value) % (1 << (8 * parameter.size))).to_bytes(parameter.size, "little")


def _place_locals(code: PtxKernel, given: _Arguments) -> int:
    at = 0
    for variable in code.variables:
        if variable.space == "local":
            at = -(-at // variable.align) * variable.align
            given.symbols[variable.name] = at
            at += variable.size or 0
    return at


def _check_resources(target: str, launch: GridLaunch, shared: int, state: Shared) -> None:
    place = state.program.places[0] if state.program.places else Place("", 0)
    name = target.rstrip("abcf")
    limit = TARGETS[name].shared_block if name in TARGETS else OLDER_LIMITS.get(name)
    message = ""
    if launch.threads > MAX_THREADS:
        message = f"a block has {launch.threads} threads; the most are {MAX_THREADS}"
    elif limit is not None and shared > limit:
        message = f"a block needs {shared:,} bytes of shared memory; {target} has {limit:,}"
    if message:
        fault = PtxFault(FaultKind.RESOURCES, message, place)
        state.faults.add(fault)
        raise KernelFault(fault)


def _run(state: Shared, blocks: Array, options: Options) -> None:
    warps = state.launch.warps
    per_block = max(sum(8 if kind.endswith("64") else 4 for kind in state.program.kinds) * warps * WARP, 1)
    size = max(1, min(MAX_ROWS // warps, REGISTER_BYTES // per_block))
    random = np.random.default_rng(options.seed)
    for number, start in enumerate(range(0, len(blocks), size)):
        batch = blocks[start : start + size]
        order = np.tile(np.arange(warps)[:, None], (1, len(batch)))
        if options.order == "random":
            order = random.permuted(order, axis=0)
        machine = Machine(state, batch, number * warps * size, order)
        Scheduler(machine, options.order, options.seed + number, options.step_limit).run()


def _written(shadow: GlobalShadow, memory: GlobalMemory, number: int) -> Array:
    start = int(memory.starts[number])
    return shadow.written(start, start + int(memory.sizes[number]))


def _contents(memory: GlobalMemory, number: int, like: Array) -> Array:
    return memory.contents(number).copy().view(like.dtype).reshape(like.shape)
