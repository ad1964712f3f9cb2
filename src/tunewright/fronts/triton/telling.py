"""Telling: what a user says of a Triton kernel beyond what Triton's own decorator takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tunewright.engine.budget import Budget
from tunewright.fronts.seeds import Seeds
from tunewright.session import Session
from tunewright.spaces.space import Space


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """Every part is optional.

    - `space`: instead of a list of configs; knobs are constexprs of the kernel, and `num_warps`, `num_stages`,
      `num_ctas`, `maxnreg` (0: no limit) or any other launch option by its name.
    - `model`: whether configs of a space that the resource model calls hopeless are dropped before they are compiled.
    - `buckets`: sizes of `key=` to round up, so that tunings stay few: `{"M": "pow2", "N": [64, 512]}`.
    - `reference`: computes the right results: called with those of the kernel's arguments that it names, returns what
      the kernel stores, in the order of its parameters.
    - `tolerance`: allowed relative error; by default by dtype.
    - `inputs`: makes a call from named sizes: a mapping with `grid` and the kernel's arguments by name.
    - `shapes`: sizes to check and prebuild for.
    - `seeds`: configs of a space to race first: a list, a JSON file, a function of the sizes in `key=`.
    - `budget`: trials, time or both, as in `"200,5m"`; by default a list is tried whole.
    - `strategy`: how a space is searched; by default as the settings say, and a list in its order.
    - `targets`: architectures to prebuild for, such as `["sm_80", "sm_90", "gfx942"]`.
    - `name`: what the kernel is called in the store; by default the function's name.
    - `session`: a store and mode of its own.
    """

    space: Space | None = None
    model: bool = True
    buckets: Mapping[str, Sequence[int] | str] = {}
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    inputs: Callable[..., Mapping[str, Any]] | None = None
    shapes: Sequence[Mapping[str, int]] = ()
    seeds: Seeds = ()
    budget: str | None = None
    strategy: str | None = None
    targets: Sequence[str] = ()
    name: str | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            Budget.parse(self.budget)
