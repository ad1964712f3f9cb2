"""Declaration: the options of a tuned kernel besides its space."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from tunewright.backends.host import digest, function_digest
from tunewright.backends.python import Python
from tunewright.cases.case import Case, MakeInputs
from tunewright.errors import SignatureError
from tunewright.kernel.option_checks import check_options
from tunewright.kernel.seeds import Seeds
from tunewright.measure.clock import Regime
from tunewright.model.key import CHECKED_BY_DEFAULT
from tunewright.ports.backend import Backend
from tunewright.session import Session

Compile = Callable[[Mapping[str, Any]], Callable[..., Any]]
"""Returns a callable for a config: a mapping of knobs to values."""


class TuneOptions(TypedDict, total=False):
    """The options of `tune`; all may be omitted.

    - `backend`: how the kernel is built; by default the decorated function itself is the kernel. A mapping gives each
      variant its implementation.
    - `compile`: returns a callable for a config, a mapping of knobs to values; instead of a backend.
    - `default`: the config used if no decision is stored; by default what the function's signature has as defaults of
      the knobs, else the first of the space.
    - `reference`: computes the right results from the kernel's inputs; by default the default config does.
    - `tolerance`: allowed relative error; by default derived from the dtype and the number of summed terms.
    - `precision`: of the reference: "double", or the "same" as the kernel.
    - `numerics`: knobs and variants that may change the numbers; part of the key.
    - `inputs`: makes arguments to tune on from named sizes; by default random arrays like those of the call.
    - `cases`: kinds of calls that one decision serves, weighted by how often they occur; part of the key.
    - `shapes`: sizes to tune ahead of time from the command line.
    - `buckets`: named dimensions to round up, so that few sizes are tuned: `{"M": "pow2", "N": [64, 512]}`. A config is
      verified at the size of its bucket: the kernel itself must be right at every size in it.
    - `invariant`: named dimensions on which the results of a row must not depend, bit for bit: `["M"]`. All sizes of
      them get configs whose results are equal; part of the key.
    - `seeds`: configs to try first: a list, a JSON file with a list, or a function of the named sizes.
    - `threads`: how many threads the kernel uses; determines the clock, and is part of the key.
    - `regime`: how it will be called: "hot" (repeatedly), in "context" (between other work) or "cold"; part of the key.
    - `program`: the whole program that the kernel is for, a function without arguments or a command; a winner that
      makes it slower is rejected.
    - `dtype`: of arrays made from named sizes.
    - `name`: the kernel's name in the store; by default the function's name.
    - `budget`: trials, time or both, as in `"200,5m"`.
    - `session`: the kernel's own store, mode and strategy.
    """

    backend: Backend | Mapping[str, Any] | None
    compile: Compile | None
    default: Mapping[str, Any] | None
    reference: Callable[..., Any] | None
    tolerance: float | None
    precision: Literal["double", "same"]
    numerics: Sequence[str]
    inputs: MakeInputs | None
    cases: Sequence[Case]
    shapes: Sequence[Mapping[str, int]]
    buckets: Mapping[str, Sequence[int] | str]
    invariant: Sequence[str]
    seeds: Seeds
    threads: int
    regime: Literal["hot", "context", "cold"]
    program: Callable[[], Any] | str | None
    dtype: str
    name: str | None
    budget: str | None
    session: Session | None


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of a kernel with their defaults; `TuneOptions` explains them."""

    backend: Backend | Mapping[str, Any] | None = None
    compile: Compile | None = None
    default: Mapping[str, Any] | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    precision: Literal["double", "same"] = "double"
    numerics: Sequence[str] = ()
    inputs: MakeInputs | None = None
    cases: Sequence[Case] = ()
    shapes: Sequence[Mapping[str, int]] = ()
    buckets: Mapping[str, Sequence[int] | str] = {}
    invariant: Sequence[str] = ()
    seeds: Seeds = ()
    threads: int = 1
    regime: Literal["hot", "context", "cold"] = "hot"
    program: Callable[[], Any] | str | None = None
    dtype: str = "float32"
    name: str | None = None
    budget: str | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        check_options(msgspec.structs.asdict(self))
        if self.precision not in ("double", "same"):
            raise SignatureError(f'precision is "double" or "same", not {self.precision!r}')
        if self.regime not in set(Regime):
            raise SignatureError(f"no regime {self.regime!r}; regimes: {', '.join(Regime)}")
        if wrong := [case for case in self.cases if not isinstance(case, Case)]:
            raise SignatureError(f"cases are written as Case(weight=3, M=100), not {wrong[0]!r}")

        if self.backend is not None and self.compile is not None:
            raise SignatureError("both backend= and compile= say how the kernel is built; give one of them")

    def make_backend(self) -> Backend:
        """Returns the backend: the given one, or else that of a Python function."""
        if self.compile is not None:
            from tunewright.backends.compiled import Callable as CallableBackend  # noqa: PLC0415 - only if needed

            return CallableBackend(self.compile)
        if isinstance(self.backend, Mapping):
            from tunewright.backends.variants import Variants  # noqa: PLC0415 - only needed for variants

            return Variants(self.backend)
        return self.backend or Python()

    def has_default_inputs(self) -> bool:
        """Whether the `inputs` function can be called without sizes."""
        if self.inputs is None:
            return False
        return all(p.default is not p.empty for p in inspect.signature(self.inputs).parameters.values())

    def mode(self) -> dict[str, str]:
        """Returns the options that are part of the key: how the kernel is run and verified."""
        mode = {"threads": str(self.threads), "regime": str(self.regime), "check": self._check()}
        if self.numerics:
            mode["numerics"] = ", ".join(sorted(self.numerics))
        if self.invariant:
            mode["invariant"] = ", ".join(sorted(self.invariant))
        if self.cases:
            makers = [function_digest(case.inputs) for case in self.cases if case.inputs]
            mode["cases"] = digest(*map(repr, self.cases), *makers)[:12]
        return mode

    def _check(self) -> str:
        """Returns what results are verified against; a decision verified otherwise is not the same."""
        by = digest(function_digest(self.reference))[:12] if self.reference else CHECKED_BY_DEFAULT
        by = f"{by} in the same precision" if self.precision == "same" else by
        return by if self.tolerance is None else f"{by} within {self.tolerance}"
