"""Calls of a model: positional arguments and keywords, with whatever tensors are nested in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from tunewright.errors import SignatureError
from tunewright.torch.inductor import adapter

COMPILE_KEYWORDS = frozenset(
    {"backend", "disable", "dynamic", "fullgraph", "isolate_recompiles", "mode", "name", "options", "recompile_limit"}
)
"""Keywords that belong to `torch.compile` where a function takes them beside those of a model."""


class Call:
    """The arguments of one call of a model: `Call(ids, attention_mask=mask)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __repr__(self) -> str:
        return f"Call({', '.join(self.describe())})"

    @classmethod
    def read(cls, value: Any) -> Call:
        """Returns what people write as a call: a tensor, a tuple of arguments, a dict of keywords, or a `Call`."""
        if isinstance(value, Call):
            return value
        if isinstance(value, torch.Tensor):
            return cls(value)
        if isinstance(value, tuple):
            return cls(*value)
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return cls(**value)
        raise SignatureError(
            f"{type(value).__name__} is no call of a model: write its arguments as a tuple, `(x, y)`, its keywords as "
            "a dict, `{'input_ids': x}`, or both as `Call(x, mask=y)` of tunewright.torch"
        )

    def run(self, fn: Callable[..., Any]) -> Any:
        """Calls a model with these arguments."""
        return fn(*self.args, **self.kwargs)

    def with_tensors(self, change: Callable[[Any], Any]) -> Call:
        """Returns the call with every tensor changed, also those in lists, dicts and caches."""
        tree_map = adapter.hook("torch.utils._pytree.tree_map")
        changed = [
            tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, part)
            for part in (self.args, self.kwargs)
        ]
        return Call(*changed[0], **changed[1])

    def leaves(self) -> list[tuple[str, Any]]:
        """Returns what is nested in the arguments: positional ones, then keywords by name, each with `name=`."""
        tree_leaves = adapter.tree_leaves()
        found = [("", leaf) for leaf in tree_leaves(self.args)]
        for name in sorted(self.kwargs):
            found += [(f"{name}=", leaf) for leaf in tree_leaves(self.kwargs[name])]
        return found

    def tensors(self) -> list[Any]:
        """Returns the tensors among the leaves."""
        return tensors_of(self.leaves())

    def sorted(self) -> Call:
        """Returns the call with its keywords by name, in which order compiled code takes them."""
        return Call(*self.args, **{name: self.kwargs[name] for name in sorted(self.kwargs)})

    def describe(self) -> tuple[str, ...]:
        """Returns what code depends on: dtypes, sizes and strides of tensors, other values, names of keywords."""
        return describe_leaves(self.leaves())


def describe_leaves(leaves: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Returns what code depends on of the leaves of a call."""
    return tuple(f"{name}{_describe(leaf)}" for name, leaf in leaves)


def tensors_of(leaves: Iterable[tuple[str, Any]]) -> list[Any]:
    """Returns the tensors among the leaves of a call."""
    return [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor)]


def make_call(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call:
    """Returns the call with these arguments, or the `Call` that is the only one of them."""
    if len(arguments) == 1 and isinstance(arguments[0], Call):
        return arguments[0]
    return Call(*arguments, **keywords)


def read_calls(values: Iterable[Any]) -> tuple[Call, ...]:
    """Returns calls; raises if there is none."""
    calls = tuple(Call.read(value) for value in values)
    if not calls:
        raise SignatureError("there is no call: give the arguments of at least one, such as `(x, y)`")
    return calls


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns keywords of a model and those of `torch.compile`."""
    own = {name: value for name, value in keywords.items() if name not in COMPILE_KEYWORDS}
    return own, {name: value for name, value in keywords.items() if name in COMPILE_KEYWORDS}


def _describe(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    return f"{str(leaf.dtype)[6:]}{list(leaf.shape)}/{list(leaf.stride())}@{leaf.device}"
