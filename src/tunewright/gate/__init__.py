"""A gate for CI: whether one program, function or checkout is slower than another, raced here and now."""

from typing import TYPE_CHECKING

from tunewright.lazy_names import lazy_names

if TYPE_CHECKING:
    from tunewright.gate.sides import open_sides, parse_side
    from tunewright.gate.verdict import GateOptions, GateOutcome, GateResult, run_gate

__all__ = ["GateOptions", "GateOutcome", "GateResult", "open_sides", "parse_side", "run_gate"]

# Every run of pytest imports this package for its plugin, and few race anything.
__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("open_sides", "parse_side"), "tunewright.gate.sides")
    | dict.fromkeys(("GateOptions", "GateOutcome", "GateResult", "run_gate"), "tunewright.gate.verdict"),
)
