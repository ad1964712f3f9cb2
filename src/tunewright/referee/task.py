"""Tasks: what contestants must compute, on which inputs, how exactly, and what they may use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tunewright.errors import TunewrightError
from tunewright.referee.messages import ChildLimits, Entry

USUAL_IMPORTS = (
    "__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "numpy", "operator", "typing",
)  # fmt: skip
"""Modules that a candidate may import unless its task says otherwise."""

MakeArguments = Callable[..., Sequence[Any]]
"""Makes the arguments of a launch from a generator of random numbers and named sizes."""


class TaskError(TunewrightError):
    """Raised when a task or a candidate cannot be read, or a task cannot tell right from wrong."""


@dataclass(frozen=True, eq=False)
class Task:
    """A problem for contestants: a reference, and a generator of inputs.

    `inputs(rng, **sizes)` returns the arguments, for each of the `shapes`. Arguments named in `constant` are drawn once
    for a process, and a contestant may keep what it makes of them. Results are compared with the reference in double
    precision unless `precise` is False, within `tolerance`: by the name of the dtype, one for all, or derived. Only
    `imports` may be imported, anything if None, and names in `forbidden` not be used ("matmul", "@"). `flops(**sizes)`
    counts operations that no algorithm avoids, and `nbytes(**sizes)` bytes, which else are those of
    all arrays. A task whose inputs are `structured` (sorted, say) gets no variants of
    its inputs with elements swapped.

    Example: `Task(np.matmul, lambda rng, N: (rng.random((N, N)), rng.random((N, N))), shapes=[{"N": 256}])`
    """

    reference: Callable[..., Any]
    inputs: MakeArguments
    shapes: Sequence[Mapping[str, int]] = ({},)
    name: str = ""
    constant: Sequence[str] = ()
    tolerance: float | Mapping[str, float] | None = None
    imports: Sequence[str] | None = USUAL_IMPORTS
    forbidden: Sequence[str] = ()
    flops: Callable[..., float] | None = None
    nbytes: Callable[..., float] | None = None
    limits: ChildLimits = field(default_factory=ChildLimits)
    precise: bool = True
    structured: bool = False
    library: str = ""
    source: str = ""
    path: str = ""
    preload: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.shapes:
            raise TaskError("a task needs one shape at least: shapes=[{'N': 256}]")
        if unknown := [name for name in self.constant if name not in self.parameters]:
            known = ", ".join(self.parameters) or "none that can be seen"
            raise TaskError(f"{unknown[0]!r} is no parameter of the reference; its parameters: {known}")

    @property
    def entry_name(self) -> str:
        """The function that a candidate defines."""
        return self.name or getattr(self.reference, "__name__", "")

    @property
    def parameters(self) -> list[str]:
        """The names of the reference's parameters; empty if it does not show them."""
        try:
            return list(inspect.signature(self.reference).parameters)
        except (TypeError, ValueError):
            return []

    def make_inputs(self, shape: int, seed: int, constant_seed: int) -> list[Any]:
        """Returns the arguments of a launch; equal numbers give equal arguments in every process."""
        arguments = list(self.inputs(np.random.default_rng(seed), **self.shapes[shape]))
        fixed = _constant_arguments(self, shape, constant_seed) if self.constant else {}
        return [fixed.get(number, value) for number, value in enumerate(arguments)]

    def bind(self, seed: int) -> Callable[..., Any]:
        """Returns what computes expected results; a model has parameters that depend on the seed."""
        return self.reference

    def candidate_entry(self, source: str, seed: int) -> Entry:
        """Returns what runs the source of a candidate."""
        return Entry("function", self.entry_name, source, library=self.library)

    def reference_entry(self, seed: int) -> Entry:
        """Returns what runs the reference as a contestant."""
        if not self.source:
            raise TaskError("the reference of a task that is no file cannot be the baseline; name one: against=...")
        return Entry("function", getattr(self.reference, "__name__", ""), self.source, library=self.library)

    def tolerance_for(self, dtype: str) -> float | None:
        """Returns the declared tolerance of a dtype; None if it is to be derived."""
        if isinstance(self.tolerance, Mapping):
            return self.tolerance.get(dtype)
        return self.tolerance


@lru_cache(maxsize=16)
def _constant_arguments(task: Task, shape: int, seed: int) -> dict[int, Any]:
    """Returns the constant arguments of a shape by number; equal arrays for shapes that have them in the same size."""
    names, found = task.parameters, dict[int, Any]()
    sets = [list(task.inputs(np.random.default_rng(seed), **sizes)) for sizes in task.shapes[: shape + 1]]
    for number, own in enumerate(sets[-1]):
        if number < len(names) and names[number] in task.constant:
            alike = (each[number] for each in sets if np.shape(each[number]) == np.shape(own))
            found[number] = next(alike)
    return found
