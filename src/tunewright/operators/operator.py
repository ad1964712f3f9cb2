"""Operators, their implementations, and the arguments that an implementation supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Backend
from tunewright.spaces.rule import Rule
from tunewright.spaces.space import Space

FLOATS = ("float32", "float64")
NARROW = "bfloat16"
"""In numpy, a dtype of the package ml_dtypes."""


@dataclass(frozen=True)
class Operator:
    """An operator: its name, a function that declares the arguments (the result last), a reference, and the shape of
    the result from the shapes of the inputs.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    shape: Callable[..., tuple[int, ...]]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All arguments, including the result."""
        return Parameter.of(self.function, ())

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """All arguments without the result."""
        return self.parameters[:-1]


@dataclass(frozen=True)
class Support:
    """Arguments that an implementation supports: dtypes, layouts ("C": contiguous, or "any"), a device, and sizes that
    satisfy `rules`. Arrays that are not aligned to `alignment` bytes are copied.
    """

    dtypes: Sequence[str] = FLOATS
    layouts: str = "any"
    device: str = "cpu"
    alignment: int = 1
    rules: Sequence[Rule] = ()

    def unsupported(self, signature: Signature) -> list[str]:
        """Returns the reasons why such arguments are not supported; empty if they are."""
        reasons = [] if self.device == "cpu" else [f"it runs on {self.device}, but numpy arrays are on the cpu"]
        for text in signature.args:
            dtype, _, rest = text.partition("[")
            if rest and dtype not in self.dtypes:
                reasons.append(f"it takes {' and '.join(self.dtypes)}, not {dtype}")
            if rest and self.layouts == "C" and text.rpartition("]")[2]:
                reasons.append("it takes C-contiguous arrays")
        broken = [rule.reason for rule in self.rules if not reasons and rule.broken_by(signature.dims)]
        return list(dict.fromkeys(reasons + broken))


@dataclass(frozen=True)
class Template:
    """An implementation with knobs: a backend, a space, and the config to try first."""

    backend: Backend
    space: Space | None = None
    start: Mapping[str, Any] = field(default_factory=dict)


TemplateFactory = Callable[[Signature, int], Template]
"""Returns a template for a signature and a number of threads."""


@dataclass(frozen=True)
class Implementation:
    """One implementation of an operator: a function with the operator's arguments, or a factory of templates.

    `narrow` is the function for bfloat16 arrays, if it differs; `fresh` takes the inputs only and returns a new array,
    if that saves a copy; `versions` are the packages that its speed depends on.
    """

    name: str
    operator: Operator
    run: Callable[..., Any] | None = None
    template: TemplateFactory | None = None
    narrow: Callable[..., Any] | None = None
    fresh: Callable[..., Any] | None = None
    support: Support = field(default_factory=Support)
    versions: Mapping[str, str] = field(default_factory=dict)
