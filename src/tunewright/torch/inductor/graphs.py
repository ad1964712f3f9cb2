"""Captured graphs compiled by Inductor, with kernels named after the decision they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch

from tunewright.errors import SettingsError
from tunewright.lazy_logging import LazyLogger
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.kernel_names import with_decision
from tunewright.torch.inductor.patching import replaced_attribute, replaced_hook

log = LazyLogger(__name__)

CompiledGraph = Callable[..., Any]

_COMPILER = "torch._inductor.compile_fx.compile_fx"
_STATIC = "_dynamo_static_input_type"
_NAMER = "torch._inductor.codegen.cpp.get_fused_kernel_name"
_SETTINGS = "torch._inductor.config"
_PASSES = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)  # fmt: skip
"""Settings that are code, which Inductor leaves out of its own list of those that matter."""


@contextmanager
def _preserved_tracing_context() -> Iterator[None]:
    """Restores the tracing context afterwards: what one compilation leaves there would mislead the next."""
    context = hook("torch._guards.TracingContext").try_get()
    if context is None:
        yield
        return
    before = dict(vars(context))
    try:
        yield
    finally:
        vars(context).clear()
        vars(context).update(before)


def changed_settings() -> dict[str, Any]:
    """Returns the settings of Inductor that this process has changed, as far as compiled code depends on them."""
    settings, entries = hook(_SETTINGS), hook(f"{_SETTINGS}._config")
    names = [name for name in (*settings.save_config_portable(), *_PASSES) if not settings._is_default(name)]
    values = {name: getattr(settings, name) for name in names}  # one may be set to its default
    return {name: value for name, value in values.items() if value != entries[name].default}


def change_settings(settings: Mapping[str, Any]) -> None:
    """Changes settings of Inductor for this process; one that was sent is a tuple again if its default is one."""
    config, entries = hook(_SETTINGS), hook(f"{_SETTINGS}._config")
    for name, value in settings.items():
        is_tuple = isinstance(value, list) and isinstance(entries[name].default, tuple)
        setattr(config, name, tuple(value) if is_tuple else value)


def describe_setting(value: Any) -> str:
    """Returns a setting as text that is the same in every process; of code, its name and its own identifier."""
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {describe_setting(value[name])}" for name in sorted(value, key=str)) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        parts = map(describe_setting, value)
        return "[" + ", ".join(parts if isinstance(value, list | tuple) else sorted(parts)) + "]"
    own = f" {value.uuid()!r}" if hasattr(value, "uuid") else ""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}{own}"


def measured_apart() -> AbstractContextManager[None]:
    """Lets a backward pass be compiled while another graph is: it sets metrics that may be set once."""
    own = hook("torch._dynamo.metrics_context.MetricsContext")(on_exit=lambda *_: None)
    utils = hook("torch._dynamo.utils")
    if (local := getattr(utils, "_metrics_context_tls", None)) is not None:
        return replaced_attribute(local, "metrics_context", own)
    return replaced_attribute(utils, "_METRICS_CONTEXT", own)  # until torch 2.10


def compile_graph(graph: Any, inputs: Sequence[Any], settings: Mapping[str, Any], digest: str = "") -> CompiledGraph:
    """Compiles a graph with Inductor's `settings`; its kernels are named after the decision with this digest."""
    original = hook(_COMPILER)
    original = getattr(original, "__wrapped__", original)
    with _preserved_tracing_context(), kernels_named_after(digest):
        compiled: CompiledGraph = original(graph, list(inputs), config_patches=dict(settings) or None)
    return compiled


@cache
def start_compiler() -> None:
    """Has Inductor do what it does once in a process, such as compiling headers: seconds that no graph should pay."""
    graph = torch.fx.symbolic_trace(_add_one)
    try:
        with hook("torch._guards.tracing")(None), torch.no_grad():
            compile_graph(graph, [torch.ones(1)], {})(torch.ones(1))
    except (RuntimeError, OSError) as error:  # trials fail for the same reason, and say so
        log.info("Inductor cannot compile a graph of one addition: %s: %s", type(error).__name__, error)


def _add_one(value: Any) -> Any:
    return value + 1


@contextmanager
def intercept_compile(replacement: Callable[[Any, Sequence[Any], Mapping[str, Any]], CompiledGraph]) -> Iterator[None]:
    """Hands every graph that Inductor would compile to `replacement`, with its inputs and the user's options."""
    original = hook(_COMPILER)

    def compile_fx(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> CompiledGraph:
        options = kwargs.pop("config_patches", None) or {}
        if args or any(value is not None for value in kwargs.values()):  # not a call that torch.compile makes
            return original(graph, inputs, *args, config_patches=options, **kwargs)  # type: ignore[no-any-return]
        return replacement(graph, inputs, options)

    compile_fx.__wrapped__ = getattr(original, "__wrapped__", original)  # type: ignore[attr-defined]
    with replaced_hook(_COMPILER, compile_fx):
        yield


@contextmanager
def kernels_named_after(digest: str) -> Iterator[None]:
    """Adds the digest of a decision to the names of generated kernels: that of their own GEMM, else `digest`."""
    original = hook(_NAMER)

    def name(nodes: Sequence[Any], descriptive: Any) -> str:
        own = [getattr(getattr(node.node, "template", None), "decided", "") for node in nodes]
        return with_decision(str(original(nodes, descriptive)), next(filter(None, own), digest))

    with replaced_hook(_NAMER, name):
        yield


def mode_options(mode: str) -> dict[str, Any]:
    """Returns Inductor's options for a mode of `torch.compile`."""
    try:
        options: dict[str, Any] = hook("torch._inductor.list_mode_options")(mode)
    except RuntimeError as error:
        raise SettingsError(f"there is no mode {mode!r} of torch.compile; {error}") from error
    return options


def qualified_name(function: Any) -> str:
    """Returns the full name of a function that a graph calls: `torch.nn.functional.linear`."""
    name: str = hook("torch.fx.node._get_qualified_name")(function)
    return name


def symbolic_sizes(node: Any) -> Any:
    """Returns the shape and strides of an input as the compiler knows them; None if it is no tensor."""
    value = node.meta.get("example_value")
    return (tuple(value.shape), tuple(value.stride())) if isinstance(value, torch.Tensor) else None


def symbol_range(size: Any) -> tuple[str, str]:
    """Returns the least and the greatest value that a symbolic size may have."""
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    return str(bounds.lower), str(bounds.upper)


def is_symbolic(size: Any) -> bool:
    """Whether a size may change from call to call."""
    return type(size).__name__ == "SymInt" and size.node.is_symbolic()


class SymbolicSizes:
    """The symbols in the inputs of a graph that is being captured, with the size that each has in this call."""

    def __init__(self, inputs: Sequence[Any], placeholders: Sequence[Any]) -> None:
        self._sizes = [_sizes_of(value, node) for value, node in zip(inputs, placeholders, strict=True)]
        self._is_tensor = [isinstance(value, torch.Tensor) for value in inputs]
        symbolic = [size for sizes in self._sizes if sizes for size in sizes if is_symbolic(size)]
        self._env: Any = symbolic[0].node.shape_env if symbolic else None
        free = {symbol for size in symbolic for symbol in self._known(size).free_symbols}
        values = {symbol: self._value(symbol) for symbol in free}
        self.hints: dict[Any, int] = {symbol: values[symbol] for symbol in sorted(free, key=str)}

    def _known(self, size: Any) -> Any:
        """Returns the expression of a size; a number, if the graph takes only that."""
        return self._env.replace(size.node.expr)

    def _value(self, symbol: Any) -> int:
        held = getattr(self._env, "backed_var_to_val", None) or self._env.var_to_val
        return int(held[symbol])

    def scaled(self, factor: float) -> dict[Any, int]:
        """Returns other sizes within their ranges; none if conditions of the graph exclude them, or nothing changes."""
        sizes = {}
        for symbol, size in self.hints.items():
            bounds, sizes[symbol] = self._env.bound_sympy(symbol), round(factor * size)
            if bounds.lower.is_Integer:
                sizes[symbol] = max(int(bounds.lower), sizes[symbol])
            if bounds.upper.is_Integer:  # else there is no limit
                sizes[symbol] = min(int(bounds.upper), sizes[symbol])
        if sizes == self.hints:
            return {}
        conditions = [self._env.replace(guard.expr).subs(sizes) for guard in self._env.guards]
        return sizes if all(condition == True for condition in conditions) else {}  # noqa: E712 - or it is unknown

    def evaluate(self, number: int, sizes: Mapping[Any, int]) -> Any:
        """Returns the sizes of a tensor, or the number, that an input is then; None if it stays as it is."""
        own = self._sizes[number]
        if not own or not any(map(is_symbolic, own)):
            return None
        known = [int(self._known(size).subs(sizes)) if is_symbolic(size) else int(size) for size in own]
        return known if self._is_tensor[number] else known[0]


def _sizes_of(value: Any, node: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        known = symbolic_sizes(node)
        return known[0] if known else ()
    return (value,) if is_symbolic(value) else ()


def hint(value: Any) -> Any:
    """Returns the size that a symbol has in the current call, without pinning it; anything else as it is."""
    return value.node.hint if type(value).__name__ in ("SymInt", "SymFloat", "SymBool") else value


def is_static(node: Any, value: Any) -> bool:
    """Whether an input of a graph is a weight: a parameter, or a buffer of a module."""
    return isinstance(value, torch.nn.Parameter) or _STATIC in (node.meta.get("tensor_dict") or {})


def mark_as_weight(node: Any) -> None:
    """Marks an input of a graph that was read from a file as a weight."""
    node.meta["tensor_dict"] = {_STATIC: "unguarded"}


@cache
def compiler_version() -> str:
    """Returns the C++ compiler that Inductor uses, with its version."""
    path = hook("torch._inductor.cpp_builder.get_cpp_compiler")()
    text = str(hook("torch._inductor.cpp_builder.get_compiler_version_info")(path))
    version = re.search(r"(gcc|clang)?.?version.(\d+(?:\.\d+)+)", text)
    return f"{version[1] or 'c++'} {version[2]}" if version else text[:80]
