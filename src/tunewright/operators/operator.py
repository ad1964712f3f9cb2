"""Operator, Implementation: what is computed, and who can compute it for which arguments."""

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
"""Numpy's arrays of it are those of the package ml_dtypes."""


@dataclass(frozen=True)
class Operator:
    """What is computed: a name, a function that declares arguments (the result last), what is right, and the
    result's shape from the shapes of the others.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    shape: Callable[..., tuple[int, ...]]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its arguments, the result among them."""
        return Parameter.of(self.function, ())

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Its arguments without the result."""
        return self.parameters[:-1]


@dataclass(frozen=True)
class Support:
    """Which arguments an implementation takes: dtypes, layouts ("C": without gaps, or "any"), a device, sizes that keep
    `rules`; arrays that do not lie at a multiple of `alignment` bytes are copied for it.
    """

    dtypes: Sequence[str] = FLOATS
    layouts: str = "any"
    device: str = "cpu"
    alignment: int = 1
    rules: Sequence[Rule] = ()

    def objections(self, signature: Signature) -> list[str]:
        """Why it does not take such arguments, in words; empty if it does."""
        said = [] if self.device == "cpu" else [f"it runs on {self.device}, and numpy's arrays lie on the cpu"]
        for text in signature.args:
            dtype, _, rest = text.partition("[")
            if rest and dtype not in self.dtypes:
                said.append(f"it takes {' and '.join(self.dtypes)}, not {dtype}")
            if rest and self.layouts == "C" and text.rpartition("]")[2]:
                said.append("it takes arrays without gaps, in C's order")
        broken = [rule.reason for rule in self.rules if not said and rule.broken_by(signature.dims)]
        return list(dict.fromkeys(said + broken))


@dataclass(frozen=True)
class Template:
    """An implementation with knobs: a backend, a space, and the config that is tried first."""

    backend: Backend
    space: Space | None = None
    start: Mapping[str, Any] = field(default_factory=dict)


Templating = Callable[[Signature, int], Template]
"""Makes a template for such arguments and so many threads."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator: a function with the operator's arguments, or what makes a template.

    `narrow` computes arrays of bfloat16, where that takes another function; `fresh` takes the inputs alone and returns
    the result in an array of its own, where that spares a copy; `versions` names the packages that its speed rests on.
    """

    name: str
    operator: Operator
    run: Callable[..., Any] | None = None
    template: Templating | None = None
    narrow: Callable[..., Any] | None = None
    fresh: Callable[..., Any] | None = None
    support: Support = field(default_factory=Support)
    versions: Mapping[str, str] = field(default_factory=dict)
