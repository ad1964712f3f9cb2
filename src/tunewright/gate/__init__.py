"""A gate for CI: whether one program, function or checkout is slower than another, raced here and now."""

from tunewright.gate.sides import open_sides, parse_side
from tunewright.gate.verdict import GateOptions, GateResult, GateOutcome, run_gate

__all__ = ["GateOptions", "GateResult", "GateOutcome", "open_sides", "parse_side", "run_gate"]
