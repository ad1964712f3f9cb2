"""Compile tracing: follows one model from Python to machine code, and times the kernels that come out of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from tunewright.backends import host
from tunewright.errors import BackendError
from tunewright.report import formatting
from tunewright.report.roofline import Roofline
from tunewright.torch import compiler_output, roofline
from tunewright.torch.calls import Call, make_call, split_keywords
from tunewright.torch.diagnostics.subject import Subject, is_in_torch, suppress_output
from tunewright.torch.inductor import adapter, releases, tracing
from tunewright.torch.inductor.tracing import CompileTrace, KernelTiming, ScheduledNode
from tunewright.torch.report.compile_report import (
    VIEWS,
    AutotuneResult,
    CompileReport,
    GraphOperation,
    KernelReport,
    PassChange,
)  # fmt: skip
from tunewright.torch.report.diagnosis import CodeLocation

CAPTURED, LOWERED, FINAL = "dynamo_output_graph", "before_post_grad_graph", "inductor_post_grad_graph"
CODE, ORIGINS = "inductor_output_code", "inductor_provenance_tracking_node_mappings"
TIMED_CALLS = 25
"""Calls in which each kernel is timed."""


@dataclass(frozen=True)
class TracedGraph:
    """The largest graph of a model: the compiler's output by name, what was traced, kernel times and roofline."""

    output: Mapping[str, str]
    trace: CompileTrace
    timings: Mapping[str, KernelTiming]
    limits: Roofline

    @property
    def final(self) -> list[GraphOperation]:
        """The operations after all passes."""
        return compiler_output.operations(self.output[FINAL])

    @property
    def origins(self) -> Mapping[str, Any]:
        """Inductor's mappings between operations and kernels."""
        mappings: Mapping[str, Any] = json.loads(self.output.get(ORIGINS) or "{}")
        return mappings

    @property
    def kernel_operations(self) -> Mapping[str, Sequence[str]]:
        """The operations that each kernel is said to come from."""
        mapping: Mapping[str, Sequence[str]] = self.origins.get("cppCodeToPost", {})
        return mapping

    def scheduled(self) -> int | None:
        """Returns the index in the trace of the graph with these operations; None if nothing was scheduled."""
        names = {operation.name for operation in self.final}
        common = [len(names & {name for node in nodes for name in node.origins}) for nodes in self.trace.fused]
        return common.index(max(common)) if common else None


def compile_report(model: Any, *arguments: Any, **keywords: Any) -> CompileReport:
    """Returns how `model` gets from Python to machine code when it is compiled and called with these arguments.

    Keywords of `torch.compile`, such as `dynamic`, go there. Of several graphs the largest is reported. Drops the code
    that this process has compiled so far.
    """
    releases.require_supported()
    inner, known = adapter.unwrap_compiled(model)
    own, options = split_keywords(keywords)
    call = make_call(arguments, own)
    subject = Subject(inner, (call,), {**known, **options})
    torch.compiler.reset()
    training, dtype = bool(getattr(inner, "training", False)), _float_dtype(subject)
    with torch.set_grad_enabled(torch.is_grad_enabled() and training), tracing.trace_compilation() as trace:
        with suppress_output(), adapter.capture_records(everything=True) as records:
            compiled = subject.compiled()
            call.run(compiled)
        output, limits = _largest_graph(records), roofline.measure_roofline(dtype)
        with suppress_output(), tracing.time_kernels(output[CODE]) as timings:
            for _ in range(TIMED_CALLS):
                call.run(compiled)
        with suppress_output():
            times = _interleaved_times({"eager": inner, "compiled": compiled}, call)
    graphs = sum(record.name == CODE for record in records)
    traced = TracedGraph(output, trace, timings, limits.best_of(roofline.measure_roofline(dtype)))
    return _report(subject.name, traced, times, graphs)


def _interleaved_times(launches: Mapping[str, Callable[..., Any]], call: Call) -> dict[str, float]:
    """Returns the median time of a call of each, timed as kernels are: one call at a time, in turns."""
    times: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(TIMED_CALLS):
        for name, launch in launches.items():
            began = perf_counter()
            call.run(launch)
            times[name].append(perf_counter() - began)
    return {name: median(samples) for name, samples in times.items()}


def _largest_graph(records: Sequence[adapter.Record]) -> dict[str, str]:
    """Returns the compiler's output for the graph with most code, by name."""
    frames: dict[str, dict[str, str]] = {}
    for record in records:
        if record.name in (CAPTURED, LOWERED, FINAL, CODE, ORIGINS):
            frames.setdefault(record.frame, {})[record.name] = record.text
    complete = [output for output in frames.values() if CODE in output and FINAL in output]
    if not complete:
        raise BackendError(
            "Inductor compiled nothing of this model: give it to torch.compile with the backend inductor, without "
            "cpp_wrapper, and let `tunewright torch doctor` say what breaks its graph"
        )
    return max(complete, key=lambda output: len(output[CODE]))


def _report(name: str, traced: TracedGraph, times: dict[str, float], graphs: int) -> CompileReport:
    captured, lowered = (compiler_output.operations(traced.output.get(key, "")) for key in (CAPTURED, LOWERED))
    names = {operation.name for operation in captured}
    lowered_from = traced.origins.get("postToPre", {})
    changes = [_pass_change(graph_pass) for graph_pass in traced.trace.passes]
    scheduled = traced.scheduled()
    results = {name: size for timing in traced.timings.values() for name, size in timing.sizes.items()}
    notes = [] if graphs == 1 else [f"the model became {graphs} graphs; this is the largest"]
    notes += [] if traced.timings else ["kernels were not timed one by one: their calls are not in Python"]
    return CompileReport(
        name=name,
        source=tuple(_source_lines(captured)),
        captured=tuple(captured),
        lowered=tuple(lowered),
        final=tuple(traced.final),
        origins={post: tuple(name for name in pre if name in names) for post, pre in lowered_from.items()},
        changes=tuple(change for change in changes if change.gone or change.new),
        idle=tuple(dict.fromkeys(change.name for change in changes if not change.gone and not change.new)),
        loops=len(traced.trace.loops[scheduled]) if scheduled is not None else 0,
        kernels=tuple(_kernels(traced)),
        contests=tuple(
            AutotuneResult(
                f"{record.operation} {' '.join(record.sizes)}",
                tuple(sorted(record.seconds.items(), key=lambda row: row[1])),
            )
            for record in traced.trace.autotuned
        ),
        buffers=tuple(compiler_output.buffers(traced.output[CODE], results)),
        roof=traced.limits,
        times=times,
        setting=", ".join(
            (host.cpu().model, formatting.counted(torch.get_num_threads(), "thread"), f"torch {torch.__version__}")
        ),
        notes=tuple(notes),
    )


def _pass_change(graph_pass: tracing.GraphPass) -> PassChange:
    before, after = graph_pass.before, graph_pass.after
    gone = Counter(_short(call) for name, call in before.items() if after.get(name) != call)
    new = Counter(_short(call) for name, call in after.items() if before.get(name) != call)
    lines = (tuple(f"{count} x {call}" for call, count in calls.items()) for calls in (gone, new))
    return PassChange(graph_pass.name, len(before), len(after), *lines)


def _short(call: str) -> str:
    return call.removeprefix("aten.").removesuffix(".default").removesuffix(".Tensor")


def _kernels(traced: TracedGraph) -> Iterator[KernelReport]:
    """Yields the kernels in the order of their calls, each with its time and its limit."""
    code = traced.output[CODE]
    bodies, shapes = compiler_output.kernels(code), compiler_output.shapes(traced.output[FINAL])
    final, lowered_from = {operation.name: operation for operation in traced.final}, traced.origins.get("postToPre", {})
    captured = {one.name: one.call for one in compiler_output.operations(traced.output.get(CAPTURED, ""))}
    owned, loop_counts = _owned_operations(traced, bodies), _loop_counts(traced)
    for handle, line in compiler_output.steps(code):
        name = handle.rpartition(":")[0]
        operations, timing = owned.get(handle, ()), traced.timings.get(handle, KernelTiming())
        moved = sum(timing.sizes.values()) + sum(
            size for buffer, size in timing.sizes.items() if _is_updated_in_place(bodies.get(name, ""), line, buffer)
        )
        work = roofline.flops([final[operation] for operation in operations], shapes)
        least, bound = traced.limits.least_seconds(moved, work)
        yield KernelReport(
            name=name.removeprefix("extern_kernels."),
            operations=operations,
            label=_kernel_label(operations, lowered_from, captured) if name in bodies else _library_label(name),
            loops=loop_counts.get(handle, 1),
            code=bodies.get(name, ""),
            call=line,
            seconds=median(timing.times) if timing.times else 0.0,
            best=min(timing.times, default=0.0),
            moved=moved,
            flops=work,
            least=least,
            bound=bound,
        )


def _owned_operations(traced: TracedGraph, bodies: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the operations that each kernel computes, of those it is said to come from.

    A library call computes the last operation of its name; anything else belongs to the first kernel that names it.
    """
    candidates = {
        handle: [operation for operation in traced.final if operation.name in names and operation.call not in VIEWS]
        for handle, names in traced.kernel_operations.items()
    }
    owned: dict[str, tuple[str, ...]] = {}
    for handle, operations in candidates.items():
        if (kernel := handle.rpartition(":")[0]) not in bodies:
            same = [operation.name for operation in operations if operation.call in kernel.split(".")]
            owned[handle] = tuple(same[-1:] or (operation.name for operation in operations))
    assigned = {name for names in owned.values() for name in names}
    for handle, operations in candidates.items():
        if handle not in owned:
            owned[handle] = tuple(operation.name for operation in operations if operation.name not in assigned)
            assigned |= set(owned[handle])
    return owned


def _kernel_label(operations: Sequence[str], origins: Mapping[str, Sequence[str]], captured: Mapping[str, str]) -> str:
    """Returns what a generated kernel does, by the captured operations it computes: `add, layer norm`."""
    calls = [captured[name] for operation in operations for name in origins.get(operation, ()) if name in captured]
    return ", ".join(dict.fromkeys(calls)).replace("_", " ") or "copy, in another order"


def _library_label(name: str) -> str:
    """Returns what a library call does."""
    inner = name.removesuffix(".default").rpartition(".")[2]
    known = {"mm": "matrix product", "linear": "matrix product, packed", "scaled_dot_product": "attention"}
    return next((label for part, label in known.items() if part in inner), inner.strip("_").replace("_", " "))


def _loop_counts(traced: TracedGraph) -> Counter[str]:
    """Returns how many loop nests each kernel is fused from: those of the nodes whose operations fit it best."""
    counts: Counter[str] = Counter()
    scheduled = traced.scheduled()
    nodes: Sequence[ScheduledNode] = traced.trace.fused[scheduled] if scheduled is not None else ()
    kernels = {handle: set(names) for handle, names in traced.kernel_operations.items()}
    for node in nodes:
        if node.library:
            continue
        overlap = {handle: len(node.origins & names) / len(node.origins | names) for handle, names in kernels.items()}
        if any(overlap.values()):
            counts[max(overlap, key=lambda handle: overlap[handle])] += len(node.names)
    return counts


def _is_updated_in_place(body: str, line: str, buffer: str) -> bool:
    """Whether a kernel reads and writes a buffer, so that its bytes move twice."""
    parameters = body.partition("{")[0].split(",")
    arguments = line.partition("(")[2].rpartition(")")[0].split(", ")
    if len(parameters) != len(arguments):
        return False
    pairs = zip(parameters, arguments, strict=True)
    return any("in_out_ptr" in parameter and buffer == argument for parameter, argument in pairs)


def _source_lines(captured: Sequence[GraphOperation]) -> Iterator[tuple[CodeLocation, str]]:
    """Yields the lines of Python that the captured operations come from, from the first to the last of each file."""
    spans: dict[str, list[int]] = {}
    for operation in captured:
        if operation.place.file and not is_in_torch(operation.place):
            spans.setdefault(operation.place.file, []).append(operation.place.line)
    for file, numbers in spans.items():
        try:
            text = Path(file).read_text().splitlines()
        except (OSError, ValueError):
            continue
        first = max(0, min(numbers) - 3)
        lines = enumerate(text[first : max(numbers)], first + 1)
        yield from ((CodeLocation(file, number), line) for number, line in lines)


def _float_dtype(subject: Subject) -> torch.dtype:
    """Returns the dtype that the model computes with, by its first floating-point argument, else its weights."""
    weights = subject.fn.parameters() if isinstance(subject.fn, torch.nn.Module) else ()
    dtypes = (tensor.dtype for tensor in (*subject.calls[0].tensors(), *weights) if tensor.dtype.is_floating_point)
    return next(dtypes, torch.float32)
