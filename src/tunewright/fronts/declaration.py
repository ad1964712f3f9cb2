"""Declaration: what a user says of a kernel besides its space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tunewright.measure.attempt import Maker
from tunewright.ports.backend import Backend
from tunewright.session import Session


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What a user says of a kernel besides its space; every part is optional.

    - `backend`: how it is built; by default the decorated function itself is the kernel. A mapping gives each
      variant an implementation.
    - `default`: the config in use today, and where nothing is decided; by default the first of the space.
    - `reference`: computes the right results from the kernel's inputs; by default the default config does.
    - `tolerance`: allowed relative error; by default a matter of the dtype.
    - `inputs`: makes arguments to tune on from named sizes; by default random arrays like those of the call.
    - `shapes`: sizes worth tuning ahead of time, for the command line.
    - `buckets`: named dimensions to round up, so that tunings stay few: `{"M": "pow2", "N": [64, 512]}`. A config is
      verified at its bucket's size: the kernel itself must be right at every size in it.
    - `threads`: how many threads the kernel uses; decides the clock, and is part of the key.
    - `dtype`: of arrays made from named sizes.
    - `name`: what the kernel is called in the store; by default the function's name.
    - `budget`: trials, time or both, as in `"200,5m"`.
    - `session`: a store, mode and strategy of its own.
    """

    backend: Backend | Mapping[str, Any] | None = None
    default: Mapping[str, Any] | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float | None = None
    inputs: Maker | None = None
    shapes: Sequence[Mapping[str, int]] = ()
    buckets: Mapping[str, Sequence[int] | str] = {}
    threads: int = 1
    dtype: str = "float32"
    name: str | None = None
    budget: str | None = None
    session: Session | None = None
