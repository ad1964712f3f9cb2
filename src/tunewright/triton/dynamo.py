"""Tuned kernels inside torch.compile: Inductor is given what is decided for a call, not all configs of the kernel.

Dynamo and `torch.library.wrap_triton` make a graph node of a call, and take all configs of the kernel: a decision would
not be asked for. The one method that both call is wrapped here. It gives them a kernel of Triton's own class with the
decided config alone, which is then also in the key of Inductor's cache. torch is not imported: whoever compiles has it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from math import prod
from threading import local
from typing import Any

from tunewright.errors import SignatureError
from tunewright.lazy_logging import LazyLogger
from tunewright.triton import adapter

log = LazyLogger(__name__)

WRAP_MODULE = "torch._higher_order_ops.triton_kernel_wrap"
"""Where torch makes graph nodes of calls of Triton kernels."""

BACKENDS_MODULE = "torch._dynamo.backends.registry"
"""Where torch keeps its back ends by name."""

_PARAMETERS = ("self", "variable", "args", "kwargs", "tx")
_state = local()


@dataclass(frozen=True)
class TensorDescription:
    """A tensor that does not exist yet: what a key has of it. Memory that torch allocates is aligned to 16 bytes."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def stride(self) -> tuple[int, ...]:
        """Returns the strides in elements."""
        return self.strides

    def data_ptr(self) -> int:
        """Returns an address that is aligned as the tensor's will be."""
        return self.offset

    def is_contiguous(self) -> bool:
        """Whether elements follow each other in the order of their indices."""
        sizes = self.shape
        wanted = [prod(max(1, size) for size in sizes[place + 1 :]) for place in range(len(sizes))]
        pairs = zip(sizes, self.strides, wanted, strict=True)
        return 0 in sizes or all(size == 1 or stride == want for size, stride, want in pairs)


def compile_graph(backend: Any, graph: Any, inputs: Any) -> Any:
    """Returns the graph as a back end of torch.compile, a function or a name, compiles it."""
    found = import_module(BACKENDS_MODULE).lookup_backend(backend) if isinstance(backend, str) else backend
    return found(graph, inputs)


def configs_in_graph(graph: Any) -> list[list[dict[str, Any]]]:
    """Returns the configs of every Triton kernel that a graph calls."""
    kernels = import_module(WRAP_MODULE).kernel_side_table
    numbers = [node.kwargs["kernel_idx"] for node in graph.graph.nodes if "kernel_idx" in node.kwargs]
    return [[config.all_kwargs() for config in kernels.get_kernel(number).configs] for number in numbers]


def attach_if_loaded() -> None:
    """Wraps torch's method, once it is loaded; says so if it is not as known."""
    module = sys.modules.get(WRAP_MODULE)
    if module is None:
        return
    owner = getattr(module, "TritonHOPifier", None)
    make_node = getattr(owner, "call_triton_kernel", None)
    if make_node is None or getattr(make_node, "is_ours", False):
        return
    if tuple(inspect.signature(make_node).parameters) != _PARAMETERS:
        make_node.is_ours = True  # so that it is said once
        log.warning("torch.compile tunes kernels by itself: this torch calls them in a way that is not known yet")
        return

    @wraps(make_node)
    def make_node_of_decided(self: Any, variable: Any, args: Any, kwargs: Any, tx: Any) -> Any:
        if getattr(_state, "is_inside", False):  # it calls itself with other configs
            return make_node(self, variable, args, kwargs, tx)
        _state.is_inside = True
        try:
            return make_node(self, with_decided_configs(variable, args, kwargs), args, kwargs, tx)
        finally:
            _state.is_inside = False

    make_node_of_decided.is_ours = True  # type: ignore[attr-defined]
    owner.call_triton_kernel = make_node_of_decided  # type: ignore[union-attr]


def with_decided_configs(variable: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns torch's variable of a kernel with the configs to compile; unchanged if it is not one of ours."""
    tuner = variable.kernel
    if not hasattr(tuner, "configs_to_compile"):
        return variable
    configs = tuner.configs_to_compile(describe_arguments(tuner.arg_names, args, kwargs))
    if configs is None:
        return variable
    kernel = _kernel_with(tuner, configs)
    options = {"kernel": kernel, "kernel_idx": None, "grid": variable.grid}
    if (source := getattr(variable, "kernel_source", None)) is not None:
        options["kernel_source"] = source
    return type(variable)(**options)


def _kernel_with(tuner: Any, configs: Sequence[Any]) -> Any:
    """Returns a kernel of Triton's class; the same for the same configs, since torch numbers kernels."""
    known = tuner.__dict__.setdefault("_kernels_to_compile", {})
    name = str([sorted(map(str, config.all_kwargs().items())) for config in configs])
    if name not in known:
        known[name] = adapter.Autotuner(
            tuner.fn, tuner.arg_names, list(configs), list(tuner.keys), tuner.reset_to_zero, tuner.restore_value
        )
    return known[name]


def describe_arguments(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the arguments of a call by name as a key has them; None if one is not known while a graph is made."""
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    try:
        return {name: describe_argument(value) for name, value in named.items() if name in names}
    except SignatureError as error:
        log.info("%s", error)
        return None


def describe_argument(value: Any) -> Any:
    """Returns a plain value, the value that a symbol has now, or the description of a tensor."""
    if hasattr(value, "realize"):  # a variable of Dynamo
        value = value.realize()
        if value.is_python_constant():
            return value.as_python_constant()
        value = _example_of(value)
    if hasattr(value, "storage_offset"):
        strides = tuple(map(_number, value.stride()))
        offset = _number(value.storage_offset()) * int(value.dtype.itemsize)
        return TensorDescription(value.dtype, tuple(map(_number, value.shape)), strides, offset)
    return _number(value) if hasattr(value, "node") else value


def _example_of(variable: Any) -> Any:
    """Returns the fake tensor or the symbol behind a variable of Dynamo."""
    if hasattr(variable, "sym_num"):
        return variable.sym_num
    try:
        return variable.as_proxy().node.meta["example_value"]
    except (AttributeError, KeyError, NotImplementedError) as error:
        raise SignatureError(f"nothing is decided for a call with a {type(variable).__name__}") from error


def _number(value: Any) -> Any:
    """Returns the value that a symbol has now, without a guard on it."""
    node = getattr(value, "node", None)
    if node is None:
        return value
    if (hint := getattr(node, "hint", None)) is None:
        raise SignatureError(f"nothing is decided for a call with a size that is not known yet: {value}")
    return hint
