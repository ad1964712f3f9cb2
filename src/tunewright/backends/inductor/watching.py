"""Watching: what Inductor does to one model on its way to machine code, and what each kernel then takes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import torch

from tunewright.backends.inductor.adapter import hook

HANDLE = "# [Provenance debug handles] "
"""What stands in the code that calls kernels before each of them, with its name and number."""

_OBSERVER = "torch.fx.passes.graph_transform_observer.GraphTransformObserver"
_SAVER = "torch._inductor.select_algorithm.get_algorithm_selector_cache"


class Passed(NamedTuple):
    """A pass over a graph: its name, and the operations before and after it, by name."""

    name: str
    before: Mapping[str, str]
    after: Mapping[str, str]


class Loop(NamedTuple):
    """A loop nest or a call of a library, as the scheduler holds it: the operations of the graph that it comes from."""

    names: tuple[str, ...]
    origins: frozenset[str]
    library: bool = False


class Raced(NamedTuple):
    """A choice among implementations that Inductor timed: of which operation, and the seconds of each by name."""

    operation: str
    sizes: tuple[str, ...]
    seconds: Mapping[str, float]


@dataclass
class Seen:
    """What was seen while graphs were compiled, one list entry for each graph where there are several."""

    passes: list[Passed] = field(default_factory=list)
    loops: list[list[Loop]] = field(default_factory=list)
    fused: list[list[Loop]] = field(default_factory=list)
    races: list[Raced] = field(default_factory=list)


@contextmanager
def watched() -> Iterator[Seen]:
    """What is compiled while this is open is watched, and compiled anew: what comes from a cache shows nothing."""
    seen = Seen()
    settings = {
        "_pre_fusion_custom_pass": lambda nodes: _noted(seen.loops, nodes),
        "_post_fusion_custom_pass": lambda nodes: _noted(seen.fused, nodes),
        "trace.provenance_tracking_level": 1,
        "fx_graph_cache": False,
    }
    with ExitStack() as opened:
        opened.enter_context(hook("torch._inductor.utils.fresh_cache")())
        opened.enter_context(hook("torch._inductor.config.patch")(settings))
        opened.enter_context(_observed(seen))
        opened.enter_context(_saved(seen))
        yield seen


def _noted(into: list[list[Loop]], nodes: Sequence[Any]) -> Sequence[Any]:
    into.append(
        [
            Loop(
                tuple(part.get_name() for part in node.get_nodes()),
                frozenset(
                    origin.name
                    for part in node.get_nodes()
                    if part.node is not None
                    for origin in part.node.get_origins()
                ),
                bool(node.is_extern()),
            )
            for node in nodes
        ]
    )
    return nodes


@contextmanager
def _observed(seen: Seen) -> Iterator[None]:
    """Every pass that Inductor announces, but for those inside another."""
    observer = hook(_OBSERVER)
    enter, leave, inside = observer.__enter__, observer.__exit__, []

    def entered(self: Any) -> Any:
        inside.append(_operations(self.gm.graph))
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        before = inside.pop()
        if not inside:
            seen.passes.append(Passed(self.passname, before, _operations(self.gm.graph)))
        return leave(self, *error)

    observer.__enter__, observer.__exit__ = entered, left
    try:
        yield
    finally:
        observer.__enter__, observer.__exit__ = enter, leave


def _operations(graph: Any) -> dict[str, str]:
    """The operations of a graph: names with what they call."""
    return {node.name: str(node.target) for node in graph.nodes if node.op.startswith("call")}


@contextmanager
def _saved(seen: Seen) -> Iterator[None]:
    cache = hook(_SAVER)()

    def save(timings: Mapping[Any, float], name: str, inputs: Sequence[Any], *_: Any) -> None:
        shapes = [tuple(map(str, one.get_size())) for one in inputs]
        sizes = tuple("x".join(shape) for shape in shapes if shape[1:] != ("1",))  # a packed weight has no shape
        seconds = {str(getattr(choice, "name", choice)): float(taken) / 1e3 for choice, taken in timings.items()}
        seen.races.append(Raced(name, sizes, seconds))

    cache.add_feedback_saver(save)
    try:
        yield
    finally:
        cache.feedback_saver_fns.remove(save)


@dataclass
class Step:
    """One kernel or library call as it runs: its times, and the bytes of each tensor it touches, by name."""

    times: list[float] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


@contextmanager
def stepped(code: str) -> Iterator[dict[str, Step]]:
    """While this is open, the kernels that some generated code calls are timed one by one, in their own calls."""
    module = next((one for one in hook("torch._inductor.codecache.PyCodeCache.modules") if _is(one, code)), None)
    steps: dict[str, Step] = {}
    if module is None or not hasattr(module, "Runner"):
        yield steps
        return
    caller = module.Runner.call
    before = caller.__code__
    vars(module)["_step"] = _timer(steps)
    caller.__code__ = _instrumented(code, before.co_filename)
    try:
        yield steps
    finally:
        caller.__code__ = before
        del vars(module)["_step"]


def _is(module: Any, code: str) -> bool:
    try:
        with open(module.__file__) as file:
            return file.read() == code
    except (OSError, TypeError):
        return False


def _timer(steps: dict[str, Step]) -> Callable[[str, dict[str, Any]], None]:
    """What is called before and after each kernel, with its handle and the variables in it."""
    began = 0.0

    def step(handle: str, held: dict[str, Any]) -> None:
        nonlocal began
        now = perf_counter()
        if handle:
            found = steps.setdefault(handle, Step())
            found.times.append(now - began)
            if not found.sizes:
                tensors = {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
                found.sizes = {
                    name: value.numel() * value.element_size()
                    for name, value in tensors.items()
                    if not ("mkl_linear" in handle and value.shape[1:] == (1,))  # packed; its own size says nothing
                }
        began = perf_counter()

    return step


def _instrumented(code: str, file: str) -> Any:
    """The code object of `Runner.call` with a note before and after each kernel."""
    tree = ast.parse(code)
    runner = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Runner")
    call = next(node for node in runner.body if isinstance(node, ast.FunctionDef) and node.name == "call")
    handles = {
        number: line.partition(HANDLE)[2].strip() for number, line in enumerate(code.splitlines(), 1) if HANDLE in line
    }
    body: list[ast.stmt] = []
    for statement in call.body:
        marks = [number for number in handles if number < statement.lineno]
        if not marks:
            body.append(statement)
            continue
        handle = [handles.pop(number) for number in marks][-1]
        names = sorted({node.id for node in ast.walk(statement) if isinstance(node, ast.Name)})
        body += [_note("", []), statement, _note(handle, names)]
    call.body = body
    module = compile(ast.fix_missing_locations(ast.Module([call], [])), file, "exec")
    return next(constant for constant in module.co_consts if hasattr(constant, "co_code"))


def _note(handle: str, names: Sequence[str]) -> ast.stmt:
    held = "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
    return ast.parse(f"_step({handle!r}, {held})").body[0]
