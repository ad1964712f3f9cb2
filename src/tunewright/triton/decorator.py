"""The `autotune` decorator: a drop-in for Triton's, with options of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from tunewright.triton import adapter, releases
from tunewright.triton.names import Config
from tunewright.triton.options import AutotuneKeywords, AutotuneOptions
from tunewright.triton.tuner import TritonTuner

_LEADING = 6
"""Parameters of Triton's decorator that `autotune` declares; the others are keywords, or follow by position."""


def autotune(
    configs: Sequence[Config] | None = None,
    key: Sequence[str] | None = None,
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    *args: Any,
    **options: Unpack[AutotuneKeywords],
) -> Callable[[Any], TritonTuner]:
    """Tunes a Triton kernel: takes all parameters of `triton.autotune`, and those of `AutotuneOptions`.

    Example:
        @autotune(
            space=Space(Knob("BLOCK", [64, 128, 256]), Knob("num_warps", [2, 4, 8])),
            key=["n"],
            buckets={"n": "pow2"},
            reference=lambda x, y: x + y,
        )
        @triton.jit
        def add(x, y, out, n, BLOCK: tl.constexpr): ...
    """
    leading = (configs, key, prune_configs_by, reset_to_zero, restore_value, pre_hook)
    names = releases.AUTOTUNE_PARAMETERS
    trailing = dict(zip(names[_LEADING:], args, strict=False))
    if len(args) > len(names) - _LEADING or set(options) & set(trailing):
        raise TypeError(f"autotune takes {', '.join(names)}, each once")
    ours = AutotuneOptions.__struct_fields__
    if unknown := sorted(set(options) - {*names, *ours}):
        raise TypeError(f"autotune takes no {unknown[0]!r}; it takes {', '.join((*names, *sorted(ours)))}")
    if options.get("space") is None and (configs is None or key is None):
        raise TypeError("autotune needs configs= and key=, or space= instead of configs=")
    given = {**dict(zip(names, leading, strict=False)), **trailing, **options}
    own_options = AutotuneOptions(**{name: value for name, value in given.items() if name in ours})
    stock_options = {name: value for name, value in given.items() if name not in ours}
    return lambda fn: TritonTuner(fn, stock_options, own_options)


def _runtime_signature() -> inspect.Signature:
    """Returns the signature with all parameters spelled out, as `help` shows it."""
    stock = inspect.signature(adapter.stock_autotune()).parameters.values()
    ours = inspect.signature(AutotuneOptions).parameters.values()
    needed = inspect.Parameter.empty
    return inspect.Signature(
        [parameter.replace(default=None) if parameter.default is needed else parameter for parameter in stock]
        + [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in ours]
    )


autotune.__signature__ = _runtime_signature()  # type: ignore[attr-defined]
