"""Engine: the compiler itself. Schedules are verified, taken step by step on a payload, and lowered to object code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tunewright.backends.mlir.script import Script
from tunewright.backends.mlir.steps import REASSOCIATE
from tunewright.backends.mlir.writing import Operation, Payload
from tunewright.errors import BackendError, ScheduleError

RELEASE = "20261001"
"""The release of torch-mlir whose scripts we write: names of operations change from one to the next."""

_BUFFERS = (
    "eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map},canonicalize,cse"
)
_MEMORY = "func.func(buffer-hoisting,buffer-loop-hoisting),buffer-deallocation-pipeline,canonicalize,cse"
_LOOPS = (
    "canonicalize,cse,{loops},func.func(convert-linalg-to-loops),func.func(convert-vector-to-scf{{full-unroll=true}}),"
    "lower-affine,canonicalize,cse,func.func(loop-invariant-code-motion),{threads}convert-scf-to-cf,"
    "expand-strided-metadata,lower-affine"
)
# Memory is aligned by the allocator: aligned by arithmetic on pointers, it might alias anything.
_LLVM = (
    "{threads}convert-vector-to-llvm{{enable-x86{sums}}},convert-math-to-llvm,"
    "finalize-memref-to-llvm{{use-aligned-alloc=true}},convert-arith-to-llvm,convert-index-to-llvm,convert-func-to-llvm,"
    "convert-cf-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts,canonicalize,cse"
)
_SIZES = re.compile(r"(?:tile_sizes|num_threads|packed_sizes|pad_to_multiple_of)\s*=?\s*\[([^\]]*)\]")
_LINE = re.compile(r'"-":(\d+):\d+')


def release() -> str:
    """The installed release of torch-mlir; the one we write for where none is, as where only winners are loaded."""
    try:
        return metadata.version("torch-mlir")
    except metadata.PackageNotFoundError:
        return RELEASE


@cache
def _modules() -> Any:
    """What we use of torch-mlir."""
    try:
        from torch_mlir import execution_engine, ir, passmanager  # noqa: PLC0415 - an optional package
        from torch_mlir.dialects.transform import interpreter  # noqa: PLC0415
    except ImportError as error:
        raise BackendError(
            "building MLIR needs torch-mlir: pip install ml_dtypes, then "
            f"pip install --no-deps torch-mlir=={RELEASE}; what was built before runs without it"
        ) from error
    return ir, passmanager.PassManager, execution_engine.ExecutionEngine, interpreter


@contextmanager
def _context() -> Iterator[Any]:
    ir = _modules()[0]
    with ir.Context(), ir.Location.unknown():
        yield ir


def lowering(options: frozenset[str], threads: int) -> str:
    """The passes from scheduled tensors to LLVM."""
    sums = f" {REASSOCIATE}" if REASSOCIATE in options else ""
    loops = "func.func(scf-forall-to-for)" if threads == 1 else "func.func(scf-forall-to-parallel)"
    to_threads = "" if threads == 1 else f"convert-scf-to-openmp{{num-threads={threads}}},canonicalize,"
    parts = (
        _BUFFERS,
        _MEMORY,
        _LOOPS.format(loops=loops, threads=to_threads),
        _LLVM.format(threads="" if threads == 1 else "convert-openmp-to-llvm,", sums=sums),
    )
    return f"builtin.module({','.join(parts)})"


def checked(payload: str) -> None:
    """Refuse a payload that is no valid MLIR."""
    with _context() as ir:
        _parsed(ir, payload)


def _parsed(ir: Any, payload: str) -> Any:
    try:
        return ir.Module.parse(payload)
    except ir.MLIRError as error:
        raise BackendError(f"the payload is no valid MLIR: {_short(error)}") from error


def read(text: str, sizes: Mapping[str, int] | None = None) -> Payload:
    """A payload in text with its operations told apart, so that plans and proofs know them."""
    passes = _modules()[1]
    with _context() as ir:
        module = _parsed(ir, text)
        kinds = [op.name for op in _linalg(ir, module)]
        passes.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(module.operation)
        found = [_described(op, kind) for op, kind in zip(_linalg(ir, module), kinds, strict=True)]
    return Payload(text, operations=tuple(found), name=entry(text), sizes=sizes or {})


def _linalg(ir: Any, module: Any) -> list[Any]:
    """The operations that have loops, in the order of the program."""
    found: list[Any] = []

    def look(op: Any) -> Any:
        if op.name.startswith("linalg.") and op.name not in ("linalg.yield", "linalg.index"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _described(op: Any, kind: str) -> Operation:
    """An operation's loops and maps."""
    if op.name != "linalg.generic" or not len(op.results):
        raise BackendError(f"{kind} has no loops that we know; write it as linalg.generic on tensors")
    maps = [re.findall(r"\((.*?)\)", str(one)) for one in op.attributes["indexing_maps"]]
    loops = tuple(maps[0][0].replace(" ", "").split(","))
    sums = frozenset(
        n for n, one in zip(loops, op.attributes["iterator_types"], strict=True) if "reduction" in str(one)
    )
    places = [one[1].replace(" ", "") for one in maps]
    names = [value.get_name().replace("%", "v").replace("#", "_") for value in op.operands]
    known: dict[str, int | None] = {}
    for place, value in zip(places, op.operands, strict=True):
        shape = re.findall(r"(\d+|\?)x", str(value.type).partition(",")[0])
        for part, size in zip(place.split(","), shape, strict=False):
            known.setdefault(part, None if size == "?" else int(size))
    reads = list(zip(names, places, strict=True))
    if not list(op.regions[0].blocks[0].arguments[-1].uses):
        reads.pop()
    made = op.results[0].get_name().replace("%", "v").replace("#", "_")
    inputs = [] if kind == "linalg.fill" else reads
    return Operation(made, loops, sums, tuple(inputs), (made, places[-1]), tuple(map(known.get, loops)), kind)


def verify(script: Script) -> None:
    """Refuse a script that is no valid program, or that uses what it has consumed; nothing is run for that."""
    with _context() as ir:
        _verified(ir, script)


def _verified(ir: Any, script: Script) -> Any:
    """The script as a module."""
    passes = _modules()[1]
    for step in script.steps:
        # The compiler takes a negative size of a forall for a loop that never runs.
        if any("-" in found for found in _SIZES.findall("".join(step.lines))):
            raise ScheduleError(f"{step}: sizes are whole numbers from 0 on")
    try:
        module = ir.Module.parse(str(script))
        module.operation.verify()
        passes.parse("builtin.module(transform-dialect-check-uses)").run(module.operation)
    except ir.MLIRError as error:
        found = _LINE.search(str(error))
        wrong = script.step_at(int(found[1])) if found else None
        raise ScheduleError(f"{wrong or 'the script'}: {_short(error)}") from error
    return module


def scheduled(payload: str, script: Script) -> str:
    """The payload after all steps; a step that cannot be taken is named."""
    with _context() as ir:
        return str(_scheduled(ir, payload, script))


def _scheduled(ir: Any, payload: str, script: Script) -> Any:
    module, said = _taken(ir, payload, _verified(ir, script))
    # In memory nobody sees any more which iterations write where: tensors are looked at, just before they go.
    last = next((step.number for step in script.steps if "one_shot_bufferize" in "".join(step.lines)), 1) - 1
    if not said and last:
        said = _taken(ir, payload, ir.Module.parse(script.upto(last)))[1]
    if said:
        raise ScheduleError(_blamed(ir, payload, script, said))
    return module


def _taken(ir: Any, payload: str, script: Any) -> tuple[Any, str]:
    """A payload after a script, and what went wrong if anything did."""
    interpreter, module = _modules()[3], _parsed(ir, payload)
    options = interpreter.TransformOptions()
    options.expensive_checks = True
    main = next(op for op in script.body.operations if _called(op) == "__transform_main")
    try:
        interpreter.apply_named_sequence(module.operation, main, script.operation, options)
        module.operation.verify()
    except (ir.MLIRError, ValueError) as error:
        return module, _short(error)
    return module, racing(module)


def _called(op: Any) -> str:
    attributes = op.operation.attributes
    return str(attributes["sym_name"].value) if "sym_name" in attributes else ""


def _blamed(ir: Any, payload: str, script: Script, said: str) -> str:
    """Which step is the first that cannot be taken, and why."""
    for step in script.steps:
        before = ir.Module.parse(script.upto(step.number))
        if why := _taken(ir, payload, before)[1]:
            return f"{step}: {why}"
    return f"the schedule as a whole: {said}"


def stages(payload: str, script: Script) -> Iterator[tuple[str, str]]:
    """The payload before the first step and after each, under the step's name; it ends where a step fails."""
    with _context() as ir:
        yield "payload", str(_parsed(ir, payload))
        _verified(ir, script)
        for step in script.steps:
            module, said = _taken(ir, payload, ir.Module.parse(script.upto(step.number)))
            if said:
                raise ScheduleError(f"{step}: {said}")
            yield str(step), str(module)


def racing(module: Any) -> str:
    """Which parallel iterations write to the same place, in words; empty if none do."""
    found: list[str] = []

    def look(op: Any) -> Any:
        if op.name == "scf.forall":
            found.extend(_overlaps(op))
        return _modules()[0].WalkResult.ADVANCE

    module.operation.walk(look)
    return found[0] if found else ""


def _overlaps(loop: Any) -> Iterator[str]:
    """Writes of a forall that do not move with each of its variables: iterations would overwrite each other."""
    block = loop.regions[0].blocks[0]
    inner = list(block.operations)
    for write in inner[-1].regions[0].blocks[0].operations if inner[-1].regions else ():
        reached: set[str] = set()
        todo = list(write.operands)[2:]  # source and destination come first, then where it writes
        while todo:
            value = todo.pop()
            if value.get_name() in reached:
                continue
            reached.add(value.get_name())
            if hasattr(value.owner, "operands"):
                todo += list(value.owner.operands)
        count = len(block.arguments) - len(loop.results)
        if any(block.arguments[i].get_name() not in reached for i in range(count)):
            yield "iterations that may run at once write to the same place: a sum is no loop for forall"


def compiled(payload: str, script: Script, path: Path, *, threads: int = 1, openmp: str = "") -> None:
    """Write object code for this processor to `path`; its function is `_mlir_ciface_` and the payload's name."""
    _, passes, engine, _ = _modules()
    with _context() as ir:
        module = _scheduled(ir, payload, script)
        try:
            passes.parse(lowering(script.options, threads)).run(module.operation)
            built = engine(module, 3, [openmp] if openmp else [], True, True)
            built.lookup(entry(payload))  # fills what is dumped
        except (ir.MLIRError, RuntimeError) as error:
            last = script.steps[-1] if script.steps else "the payload"
            raise ScheduleError(f"lowering to machine code after {last}: {_short(error)}") from error
        built.dump_to_object_file(str(path))


def entry(payload: str) -> str:
    """The name of the payload's function that is called from outside."""
    for found in re.finditer(r"func\.func\s+(?:public\s+)?@([\w$.]+)", payload):
        rest = payload[found.end() :]
        if "llvm.emit_c_interface" in rest.partition("\n")[0]:
            return found[1]
    raise BackendError("no function of the payload can be called: give one the attribute llvm.emit_c_interface")


def _short(error: Exception | str) -> str:
    """What a compiler says, without places in texts that nobody sees, and without what it repeats."""
    text = str(error)
    for cut in ("\n note:", "\nat loc", "note: "):
        text = text.partition(cut)[0]
    text = re.sub(r'(at )?loc\("-":\d+:\d+\):?|"-":\d+:\d+:', "", text)
    for lead in ("Failed to apply named transform sequence.", "Diagnostic message", "Unable to parse module assembly:"):
        text = text.replace(lead, "")
    return " ".join(text.split()).removeprefix("error: ")[:300] or "it cannot be taken here"
