"""Options of `autotune` beyond those of Triton's own decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError
from tunewright.kernel.seeds import Seeds
from tunewright.session import Session
from tunewright.spaces.space import Space

TuneOn = Literal["first call", "idle", "never"]
"""When a kernel may be tuned."""


class AutotuneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `autotune` that Triton's decorator does not have; all are optional.

    - `space`: replaces the list of configs. Knobs are constexprs of the kernel, and `num_warps`, `num_stages`,
      `num_ctas`, `maxnreg` (0: no limit) or any other launch option by its name.
    - `model`: whether configs of a space that the resource model calls hopeless are dropped before they are compiled.
    - `buckets`: sizes of `key=` to round up, so that fewer shapes are tuned: `{"M": "pow2", "N": [64, 512]}`.
    - `reference`: computes the expected results. It takes any of the kernel's arguments by name, and returns what the
      kernel stores, in the order of its parameters, or a mapping with names. Without it, results are compared with
      those of the default config.
    - `tolerance`: allowed relative error; by default by dtype. If it is infinite, results are not compared.
    - `inputs`: makes a call from named sizes: a mapping with `grid` and the kernel's arguments by name.
    - `shapes`: sizes to check and prebuild for.
    - `seeds`: configs of a space to try first: a list, a JSON file, or a function of the sizes in `key=`.
    - `budget`: trials, time or both, as in `"200,5m"`; by default all of a list.
    - `strategy`: how a space is searched; by default that of the settings, and for a list its order.
    - `targets`: architectures to prebuild for, such as `["sm_80", "sm_90", "gfx942"]`.
    - `tune_on`: when to tune. `"first call"`: at the first call of a key, unless a key that differs only in alignment,
      divisibility, layout or constexprs is decided: that decision is used, and the key is noted for later. `"idle"`:
      only calls within `tunewright.triton.idle()` tune. `"never"`: none does.
    - `peers`: whether the kernel talks to other ranks while it runs. Then all ranks of torch.distributed tune it in
      step, at a call that all of them make; if one does not, none tunes, and all use the default.
    - `worker`: whether configs run in another process, which has a context of the device of its own: one that loses the
      device, hangs or ends its process costs that process, and the search goes on. The worker has its own tensors, so
      the device needs room for them. A kernel that cannot run there is tuned in this process, and it is said.
    - `name`: the kernel's name in the store; by default the function's name.
    - `session`: its own store and mode.
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
    tune_on: TuneOn = "first call"
    peers: bool = False
    worker: bool = False
    name: str | None = None
    session: Session | None = None

    def __post_init__(self) -> None:
        if self.tune_on not in get_args(TuneOn):
            raise SettingsError(f"tune_on={self.tune_on!r} is not one of {', '.join(map(repr, get_args(TuneOn)))}")
        if self.budget is not None:
            Budget.parse(self.budget)


class AutotuneKeywords(TypedDict, total=False):
    """Keyword arguments of `autotune` after Triton's first six: the rest of Triton's, and the `AutotuneOptions`."""

    post_hook: Callable[..., Any] | None
    warmup: int | None
    rep: int | None
    use_cuda_graph: bool
    do_bench: Callable[..., Any] | None
    cache_results: bool
    space: Space | None
    model: bool
    buckets: Mapping[str, Sequence[int] | str]
    reference: Callable[..., Any] | None
    tolerance: float | None
    inputs: Callable[..., Mapping[str, Any]] | None
    shapes: Sequence[Mapping[str, int]]
    seeds: Seeds
    budget: str | None
    strategy: str | None
    targets: Sequence[str]
    tune_on: TuneOn
    peers: bool
    worker: bool
    name: str | None
    session: Session | None
