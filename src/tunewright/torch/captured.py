"""Captured graphs: a graph from Dynamo with its inputs, what it computes, and its frozen form."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from tunewright.backends.host import digest
from tunewright.torch.diagnostics.numerics import clone_tensors, in_double_precision, tensors_in, to_double
from tunewright.torch.inductor import graphs
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.oracle import REFUSALS, ExpectedTensors
from tunewright.torch.reduced_precision import MAX_ERROR, can_reduce, reduce_products
from tunewright.torch.tensor_sets import CallArguments, can_be_copied, version_of

NEEDS_GRADIENTS = "it needs gradients"


class _Run(NamedTuple):
    """What a graph did when it ran: its results, the numbers of the inputs written to, whether it drew at random, and
    whether it wrote to tensors of its own.
    """

    results: list[Any]
    written: frozenset[int]
    drew: bool
    changed: bool


class CapturedGraph:
    """A graph and its inputs in the current call, weights included; `numerics` are the reduced precisions allowed."""

    training = False

    def __init__(self, graph: Any, inputs: Sequence[Any], numerics: Sequence[str] = ()) -> None:
        self.graph, self.inputs, self.numerics = graph, tuple(inputs), tuple(numerics)
        self.values = tuple(graphs.hint(value) for value in inputs)

    @property
    def placeholders(self) -> list[Any]:
        """The nodes that stand for inputs."""
        return [node for node in self.graph.graph.nodes if node.op == "placeholder"]

    @cached_property
    def why_untunable(self) -> str:
        """Why PyTorch's own way is kept; empty if the graph can be tuned."""
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        if reason := self._gradient_problem():
            return reason
        if any(tensor.device.type != "cpu" for tensor in tensors):
            return "it is not on a CPU"
        if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
            return "it has subclasses of tensors"
        try:
            first = self._run(seed=1)
            second = self._run(seed=2) if first.drew or self._may_vary else first
        except REFUSALS as error:
            return f"it cannot be run by itself: {type(error).__name__}"
        if first.changed or second.changed:
            return "it changes tensors of its own"
        same = len(first.results) == len(second.results) and all(map(torch.equal, first.results, second.results))
        if not same:
            return "its results are random, or not numbers"
        self.written = first.written
        return "" if all(can_be_copied(self.values[i]) for i in self.written) else "it writes to what cannot be copied"

    def _gradient_problem(self) -> str:
        """Returns why gradients keep the graph from being tuned; empty if they do not."""
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        learned = any(tensor.requires_grad for tensor in (*tensors, *self.graph.parameters()))
        return NEEDS_GRADIENTS if torch.is_grad_enabled() and learned else ""

    @cached_property
    def written(self) -> frozenset[int]:
        """The numbers of the inputs that the graph writes to."""
        return self._run(seed=1).written

    @property
    def _may_vary(self) -> bool:
        """Whether results may differ although no random numbers are drawn: from memory that nobody has written."""
        names = [node.target for node in self.graph.graph.nodes if node.op == "call_method"]
        return self.training or bool(self.foreign) or any("empty" in name for name in (*self.called, *names))

    def _run(self, seed: int) -> _Run:
        """Runs the graph on copies of its inputs."""
        values, own = clone_tensors(self.values), self._own_tensors()
        before, own_before = ([version_of(value) for value in some] for some in (values, own))
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            results = tensors_in(self.launch(self.graph)(*values))
            drew = not torch.equal(state, torch.get_rng_state())
        written = frozenset(i for i, value in enumerate(values) if version_of(value) != before[i])
        return _Run(results, written, drew, own_before != [version_of(value) for value in own])

    def _own_tensors(self) -> list[Any]:
        """Returns the tensors that are no inputs: constants, and the weights and buffers of modules that are called."""
        read = [node.target for node in self.graph.graph.nodes if node.op == "get_attr"]
        held = [attrgetter(name)(self.graph) for name in dict.fromkeys(read)]
        return [*held, *self.graph.parameters(), *self.graph.buffers()]

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """The numbers of the inputs that are weights and not written to."""
        inputs = zip(self.placeholders, self.values, strict=True)
        static = [i for i, (node, value) in enumerate(inputs) if graphs.is_static(node, value)]
        return tuple(i for i in static if i not in self.written)

    @cached_property
    def gemms(self) -> int:
        """The number of matrix products."""
        names = [str(getattr(node.target, "__name__", node.target)) for node in self.graph.graph.nodes]
        return sum(name.rpartition(".")[2] in _GEMMS for name in names)

    @cached_property
    def source(self) -> str:
        """A digest of what is computed, without names that depend on the model, and without weights."""
        number = {node: f"%{i}" for i, node in enumerate(self.graph.graph.nodes)}
        lines = []
        for node in self.graph.graph.nodes:
            named = node.op in ("placeholder", "get_attr")
            target = "" if named else getattr(node.target, "__qualname__", None) or str(node.target)
            attribute = self._describe_attribute(node.target) if node.op == "get_attr" else ""
            arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda node: _NodeName(number[node]))
            lines.append(f"{node.op} {target} {attribute} {'' if named else arguments}")
        static = [f"{i} {describe_argument(self.values[i])}" for i in self.weights]
        return digest(*lines, *static)

    def _describe_attribute(self, path: str) -> str:
        value: Any = self.graph
        for name in path.split("."):
            value = getattr(value, name)
        return describe_argument(value)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The inputs that are not weights, as text; a size that may change is a symbol, whatever this call has."""
        return self._described[0]

    @property
    def sizes(self) -> str:
        """`static`, or the range of each symbol: `dynamic n0=2..int_oo`."""
        return self._described[1]

    @cached_property
    def _described(self) -> tuple[tuple[str, ...], str]:
        symbols = SymbolNames()
        placeholders = self.placeholders
        free = [i for i in range(len(self.inputs)) if i not in self.weights]
        texts = tuple(symbols.describe(placeholders[i], self.inputs[i]) for i in free)
        return texts, " ".join(["dynamic", *symbols.ranges]) if self.dynamic else "static"

    @property
    def dynamic(self) -> bool:
        """Whether it is compiled for sizes that may change."""
        sizes = (graphs.symbolic_sizes(node) for node in self.placeholders)
        symbolic = any(graphs.is_symbolic(size) for known in sizes if known for size in known[0])
        return symbolic or any(value is not given for value, given in zip(self.values, self.inputs, strict=True))

    @property
    def call(self) -> CallArguments:
        """The inputs as arguments of candidates."""
        return CallArguments(self.values, frozenset(self.weights), self.written)

    def expect(self, values: Sequence[Any]) -> ExpectedTensors:
        """Returns what is right for these inputs: returned and changed tensors, in double precision if possible."""
        eager = self._results(self.graph, values)
        try:
            exact = self._results(self._in_double_precision, [to_double(value) for value in values])
        except REFUSALS:
            exact = [to_double(tensor) for tensor in eager]
        expected = ExpectedTensors.of(eager, exact)
        for graph in self._in_reduced_precision:
            own = ExpectedTensors.of(self._results(graph, values), exact).allowed
            expected = expected._replace(allowed=expected.allowed.or_larger(own.limited(MAX_ERROR)))
        return expected

    def _results(self, graph: Any, values: Sequence[Any]) -> list[Any]:
        own = [clone_tensors([value])[0] if i in self.written else value for i, value in enumerate(values)]
        return [*tensors_in(self.launch(graph)(*own)), *(own[i] for i in sorted(self.written))]

    def launch(self, graph: CompiledGraph) -> CompiledGraph:
        """Returns what is timed and checked of a graph: a call."""
        return graph

    def bind(self, graph: CompiledGraph, *values: Any) -> Callable[[], Any]:
        """Returns a launch on these inputs."""
        return partial(self.launch(graph), *values)

    def finish(self, compiled: CompiledGraph) -> CompiledGraph:
        """Returns a compiled graph of which all is compiled."""
        return compiled

    def find_problem(self, compiled: CompiledGraph, values: Sequence[Any]) -> str | None:
        """Returns what is wrong with a compiled graph on these inputs, none of which are written to; None if right."""
        expected = self.expect(values)
        return expected.find_problem(self._results(compiled, values), expected.allowed)

    def find_difference(self, compiled: CompiledGraph) -> str | None:
        """Returns how results on the current inputs differ from eager ones by far more than rounding; None if not."""
        eager = self._results(self.graph, self.values)
        dtypes = {tensor.dtype for tensor in eager} | ({torch.bfloat16} if self.numerics else set())
        eps = [float(torch.finfo(dtype).eps) for dtype in dtypes if dtype.is_floating_point]
        expected = ExpectedTensors.within(eager, max(eps, default=0.0) ** 0.5)
        return expected.find_problem(self._results(compiled, self.values), expected.allowed)

    @cached_property
    def reducible(self) -> bool:
        """Whether it has products whose precision may be reduced."""
        return bool(self.numerics) and can_reduce(self.frozen().module)

    @property
    def returns_inputs(self) -> bool:
        """Whether a result lies in the memory of an input."""
        values = clone_tensors(self.values)
        own = {_storage(value) for value in values if isinstance(value, torch.Tensor)}
        return any(_storage(result) in own for result in tensors_in(self.launch(self.graph)(*values)))

    @property
    def called(self) -> list[str]:
        """The functions that the graph calls, by their full names; methods of tensors are not among them."""
        functions = [node.target for node in self.graph.graph.nodes if node.op == "call_function"]
        modules = [node.target for node in self.graph.graph.nodes if node.op == "call_module"]
        return [*dict.fromkeys(map(graphs.qualified_name, functions)), *modules]

    @property
    def foreign(self) -> list[str]:
        """The functions among them that are not PyTorch's or Python's own."""
        return [name for name in self.called if not _is_known(name)]

    @cached_property
    def _in_reduced_precision(self) -> list[CompiledGraph]:
        """The graph in eager mode, with its products in each of the reduced precisions that are allowed."""
        return [self.frozen().reduced(precision) for precision in self.numerics]

    @cached_property
    def _in_double_precision(self) -> Any:
        return in_double_precision(self.graph)

    def frozen(self) -> FrozenGraph:
        """Returns the graph with its weights as constants."""
        return FrozenGraph(self)


class FrozenGraph:
    """A graph with its weights as constants; `free` are the numbers of the inputs that are left."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.module = torch.fx.GraphModule(captured.graph, copy.deepcopy(captured.graph.graph))
        nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        for i in captured.weights:
            name, value = f"frozen_{i}", captured.values[i]
            if isinstance(value, torch.nn.Parameter):
                self.module.register_parameter(name, value)
            else:
                self.module.register_buffer(name, value)
            with self.module.graph.inserting_before(nodes[i]):
                constant = self.module.graph.get_attr(name)
            constant.meta.update(nodes[i].meta)
            nodes[i].replace_all_uses_with(constant)
            self.module.graph.erase_node(nodes[i])
        self.module.recompile()
        self.free = tuple(i for i in range(len(captured.inputs)) if i not in captured.weights)
        weights = [(i, captured.values[i]) for i in captured.weights]
        # Tensors of inference mode have no version; that they are the same objects can still be checked.
        self._watched = [(i, value, None if value.is_inference() else value._version) for i, value in weights]

    @property
    def constants(self) -> dict[str, Any]:
        """The weights and all else that is in the graph, by name."""
        names = dict.fromkeys(node.target for node in self.module.graph.nodes if node.op == "get_attr")
        return {name: attrgetter(name)(self.module) for name in names}

    def reduced(self, precision: str) -> CompiledGraph:
        """Returns the graph with its products in a reduced precision, called with all inputs in eager mode."""
        reduce_products(self.module, precision)
        return lambda *values: self.module(*(values[i] for i in self.free))

    def bind(self, compiled: CompiledGraph, recompile: Callable[[Sequence[Any]], CompiledGraph]) -> CompiledGraph:
        """Returns the compiled graph to be called with all inputs; after a weight changed, calls `recompile` once."""
        watched, free = self._watched, self.free
        recompiled: list[CompiledGraph] = []

        def call(*arguments: Any) -> Any:  # on the hot path of the model
            if recompiled:
                return recompiled[0](*arguments)
            for i, value, version in watched:
                if value is not arguments[i] or (version is not None and value._version != version):
                    recompiled.append(recompile(arguments))
                    return recompiled[0](*arguments)
            return compiled(*[arguments[i] for i in free])

        return call


def _is_known(name: str) -> bool:
    """Whether the name of a function means the same code in every process with this PyTorch."""
    if name.startswith("torch.ops."):
        return name.split(".")[2] in ("aten", "prims", "mkldnn", "quantized")
    return name.partition(".")[0] in ("torch", "_operator", "builtins", "math")


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


class _NodeName(str):
    """The name of a node in the text of a graph, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_GEMMS = frozenset({"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "__matmul__"})


class SymbolNames:
    """Symbolic sizes of a graph, numbered as they come: the compiler's own names differ between processes."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.ranges: list[str] = []

    def describe(self, node: Any, value: Any) -> str:
        """Returns an input as text, with symbols where its sizes may change."""
        known = graphs.symbolic_sizes(node)
        if known is None or not any(map(graphs.is_symbolic, known[0])):
            return describe_argument(value)
        dtype = str(value.dtype).removeprefix("torch.")
        text = f"{dtype}[{','.join(map(self._name, known[0]))}]"
        return text if value.is_contiguous() else f"{text}:{','.join(map(self._name, known[1]))}"

    def _name(self, size: Any) -> str:
        if not graphs.is_symbolic(size):
            return str(int(size))
        text = str(size)
        if text not in self._names:
            self._names[text] = f"n{len(self._names)}"
            self.ranges.append(f"{self._names[text]}={'..'.join(graphs.symbol_range(size))}")
        return self._names[text]


def describe_argument(value: Any) -> str:
    """Returns an argument as text: dtype, sizes and strides of a tensor."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__}={value}" if isinstance(value, bool | int | float | str) else "size"
    sizes = ",".join(map(str, value.shape))
    text = f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    return text if value.is_contiguous() else f"{text}:{','.join(map(str, value.stride()))}"
