"""Captured graphs written to a folder as data, and read by another process: names of functions and tensors, no code."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from tunewright.errors import BackendError
from tunewright.stores import serialization
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.diagnostics.numerics import clone_tensors
from tunewright.torch.inductor import graphs
from tunewright.torch.inductor.function_names import find_function, name_of

GRAPH, TENSORS = "graph.json", "tensors.pt"
_PLAIN = (bool, int, float, str, type(None))
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "size": torch.Size}


class SavedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node: what it does, to what, and of an input whether it is a weight and which of its sizes may change."""

    op: str
    name: str
    target: str
    args: Any = None
    kwargs: Any = None
    path: str = ""
    weight: bool = False
    symbolic: tuple[int, ...] = ()


class SavedGraph(msgspec.Struct, frozen=True):
    """The nodes of a graph, with the graphs that are nested in it by name."""

    nodes: tuple[SavedNode, ...]
    nested: dict[str, SavedGraph] = {}


class GraphSnapshot:
    """A captured graph with its inputs as they are now, to be written later, when no call waits for it.

    Raises BackendError if something in it cannot be written as data.
    """

    def __init__(self, captured: CapturedGraph) -> None:
        self._tensors: dict[str, Any] = {}
        self._graph = self._describe(captured.graph, "", captured)
        weights = frozenset(captured.weights)
        inputs = captured.values
        self._inputs = [value if i in weights else clone_tensors([value])[0] for i, value in enumerate(inputs)]
        if odd := [value for value in self._inputs if not isinstance(value, (torch.Tensor, *_PLAIN))]:
            raise BackendError(f"an input of it is a {type(odd[0]).__name__}")

    def write(self, folder: Path) -> None:
        """Writes the graph and its tensors to a folder."""
        (folder / GRAPH).write_bytes(serialization.encode(self._graph))
        torch.save({"inputs": self._inputs, "attributes": self._tensors}, folder / TENSORS)

    def _describe(self, module: Any, prefix: str, captured: CapturedGraph | None = None) -> SavedGraph:
        nested: dict[str, SavedGraph] = {}
        nodes = []
        for node in module.graph.nodes:
            if node.op == "call_module":
                raise BackendError(f"it calls the module {node.target}")
            if node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                if isinstance(value, torch.fx.GraphModule):
                    nested[node.target] = self._describe(value, f"{prefix}{node.target}.")
                elif isinstance(value, torch.Tensor):
                    self._tensors[f"{prefix}{node.target}"] = value
                else:
                    raise BackendError(f"its attribute {node.target} is a {type(value).__name__}")
            nodes.append(_describe_node(node))
        if captured is not None:
            inputs = iter(range(len(captured.inputs)))
            nodes = [_with_input(node, next(inputs), captured) if node.op == "placeholder" else node for node in nodes]
        return SavedGraph(tuple(nodes), nested)


def _with_input(node: SavedNode, number: int, captured: CapturedGraph) -> SavedNode:
    known = graphs.symbolic_sizes(captured.placeholders[number])
    symbolic = tuple(i for i, size in enumerate(known[0]) if graphs.is_symbolic(size)) if known else ()
    return msgspec.structs.replace(node, weight=number in captured.weights, symbolic=symbolic)


def _describe_node(node: Any) -> SavedNode:
    target = name_of(node.target) if node.op == "call_function" else str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(path) for path, _ in reversed(list(stack.values()))), "")
    args, kwargs = (None, None) if node.op in ("placeholder", "get_attr") else (node.args, node.kwargs)
    return SavedNode(node.op, node.name, target, _to_data(args), _to_data(kwargs), path)


def _to_data(value: Any) -> Any:
    """Returns an argument of a node as JSON: plain values as they are, all others as an object with their kind."""
    if type(value) in _PLAIN and not (isinstance(value, float) and not math.isfinite(value)):
        return value
    for kinds, name, write in _WRITERS:
        if isinstance(value, kinds) and not hasattr(value, "_fields"):
            return {name: write(value)}
    if callable(value):
        return {"function": name_of(value)}
    raise BackendError(f"an argument in it is a {type(value).__name__}")


def _items_to_data(values: Iterable[Any]) -> list[Any]:
    return [_to_data(value) for value in values]


_WRITERS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (torch.fx.Node, "node", lambda value: value.name),
    (float, "float", str),
    ((torch.dtype, torch.layout, torch.memory_format), "torch", lambda value: str(value).removeprefix("torch.")),
    (torch.device, "device", str),
    (slice, "slice", lambda value: _items_to_data((value.start, value.stop, value.step))),
    (type(Ellipsis), "ellipsis", lambda _: True),
    (Mapping, "dict", lambda value: [_items_to_data(item) for item in value.items()]),
    (torch.Size, "size", _items_to_data),
    (list, "list", _items_to_data),
    (tuple, "tuple", _items_to_data),
)
"""Types of arguments, most special first, with the name of their kind and how they are written."""


def _from_data(data: Any, nodes: Mapping[str, Any]) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind in _SEQUENCES:
        return _SEQUENCES[kind]([_from_data(one, nodes) for one in content])
    readers: dict[str, Callable[[], Any]] = {
        "node": lambda: nodes[content],
        "float": lambda: float(content),
        "torch": lambda: getattr(torch, content),
        "device": lambda: torch.device(content),
        "slice": lambda: slice(*(_from_data(part, nodes) for part in content)),
        "ellipsis": lambda: Ellipsis,
        "dict": lambda: {_from_data(key, nodes): _from_data(one, nodes) for key, one in content},
        "function": lambda: find_function(content),
    }
    return readers[kind]()


class LoadedGraph:
    """A graph and its inputs, read from a folder; `dynamic` inputs are those with sizes that may change."""

    def __init__(self, folder: Path) -> None:
        saved = serialization.decode((folder / GRAPH).read_bytes(), SavedGraph)
        tensors = torch.load(folder / TENSORS, weights_only=True)
        self.module = _build_module(saved, tensors["attributes"], "")
        self.inputs: Sequence[Any] = tensors["inputs"]
        self._nodes = [node for node in saved.nodes if node.op == "placeholder"]

    @property
    def symbolic(self) -> dict[int, tuple[int, ...]]:
        """The sizes that may change of each tensor that has such, by the number of the input."""
        return {i: node.symbolic for i, node in enumerate(self._nodes) if node.symbolic}

    @property
    def weights(self) -> list[int]:
        """The numbers of the inputs that are weights."""
        return [i for i, node in enumerate(self._nodes) if node.weight]


def _build_module(saved: SavedGraph, tensors: Mapping[str, Any], prefix: str) -> Any:
    root, graph = torch.nn.Module(), torch.fx.Graph()
    for name, nested in saved.nested.items():
        root.add_module(name, _build_module(nested, tensors, f"{prefix}{name}."))
    nodes: dict[str, Any] = {}
    for node in saved.nodes:
        if node.op == "get_attr" and node.target not in saved.nested:
            _set_tensor(root, node.target, tensors[f"{prefix}{node.target}"])
        target = find_function(node.target) if node.op == "call_function" else node.target
        args, kwargs = (_from_data(data, nodes) for data in (node.args, node.kwargs))
        made = graph.create_node(node.op, target, args or (), kwargs or {}, name=node.name)
        if node.path:
            made.meta["nn_module_stack"] = {node.path: (node.path, "")}
        if node.weight:
            graphs.mark_as_weight(made)
        nodes[node.name] = made
    return torch.fx.GraphModule(root, graph)


def _set_tensor(root: Any, path: str, tensor: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, torch.nn.Module())
        root = getattr(root, parent)
    if isinstance(tensor, torch.nn.Parameter):
        root.register_parameter(name, tensor)
    else:
        root.register_buffer(name, tensor)
