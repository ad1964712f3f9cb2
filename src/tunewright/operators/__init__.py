"""Standard operators that choose the fastest implementation: `from tunewright.operators import gemm`."""

import warnings
from typing import Any

from tunewright.operators.dispatch import DispatchedOperator, dispatch
from tunewright.operators.operator import Implementation, Operator, Support, Template

__all__ = ["DispatchedOperator", "Implementation", "Operator", "Support", "Template", "dispatch"]


def __getattr__(name: str) -> Any:
    """Returns an operator by its name, or as `gemm_on_2` for 2 threads."""
    from tunewright.operators.dispatch import shared_operator  # noqa: PLC0415 - not a name of this package
    from tunewright.operators.registry import installed  # noqa: PLC0415

    if name == "Dispatched":
        warnings.warn("tunewright.operators.Dispatched is now DispatchedOperator", DeprecationWarning, stacklevel=2)
        return DispatchedOperator
    operator, _, threads = name.rpartition("_on_")
    operator = operator if threads.isdigit() and operator else name
    if name.startswith("__") or operator not in installed().operators:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return shared_operator(operator, int(threads) if operator != name else None)
