"""Features: what compiles told of configs, as figures that a search learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from math import nan
from typing import Any

from tunewright.backends.triton.artefacts import Label
from tunewright.spaces.figure import Figure

COMPILED = ("registers", "stack", "shared", "matrix", "code_bytes", "occupancy")


class Named:
    """A function of a config as one of knobs whose names come from data: a signature is made, no code."""

    def __init__(self, names: Sequence[str], of: Callable[[Mapping[str, Any]], Any]) -> None:
        self._names, self._of = tuple(names), of
        self.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def __call__(self, *values: Any) -> Any:
        return self._of(dict(zip(self._names, values, strict=True)))


def compiled_figures(labels: Iterable[Label], knobs: Sequence[str]) -> list[Figure]:
    """What the compiler said of configs, for a space with these knobs; nothing of a config that was not compiled.

    The labels are those of one kernel, one target and one call.
    """
    known = {tuple(label.config.get(name) for name in knobs): label.resources for label in labels if label.resources}

    def looked_up(figure: str) -> Callable[[Mapping[str, Any]], float]:
        def of(config: Mapping[str, Any]) -> float:
            taken = known.get(tuple(config[name] for name in knobs))
            return nan if taken is None else float(getattr(taken, figure))

        return of

    return [Figure(name, Named(knobs, looked_up(name))) for name in COMPILED] if knobs else []
