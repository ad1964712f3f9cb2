"""Implementations in eager torch on memory shared with numpy. torch is imported at the first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from typing import Any

from tunewright.operators import standard
from tunewright.operators.operator import NARROW, Implementation, Operator, Support
from tunewright.ports.plugins import missing

COPIED = ("conv2d", "layer_norm", "attention")
"""Operators for which torch has no `out` argument, so that the result is copied."""

SUPPORT = Support(("float16", NARROW, "float32", "float64"))


def implementations() -> list[Implementation]:
    """Returns the implementations, on the CPU."""
    try:
        versions = {"torch": metadata.version("torch")}
    except metadata.PackageNotFoundError as error:
        raise missing("operators", "torch", ImportError(str(error), name="torch")) from error
    return [
        Implementation(
            "torch",
            op,
            _late(runs, op),
            narrow=_late(partial(runs, narrow=True), op),
            fresh=_late(news, op) if op.name in COPIED else None,
            support=SUPPORT,
            versions=versions,
        )
        for op in standard.STANDARD.values()
    ]


def _late(loaded: Callable[[], dict[str, Callable[..., Any]]], operator: Operator) -> Callable[..., Any]:
    """Returns a function that imports torch, which takes seconds, at its first call."""
    name = operator.name

    def run(*args: Any) -> Any:
        return loaded()[name](*args)

    return run


@cache
def runs(narrow: bool = False) -> dict[str, Callable[..., None]]:
    """Returns functions on numpy arrays, of bfloat16 if `narrow`."""
    import torch  # noqa: PLC0415 - heavy and optional

    functional = torch.nn.functional

    def see_narrow(array: Any) -> Any:
        return torch.from_numpy(array.view("u2")).view(torch.bfloat16)

    see = see_narrow if narrow else torch.from_numpy

    def product(a: Any, b: Any, out: Any) -> None:
        torch.matmul(see(a), see(b), out=see(out))

    def conv2d(x: Any, w: Any, out: Any) -> None:
        see(out).copy_(functional.conv2d(see(x), see(w)))

    def softmax(x: Any, out: Any) -> None:
        torch.softmax(see(x), -1, out=see(out))

    def layer_norm(x: Any, scale: Any, shift: Any, out: Any) -> None:
        see(out).copy_(functional.layer_norm(see(x), x.shape[1:], see(scale), see(shift), standard.EPSILON))

    def attention(q: Any, k: Any, v: Any, out: Any) -> None:
        see(out).copy_(functional.scaled_dot_product_attention(see(q)[None], see(k)[None], see(v)[None])[0])

    def transpose(x: Any, out: Any) -> None:
        see(out).copy_(see(x).T)

    def reduce(x: Any, out: Any) -> None:
        torch.sum(see(x), -1, out=see(out))

    every = (product, product, conv2d, softmax, layer_norm, attention, transpose, reduce)
    return dict(zip(standard.STANDARD, every, strict=True))


@cache
def news() -> dict[str, Callable[..., Any]]:
    """Returns functions that return torch's own result, where `runs` copies it."""
    import torch  # noqa: PLC0415 - as above

    functional, see = torch.nn.functional, torch.from_numpy

    def conv2d(x: Any, w: Any) -> Any:
        return functional.conv2d(see(x), see(w)).contiguous().numpy()

    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(see(x), x.shape[1:], see(scale), see(shift), standard.EPSILON).numpy()

    def attention(q: Any, k: Any, v: Any) -> Any:
        made = functional.scaled_dot_product_attention(see(q)[None], see(k)[None], see(v)[None])
        return made[0].contiguous().numpy()

    return dict(zip(COPIED, (conv2d, layer_norm, attention), strict=True))
