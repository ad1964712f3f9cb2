"""Graphs: one captured graph compiled in several ways, its kernels named after the decision they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch

from tunewright.backends.inductor.adapter import hook
from tunewright.backends.inductor.names import marked

Compiled = Callable[..., Any]

_COMPILER = "torch._inductor.compile_fx.compile_fx"
_NAMER = "torch._inductor.codegen.cpp.get_fused_kernel_name"


@contextmanager
def _unnoted() -> Iterator[None]:
    """What one compile leaves in the notes of the trace under way is taken out, or it would mislead the next."""
    notes = hook("torch._guards.TracingContext").try_get()
    if notes is None:
        yield
        return
    before = dict(vars(notes))
    try:
        yield
    finally:
        vars(notes).clear()
        vars(notes).update(before)


def compiled(graph: Any, inputs: Sequence[Any], settings: Mapping[str, Any], digest: str = "") -> Compiled:
    """A graph compiled under such settings; `digest` is that of the decision which its kernels are named after."""
    original = hook(_COMPILER)
    original = getattr(original, "__wrapped__", original)
    with _unnoted(), named(digest):
        made: Compiled = original(graph, list(inputs), config_patches=dict(settings) or None)
    return made


@contextmanager
def intercepted(instead: Callable[[Any, Sequence[Any], Mapping[str, Any]], Compiled]) -> Iterator[None]:
    """Whatever is compiled while this is open is handed to `instead`: the graph, its inputs and the user's options."""
    original = hook(_COMPILER)

    def compile_fx(graph: Any, inputs: Sequence[Any], *rest: Any, **more: Any) -> Compiled:
        options = more.pop("config_patches", None) or {}
        if rest or any(value is not None for value in more.values()):  # not a call that torch.compile makes
            return original(graph, inputs, *rest, config_patches=options, **more)  # type: ignore[no-any-return]
        return instead(graph, inputs, options)

    compile_fx.__wrapped__ = getattr(original, "__wrapped__", original)  # type: ignore[attr-defined]
    with patch(_COMPILER, compile_fx):
        yield


@contextmanager
def named(digest: str) -> Iterator[None]:
    """Kernels written while this is open carry the digest of their decision: their own matrix product's, else this."""
    original = hook(_NAMER)

    def name(nodes: Sequence[Any], words: Any) -> str:
        own = [getattr(getattr(one.node, "template", None), "decided", "") for one in nodes]
        told = next(filter(None, own), digest)
        return marked(str(original(nodes, words)), told)

    with patch(_NAMER, name):
        yield


def hint(value: Any) -> Any:
    """The size that a symbol stands for in the call at hand; anything else as it is. Asked so, it is not pinned."""
    return value.node.hint if type(value).__name__ in ("SymInt", "SymFloat", "SymBool") else value


def is_static(node: Any, value: Any) -> bool:
    """Whether an input of a graph is a weight: a parameter, or a buffer of a module."""
    return isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


@cache
def compiler() -> str:
    """The C++ compiler that Inductor uses, with its version."""
    path = hook("torch._inductor.cpp_builder.get_cpp_compiler")()
    told = str(hook("torch._inductor.cpp_builder.get_compiler_version_info")(path))
    found = re.search(r"(gcc|clang)?.?version.(\d+(?:\.\d+)+)", told)
    return f"{found[1] or 'c++'} {found[2]}" if found else told[:80]
