"""The MLIR compiler: verifies scripts, applies them to a payload step by step, and lowers to object code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tunewright.errors import BackendError, ScheduleError
from tunewright.mlir.exponentials import expand_exponentials
from tunewright.mlir.packed_dots import INLINE, insert_dot_blocks
from tunewright.mlir.payload import LinalgOp, Payload, PlacedOp
from tunewright.mlir.prefetch import ACCESSES, insert_prefetches
from tunewright.mlir.processor import has_dot_vectors
from tunewright.mlir.schedule import DOT_INSTRUCTIONS, POLYNOMIAL, PREFETCH, REASSOCIATE
from tunewright.mlir.script import TransformScript

RELEASE = "20261001"
"""Release of torch-mlir that the scripts are written for; names of operations change between releases."""

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
# The allocator aligns memory: pointers aligned by arithmetic could alias anything.
_LLVM = (
    "math-expand-ops{{ops=fpowi}},{rounding}{threads}{dots}convert-vector-to-llvm{{enable-x86{sums}}},convert-math-to-llvm,convert-math-to-libm,"
    "convert-vector-to-llvm{{enable-x86}},"  # calls of libm for each element of a vector
    "finalize-memref-to-llvm{{use-aligned-alloc=true}},convert-arith-to-llvm,convert-index-to-llvm,convert-func-to-llvm,"
    "convert-cf-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts,canonicalize,cse"
)
# Without an instruction that rounds to bfloat16, the compiler calls a function of its runtime, which nothing loads.
_ROUNDING = "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},arith-expand{include-bf16=true},"
RELAYOUTS = frozenset({"linalg.pack", "linalg.unpack"})
"""Operations that copy into panels and out of them; they have no loops until they are lowered."""

_SIZES = re.compile(r"(?:tile_sizes|num_threads|packed_sizes|pad_to_multiple_of)\s*=?\s*\[([^\]]*)\]")
_LINE = re.compile(r'"-":(\d+):\d+')


def installed_release() -> str:
    """Returns the installed release of torch-mlir; without one, `RELEASE`."""
    try:
        return metadata.version("torch-mlir")
    except metadata.PackageNotFoundError:
        return RELEASE


@cache
def _import_torch_mlir() -> Any:
    """Returns the used modules and classes of torch-mlir."""
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
    ir = _import_torch_mlir()[0]
    with ir.Context(), ir.Location.unknown():
        yield ir


def lowering_passes(payload: str, options: frozenset[str], threads: int) -> tuple[str, str]:
    """Returns the pass pipelines from the scheduled payload to buffers, and from these to LLVM."""
    sums = f" {REASSOCIATE}" if REASSOCIATE in options else ""
    # Branches pass tiles on, so both are converted at once.
    dots = "convert-to-llvm{filter-dialects=cf,x86}," if DOT_INSTRUCTIONS in options else ""
    loops = "func.func(scf-forall-to-for)" if threads == 1 else "func.func(scf-forall-to-parallel)"
    to_threads = "" if threads == 1 else f"convert-scf-to-openmp{{num-threads={threads}}},canonicalize,"
    parts = (
        _LOOPS.format(loops=loops, threads=to_threads),
        _LLVM.format(
            threads="" if threads == 1 else "convert-openmp-to-llvm,",
            sums=sums,
            dots=dots,
            rounding=_ROUNDING if "bf16" in payload and not has_dot_vectors("bf16") else "",
        ),
    )
    return f"builtin.module({_BUFFERS},{_MEMORY})", f"builtin.module({','.join(parts)})"


def check_payload(payload: str) -> None:
    """Raise an error if the payload is no valid MLIR."""
    with _context() as ir:
        _parse_payload(ir, payload)


def _parse_payload(ir: Any, payload: str, name: str = "the payload") -> Any:
    try:
        return ir.Module.parse(payload)
    except ir.MLIRError as error:
        line = _LINE.search(str(error))
        where = f"{name}, line {line[1]}," if line else name
        raise BackendError(f"{where} is no valid MLIR: {_short_message(error)}") from error


def print_module(text: str, name: str) -> str:
    """Returns a module as the compiler prints it, without assertions about elements; errors name file and line."""
    with _context() as ir:
        module = _parse_payload(ir, text, name)
        assertions: list[Any] = []

        def collect(op: Any) -> Any:
            if op.name == "cf.assert" and op.parent.name.startswith("linalg."):
                assertions.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for op in assertions:
            op.erase()
        return str(module)


def parse_payload(text: str, sizes: Mapping[str, int] | None = None, *, name: str = "the payload") -> Payload:
    """Returns a payload from text, with its operations, as plans and legality checks need them.

    Errors name the file, the line and the operation.
    """
    passes = _import_torch_mlir()[1]
    with _context() as ir:
        module = _parse_payload(ir, text, name)
        named = [(op.name, f"{name}, {_line_of(op)}") for op in _linalg_ops(ir, module)]
        passes.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(module.operation)
        ops = [_describe_op(op, *kind) for op, kind in zip(_linalg_ops(ir, module), named, strict=True)]
    return Payload(text, operations=tuple(ops), name=entry_point(text), sizes=sizes or {})


def operations_after(payload: str, script: TransformScript) -> list[PlacedOp]:
    """Returns the operations of a payload after a script that works on tensors, in program order, without panels."""
    passes = _import_torch_mlir()[1]
    with _context() as ir:
        module = _apply_script(ir, payload, script)
        named = [op.name for op in _linalg_ops(ir, module) if op.name not in RELAYOUTS]
        passes.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(module.operation)
        ops = [op for op in _linalg_ops(ir, module) if op.name not in RELAYOUTS]
        return [
            PlacedOp(
                _describe_op(op, kind, "after a step"), _is_nested(op), _combiner(op), any(map(_escapes, op.results))
            )
            for op, kind in zip(ops, named, strict=True)
        ]


def unpacked_results(payload: str, script: TransformScript) -> dict[str, str]:
    """Returns what is unpacked after a script, by the results; both named as in `operations_after`."""
    passes = _import_torch_mlir()[1]
    with _context() as ir:
        module = _apply_script(ir, payload, script)
        passes.parse("builtin.module(func.func(linalg-generalize-named-ops))").run(module.operation)
        unpacks = [op for op in _linalg_ops(ir, module) if op.name == "linalg.unpack"]
        return {_value_name(op.results[0]): _value_name(op.operands[0]) for op in unpacks}


def _value_name(value: Any) -> str:
    return str(value.get_name()).replace("%", "v").replace("#", "_")


def _is_nested(op: Any) -> bool:
    return bool(op.parent.name != "func.func")


def _escapes(value: Any) -> bool:
    """Returns whether anything but an operation with loops, outside of other loops, uses a value."""
    users = [use.owner for use in value.uses]
    return any(not user.operation.name.startswith("linalg.") or _is_nested(user.operation) for user in users)


def _combiner(op: Any) -> str:
    """Returns the operation that adds an element to the result, such as `arith.addf`; "" if there is no single one."""
    block = op.regions[0].blocks[0]
    last, accumulated = list(block.operations)[-1], block.arguments[-1]
    users = [use.owner.operation for use in accumulated.uses]
    if len(op.results) != 1 or len(users) != 1 or last.operands[0].owner != users[0]:
        return ""
    return str(users[0].name)


def _line_of(op: Any) -> str:
    """Returns the line of an operation in the text that it was read from."""
    line = _LINE.search(str(op.location))
    return f"line {line[1]}" if line else "a line that a pass wrote"


def _linalg_ops(ir: Any, module: Any) -> list[Any]:
    """Returns the operations with loops, in program order."""
    ops: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name.startswith("linalg.") and op.name not in ("linalg.yield", "linalg.index"):
            ops.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    return ops


def _describe_op(op: Any, kind: str, where: str) -> LinalgOp:
    """Returns the loops and maps of an operation."""
    if op.name != "linalg.generic" or not len(op.results):
        raise BackendError(f"{where}: the loops of {kind} are unknown; write it as linalg.generic on tensors")
    maps = [re.findall(r"\((.*?)\)", str(indexing)) for indexing in op.attributes["indexing_maps"]]
    loops = tuple(filter(None, maps[0][0].replace(" ", "").split(",")))
    iterators = zip(loops, op.attributes["iterator_types"], strict=True)
    reductions = frozenset(loop for loop, iterator in iterators if "reduction" in str(iterator))
    indices = [results[1].replace(" ", "") for results in maps]
    names = list(map(_value_name, op.operands))
    sizes: dict[str, int | None] = {}
    for index, value in zip(indices, op.operands, strict=True):
        shape = re.findall(r"(\d+|\?)x", str(value.type).partition(",")[0])
        for part, size in zip(index.split(","), shape, strict=False):
            sizes.setdefault(part, None if size == "?" else int(size))
    reads = list(zip(names, indices, strict=True))
    if not list(op.regions[0].blocks[0].arguments[-1].uses):
        reads.pop()
    result = _value_name(op.results[0])
    inputs = [] if kind == "linalg.fill" else reads
    written, loop_sizes = (result, indices[-1]), tuple(map(sizes.get, loops))
    kinds = [op.operands[names.index(name)].type for name, _ in inputs] + [op.results[0].type]
    elements = tuple(str(getattr(one, "element_type", one)) for one in kinds)
    return LinalgOp(result, loops, reductions, tuple(inputs), written, loop_sizes, kind, elements)


def verify(script: TransformScript) -> None:
    """Raise an error if the script is invalid or uses a consumed handle; nothing is run."""
    with _context() as ir:
        _parse_script(ir, script)


def _parse_script(ir: Any, script: TransformScript) -> Any:
    """Returns the script as a verified module."""
    passes = _import_torch_mlir()[1]
    for step in script.steps:
        # The compiler accepts negative sizes of a forall, as a loop that never runs.
        if any("-" in sizes for sizes in _SIZES.findall("".join(step.lines))):
            raise ScheduleError(f"{step}: sizes are integers from 0 on")
    try:
        module = ir.Module.parse(str(script))
        module.operation.verify()
        passes.parse("builtin.module(transform-dialect-check-uses)").run(module.operation)
    except ir.MLIRError as error:
        line = _LINE.search(str(error))
        step_at_line = script.step_at(int(line[1])) if line else None
        raise ScheduleError(f"{step_at_line or 'the script'}: {_short_message(error)}") from error
    return module


def apply_script(payload: str, script: TransformScript) -> str:
    """Returns the payload after all steps; the error names a step that fails."""
    with _context() as ir:
        return str(_apply_script(ir, payload, script))


def _apply_script(ir: Any, payload: str, script: TransformScript) -> Any:
    module, message = _run_script(ir, payload, _parse_script(ir, script))
    # Write races are visible on tensors only, so check the payload just before bufferization.
    last = next((step.number for step in script.steps if "one_shot_bufferize" in "".join(step.lines)), 1) - 1
    if not message and last:
        message = _run_script(ir, payload, ir.Module.parse(script.prefix(last)))[1]
    if message:
        raise ScheduleError(_find_failing_step(ir, payload, script, message))
    return module


def _run_script(ir: Any, payload: str, script: Any) -> tuple[Any, str]:
    """Returns the payload after a script, and an error message or ""."""
    interpreter, module = _import_torch_mlir()[3], _parse_payload(ir, payload)
    options = interpreter.TransformOptions()
    options.expensive_checks = True
    main = next(op for op in script.body.operations if _symbol_name(op) == "__transform_main")
    try:
        interpreter.apply_named_sequence(module.operation, main, script.operation, options)
        module.operation.verify()
    except (ir.MLIRError, ValueError) as error:
        return module, _short_message(error)
    return module, find_write_race(module)


def _symbol_name(op: Any) -> str:
    attributes = op.operation.attributes
    return str(attributes["sym_name"].value) if "sym_name" in attributes else ""


def _find_failing_step(ir: Any, payload: str, script: TransformScript, message: str) -> str:
    """Returns the first step that fails, with the reason."""
    for step in script.steps:
        prefix = ir.Module.parse(script.prefix(step.number))
        if reason := _run_script(ir, payload, prefix)[1]:
            return f"{step}: {reason}"
    return f"the schedule as a whole: {message}"


def apply_steps(payload: str, script: TransformScript) -> Iterator[tuple[str, str]]:
    """Yields the payload before the first step and after each one, with the step's name; raises if a step fails."""
    with _context() as ir:
        yield "payload", str(_parse_payload(ir, payload))
        _parse_script(ir, script)
        for step in script.steps:
            module, message = _run_script(ir, payload, ir.Module.parse(script.prefix(step.number)))
            if message:
                raise ScheduleError(f"{step}: {message}")
            yield str(step), str(module)


def find_write_race(module: Any) -> str:
    """Returns a message if parallel iterations write to the same place, else ""."""
    messages: list[str] = []

    def check(op: Any) -> Any:
        if op.name == "scf.forall":
            messages.extend(_overlapping_writes(op))
        return _import_torch_mlir()[0].WalkResult.ADVANCE

    module.operation.walk(check)
    return messages[0] if messages else ""


def _overlapping_writes(loop: Any) -> Iterator[str]:
    """Yields a message for each write of a forall that does not depend on all of its induction variables."""
    block = loop.regions[0].blocks[0]
    inner = list(block.operations)
    for write in inner[-1].regions[0].blocks[0].operations if inner[-1].regions else ():
        reached: set[str] = set()
        todo = list(write.operands)[2:]  # after source and destination come the offsets
        while todo:
            value = todo.pop()
            if value.get_name() in reached:
                continue
            reached.add(value.get_name())
            if hasattr(value.owner, "operands"):
                todo += list(value.owner.operands)
        count = len(block.arguments) - len(loop.results)
        if any(block.arguments[i].get_name() not in reached for i in range(count)):
            yield "parallel iterations write to the same place: a forall cannot be a reduction loop"


def compile_object(payload: str, script: TransformScript, path: Path, *, threads: int = 1, openmp: str = "") -> None:
    """Write object code for this processor to `path`; its function is `_mlir_ciface_` plus the entry point's name."""
    _, passes, engine, _ = _import_torch_mlir()
    with _context() as ir:
        module = _apply_script(ir, payload, script)
        if threads > 1 and not re.search(r"scf\.(forall|parallel)", str(module)):
            raise ScheduleError(
                f"no loop is shared by the {threads} threads, so the kernel would run on one; make the plan with "
                f"threads={threads}, tile with forall in a schedule of your own, or leave out threads"
            )
        try:
            if POLYNOMIAL in script.options:
                expand_exponentials(ir, module)
            if any(f'"{PREFETCH}"' in line for step in script.steps for line in step.lines):
                passes.parse(f"builtin.module({ACCESSES})").run(module.operation)
                insert_prefetches(ir, module)
            to_buffers, to_machine = lowering_passes(payload, script.options, threads)
            passes.parse(to_buffers).run(module.operation)
            if DOT_INSTRUCTIONS in script.options:
                insert_dot_blocks(ir, module)
                passes.parse(f"builtin.module({INLINE})").run(module.operation)
            passes.parse(to_machine).run(module.operation)
            built = engine(module, 3, [openmp] if openmp else [], True, True)
            built.lookup(entry_point(payload))  # compiles what is dumped
        except (ir.MLIRError, RuntimeError) as error:
            last = script.steps[-1] if script.steps else "the payload"
            raise ScheduleError(f"lowering to machine code after {last}: {_short_message(error)}") from error
        built.dump_to_object_file(str(path))


def entry_point(payload: str) -> str:
    """Returns the name of the payload's function with a C interface."""
    for function in re.finditer(r"func\.func\s+(?:public\s+)?@([\w$.]+)", payload):
        rest = payload[function.end() :]
        if "llvm.emit_c_interface" in rest.partition("\n")[0]:
            return function[1]
    raise BackendError("the payload has no entry point; give a function the attribute llvm.emit_c_interface")


def _short_message(error: Exception | str) -> str:
    """Returns a compiler message without source locations and repeated headings."""
    text = str(error)
    for cut in ("\n note:", "\nat loc", "note: "):
        text = text.partition(cut)[0]
    text = re.sub(r'(at )?loc\("-":\d+:\d+\):?|"-":\d+:\d+:', "", text)
    for lead in ("Failed to apply named transform sequence.", "Diagnostic message", "Unable to parse module assembly:"):
        text = text.replace(lead, "")
    return " ".join(text.split()).removeprefix("error: ")[:300] or "it does not apply here"
