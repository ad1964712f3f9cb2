"""Declaration: what a user says of a kernel besides its space."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tunewright.backends.host import digest, source_of
from tunewright.cases.case import Case, Maker
from tunewright.errors import SignatureError
from tunewright.fronts.seeds import Seeds
from tunewright.measure.clock import Regime
from tunewright.ports.backend import Backend
from tunewright.session import Session


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says of a kernel besides its space; every part is optional.

    - `backend`: how it is built; by default the decorated function itself is the kernel. A mapping gives each
      variant an implementation.
    - `default`: the config in use today, and where nothing is decided; by default the first of the space.
    - `reference`: computes the right results from the kernel's inputs; by default the default config does.
    - `tolerance`: allowed relative error; by default by dtype and by how many terms are summed.
    - `precision`: in which the reference computes: "double", or the "same" as the kernel.
    - `numerics`: names of knobs and variants whose values may change the numbers; part of the key.
    - `inputs`: makes arguments to tune on from named sizes; by default random arrays like those of the call.
    - `cases`: several kinds of calls that one decision serves, weighted by how often they come; part of the key.
    - `shapes`: sizes worth tuning ahead of time, for the command line.
    - `buckets`: named dimensions to round up, so that tunings stay few: `{"M": "pow2", "N": [64, 512]}`. A config is
      verified at its bucket's size: the kernel itself must be right at every size in it.
    - `seeds`: configs to try first: a list, a JSON file with one, or a function of the named sizes (a heuristic).
    - `threads`: how many threads the kernel uses; decides the clock, and is part of the key.
    - `regime`: how it will be called: "hot" (again and again), in "context" (between other work) or "cold"; part of
      the key, since the best config differs.
    - `program`: the whole that the kernel is for, a function without arguments or a command; a winner that makes it
      slower is refused.
    - `dtype`: of arrays made from named sizes.
    - `name`: what the kernel is called in the store; by default the function's name.
    - `budget`: trials, time or both, as in `"200,5m"`.
    - `session`: a store, mode and strategy of its own.
    """

    backend: Backend | Mapping[str, Any] | None = None
    default: Mapping[str, Any] | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    precision: Literal["double", "same"] = "double"
    numerics: Sequence[str] = ()
    inputs: Maker | None = None
    cases: Sequence[Case] = ()
    shapes: Sequence[Mapping[str, int]] = ()
    buckets: Mapping[str, Sequence[int] | str] = {}
    seeds: Seeds = ()
    threads: int = 1
    regime: Literal["hot", "context", "cold"] = "hot"
    program: Callable[[], Any] | str | None = None
    dtype: str = "float32"
    name: str | None = None
    budget: str | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("double", "same"):
            raise SignatureError(f'precision is "double" or "same", not {self.precision!r}')
        if self.regime not in set(Regime):
            raise SignatureError(f"no regime {self.regime!r}; regimes: {', '.join(Regime)}")
        if strays := [case for case in self.cases if not isinstance(case, Case)]:
            raise SignatureError(f"cases are written as Case(weight=3, M=100), not {strays[0]!r}")

    def has_default_inputs(self) -> bool:
        """Whether the `inputs` function can be called without sizes."""
        made = self.inputs
        return made is not None and all(p.default is not p.empty for p in inspect.signature(made).parameters.values())

    def mode(self) -> dict[str, str]:
        """How the kernel is executed and judged: what of its declaration changes the answer."""
        mode = {"threads": str(self.threads), "regime": str(self.regime), "check": self._judge()}
        if self.numerics:
            mode["numerics"] = ", ".join(sorted(self.numerics))
        if self.cases:
            makers = [source_of(case.inputs) for case in self.cases if case.inputs]
            mode["cases"] = digest(*map(repr, self.cases), *makers)[:12]
        return mode

    def _judge(self) -> str:
        """What results are judged by: a decision proven by another reference has proven something else."""
        by = digest(source_of(self.reference))[:12] if self.reference else "the default config"
        by = f"{by} in the same precision" if self.precision == "same" else by
        return by if self.tolerance is None else f"{by} within {self.tolerance}"
