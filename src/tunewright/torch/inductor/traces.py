"""Traces of Dynamo: one that has ended is entered again, and a graph from a file is traced anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tunewright.errors import BackendError
from tunewright.torch.inductor.adapter import hook


class SuspendedTrace:
    """The trace that a graph is being captured in, kept to compile the graph once more after it has ended.

    The sizes of a dynamic graph are symbols of it. Its guards are in use by then, so code that needs more is refused.
    """

    def __init__(self) -> None:
        self._context = hook("torch._guards.TracingContext").try_get()

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Enters the trace again; raises BackendError if what was compiled in it needs other sizes to be excluded."""
        if self._context is None or self._context.fake_mode is None:
            yield
            return
        sizes = self._context.fake_mode.shape_env
        before, was_frozen = _conditions(sizes), getattr(sizes, "frozen", False)
        with hook("torch._guards.tracing")(self._context):
            try:
                if was_frozen:
                    sizes.frozen = False  # else conditions would be dropped, with a warning
                yield
            finally:
                after, sizes.frozen = _conditions(sizes), was_frozen
        if after != before:
            raise BackendError("it is only right for some of the sizes that may come; it is used by new processes")


def _conditions(sizes: Any) -> tuple[int, int]:
    """Returns how many conditions there are on symbolic sizes, and how many of them are known."""
    return (len(sizes.guards), len(sizes.replacements)) if sizes is not None else (0, 0)


@contextmanager
def compiling_alone() -> Iterator[None]:
    """Holds the lock under which Dynamo compiles: settings of Inductor are those of the whole process."""
    with hook("torch._dynamo.convert_frame.compile_lock"):
        yield


def propagate_sizes(module: Any, inputs: Sequence[Any]) -> None:
    """Gives each node of a graph its example value, as Dynamo does, without computing anything."""
    with hook("torch._subclasses.fake_tensor.FakeTensorMode")(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        _SizePropagation(module).run(*fakes)


class _SizePropagation(torch.fx.Interpreter):  # type: ignore[misc]
    def run_node(self, n: Any) -> Any:
        result = super().run_node(n)
        n.meta["example_value"] = result
        return result


def trace_again(
    module: Any,
    inputs: Sequence[Any],
    backend: Callable[[Any, Sequence[Any]], Any],
    *,
    weights: Sequence[int],
    symbolic: Mapping[int, Sequence[int]],
) -> None:
    """Has Dynamo trace a graph with the same sizes symbolic, and hands what it captures to `backend`."""
    _insert_numbers(module, inputs)
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            continue
        hook("torch._dynamo.mark_static")(value, [n for n in range(value.dim()) if n not in symbolic.get(i, ())])
        if i in weights:
            hook("torch._dynamo.mark_static_address")(value)

    def call(*values: Any) -> Any:  # Dynamo skips the frame of a graph, but not one that calls it
        return module(*values)

    with torch.no_grad():
        torch.compile(call, backend=backend, dynamic=True, fullgraph=True)(*inputs)


def _insert_numbers(module: Any, inputs: Sequence[Any]) -> None:
    """Replaces what reads a number from an input by that number: Dynamo put it there, and would not trace it again."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(zip(placeholders, inputs, strict=True))
    numbers = {
        node: values[node.args[0]].item()
        for node in module.graph.nodes
        if node.op == "call_method" and node.target == "item" and node.args[0] in values
    }
    for user in module.graph.nodes:
        user.args, user.kwargs = torch.fx.node.map_arg((user.args, user.kwargs), lambda node: numbers.get(node, node))
    for node in numbers:
        module.graph.erase_node(node)
    module.recompile()
