"""Tracing of Inductor: passes, fusion and autotuning of one model, and the time of each of its kernels."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch

from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.patching import replaced_attribute

HANDLE = "# [Provenance debug handles] "
"""Comment before each kernel call in the generated code, followed by the kernel's name and number."""

_OBSERVER = "torch.fx.passes.graph_transform_observer.GraphTransformObserver"
_SELECTOR_CACHE = "torch._inductor.select_algorithm.get_algorithm_selector_cache"


class GraphPass(NamedTuple):
    """A pass over a graph: its name, and the operations before and after it, by name."""

    name: str
    before: Mapping[str, str]
    after: Mapping[str, str]


class ScheduledNode(NamedTuple):
    """A loop nest or library call in Inductor's scheduler, with the operations of the graph it comes from."""

    names: tuple[str, ...]
    origins: frozenset[str]
    library: bool = False


class AutotuneRecord(NamedTuple):
    """Implementations of an operation that Inductor timed, with the seconds of each by name."""

    operation: str
    sizes: tuple[str, ...]
    seconds: Mapping[str, float]


@dataclass
class CompileTrace:
    """What was recorded while graphs were compiled; `loops` and `fused` have one entry for each graph."""

    passes: list[GraphPass] = field(default_factory=list)
    loops: list[list[ScheduledNode]] = field(default_factory=list)
    fused: list[list[ScheduledNode]] = field(default_factory=list)
    autotuned: list[AutotuneRecord] = field(default_factory=list)


@contextmanager
def trace_compilation() -> Iterator[CompileTrace]:
    """Records what Inductor compiles while the context is open; caches are off, since cached code shows nothing."""
    trace = CompileTrace()
    settings = {
        "_pre_fusion_custom_pass": lambda nodes: _record_nodes(trace.loops, nodes),
        "_post_fusion_custom_pass": lambda nodes: _record_nodes(trace.fused, nodes),
        "trace.provenance_tracking_level": 1,
        "fx_graph_cache": False,
    }
    with ExitStack() as contexts:
        contexts.enter_context(hook("torch._inductor.utils.fresh_cache")())
        contexts.enter_context(hook("torch._inductor.config.patch")(settings))
        contexts.enter_context(_recorded_passes(trace))
        contexts.enter_context(_recorded_autotuning(trace))
        yield trace


def _record_nodes(graphs: list[list[ScheduledNode]], nodes: Sequence[Any]) -> Sequence[Any]:
    graphs.append([_scheduled_node(node) for node in nodes])
    return nodes


def _scheduled_node(node: Any) -> ScheduledNode:
    parts = node.get_nodes()
    origins = (origin.name for part in parts if part.node is not None for origin in part.node.get_origins())
    return ScheduledNode(tuple(part.get_name() for part in parts), frozenset(origins), bool(node.is_extern()))


@contextmanager
def _recorded_passes(trace: CompileTrace) -> Iterator[None]:
    """Records every pass that Inductor announces, except those inside another."""
    observer = hook(_OBSERVER)
    enter_original, exit_original, open_passes = observer.__enter__, observer.__exit__, []

    def enter(self: Any) -> Any:
        open_passes.append(_operations(self.gm.graph))
        return enter_original(self)

    def leave(self: Any, *error: Any) -> Any:
        before = open_passes.pop()
        if not open_passes:
            trace.passes.append(GraphPass(self.passname, before, _operations(self.gm.graph)))
        return exit_original(self, *error)

    with replaced_attribute(observer, "__enter__", enter), replaced_attribute(observer, "__exit__", leave):
        yield


def _operations(graph: Any) -> dict[str, str]:
    """Returns the operations of a graph by name, with what they call."""
    return {node.name: str(node.target) for node in graph.nodes if node.op.startswith("call")}


@contextmanager
def _recorded_autotuning(trace: CompileTrace) -> Iterator[None]:
    cache = hook(_SELECTOR_CACHE)()

    def save(timings: Mapping[Any, float], name: str, inputs: Sequence[Any], *_: Any) -> None:
        shapes = [tuple(map(str, node.get_size())) for node in inputs]
        sizes = tuple("x".join(shape) for shape in shapes if shape[1:] != ("1",))  # a packed weight has no shape
        seconds = {str(getattr(choice, "name", choice)): float(time) / 1e3 for choice, time in timings.items()}
        trace.autotuned.append(AutotuneRecord(name, sizes, seconds))

    cache.add_feedback_saver(save)
    try:
        yield
    finally:
        cache.feedback_saver_fns.remove(save)


@dataclass
class KernelTiming:
    """The times of one kernel or library call, and the bytes of each tensor it touches by name."""

    times: list[float] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


@contextmanager
def time_kernels(code: str) -> Iterator[dict[str, KernelTiming]]:
    """Times each kernel call of some generated code while the context is open; yields timings by kernel handle."""
    loaded = hook("torch._inductor.codecache.PyCodeCache.modules")
    module = next((module for module in loaded if _has_code(module, code)), None)
    timings: dict[str, KernelTiming] = {}
    if module is None or not hasattr(module, "Runner"):
        yield timings
        return
    caller = module.Runner.call
    before = caller.__code__
    vars(module)["_step"] = _timer(timings)
    caller.__code__ = _instrumented(code, before.co_filename)
    try:
        yield timings
    finally:
        caller.__code__ = before
        del vars(module)["_step"]


def _has_code(module: Any, code: str) -> bool:
    try:
        with open(module.__file__) as file:
            return file.read() == code
    except (OSError, TypeError):
        return False


def _timer(timings: dict[str, KernelTiming]) -> Callable[[str, dict[str, Any]], None]:
    """Returns the function called before and after each kernel, with its handle and the variables it uses."""
    began = 0.0

    def step(handle: str, variables: dict[str, Any]) -> None:
        nonlocal began
        now = perf_counter()
        if handle:
            timing = timings.setdefault(handle, KernelTiming())
            timing.times.append(now - began)
            if not timing.sizes:
                tensors = {name: value for name, value in variables.items() if isinstance(value, torch.Tensor)}
                timing.sizes = {
                    name: value.numel() * value.element_size()
                    for name, value in tensors.items()
                    if not ("mkl_linear" in handle and value.shape[1:] == (1,))  # packed: its size says nothing
                }
        began = perf_counter()

    return step


def _instrumented(code: str, file: str) -> Any:
    """Returns the code object of `Runner.call` with a call of `_step` before and after each kernel."""
    tree = ast.parse(code)
    runner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Runner")
    call = next(node for node in runner.body if isinstance(node, ast.FunctionDef) and node.name == "call")
    handles = {
        number: line.partition(HANDLE)[2].strip() for number, line in enumerate(code.splitlines(), 1) if HANDLE in line
    }
    body: list[ast.stmt] = []
    for statement in call.body:
        passed = [number for number in handles if number < statement.lineno]
        if not passed:
            body.append(statement)
            continue
        handle = [handles.pop(number) for number in passed][-1]
        names = sorted({node.id for node in ast.walk(statement) if isinstance(node, ast.Name)})
        body += [_step_call("", []), statement, _step_call(handle, names)]
    call.body = body
    module = compile(ast.fix_missing_locations(ast.Module([call], [])), file, "exec")
    return next(constant for constant in module.co_consts if hasattr(constant, "co_code"))


def _step_call(handle: str, names: Sequence[str]) -> ast.stmt:
    variables = "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
    return ast.parse(f"_step({handle!r}, {variables})").body[0]
