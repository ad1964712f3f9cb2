"""Operators: what programs compute, and the implementations that can do it; `from tunewright.operators import gemm`."""

from typing import Any

from tunewright.operators.dispatching import Dispatched, dispatch
from tunewright.operators.operator import Implementation, Operator, Support, Template

__all__ = ["Dispatched", "Implementation", "Operator", "Support", "Template", "dispatch"]


def __getattr__(name: str) -> Any:
    """Every operator by its name, and as `gemm_on_2` on so many threads."""
    from tunewright.operators.dispatching import shared  # noqa: PLC0415 - not a name of this package
    from tunewright.operators.registry import installed  # noqa: PLC0415

    operator, _, threads = name.rpartition("_on_")
    operator = operator if threads.isdigit() and operator else name
    if name.startswith("__") or operator not in installed().operators:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return shared(operator, int(threads) if operator != name else None)
