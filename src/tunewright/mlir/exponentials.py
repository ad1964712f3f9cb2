"""Replaces calls of exp by a series that vectors can compute."""

from __future__ import annotations

from typing import Any

SHIFT = 3 * 2.0**22 + 126
"""Adding it rounds to an integer, whose low bits are then the biased exponent of half the power of two."""

SERIES = tuple(
    2 * term
    for term in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5, 1.0, 1.0)
)
"""Twice the coefficients of exp around 0, highest power first (Cephes)."""

LOG2_E, LN2_HIGH, LN2_LOW = 1.44269504088896, 0.693359375, -2.12194440e-4

LEAST, MOST = -87.0, 88.8
"""Where exp becomes 0 and infinity: at about the least normal number, and above the largest."""


def expand_exponentials(ir: Any, module: Any) -> int:
    """Compute each exp of float32 by a series, to about one unit in the last place. Returns how many there were."""
    calls: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name == "math.exp" and str(op.results[0].type).removeprefix("vector<").rstrip(">").endswith("f32"):
            calls.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for call in calls:
        with ir.InsertionPoint(call):
            value = _Series(ir, call.results[0].type).exp(call.operands[0])
        call.results[0].replace_all_uses_with(value)
        call.operation.erase()
    return len(calls)


class _Series:
    """Writes instructions on one type: float32, or vectors of it."""

    def __init__(self, ir: Any, kind: Any) -> None:
        self.ir, self.kind = ir, kind
        self.shape = list(ir.VectorType(kind).shape) if str(kind).startswith("vector<") else None
        self.integers = self._like(ir.IntegerType.get_signless(32))
        self.flags = self._like(ir.IntegerType.get_signless(1))

    def exp(self, x: Any) -> Any:
        """Returns exp(x)."""
        held = self.select("ogt", x, MOST, self.constant(MOST), x)
        held = self.select("olt", held, LEAST, self.constant(LEAST), held)
        shifted = self.fma(held, LOG2_E, SHIFT)
        power = self.op("arith.subf", [shifted, self.constant(SHIFT)])
        rest = self.fma(power, -LN2_LOW, self.fma(power, -LN2_HIGH, held))
        series = self.constant(SERIES[0])
        for term in SERIES[1:]:
            series = self.fma(series, rest, term)
        bits = self.op("arith.bitcast", [shifted], self.integers)
        places = self.ir.IntegerAttr.get(self.ir.IntegerType.get_signless(32), 23)
        exponent = self.op("arith.shli", [bits, self._constant(places, self.integers)], self.integers)
        return self.op("arith.mulf", [series, self.op("arith.bitcast", [exponent])])

    def fma(self, left: Any, right: Any, added: Any) -> Any:
        """Returns left * right + added; numbers become constants."""
        values = [self.constant(value) if isinstance(value, float) else value for value in (left, right, added)]
        return self.op("math.fma", values)

    def select(self, predicate: str, left: Any, right: float, yes: Any, no: Any) -> Any:
        """Returns one of two values by a comparison."""
        number = {"ogt": 2, "olt": 4}[predicate]
        attribute = self.ir.IntegerAttr.get(self.ir.IntegerType.get_signless(64), number)
        made = self.ir.Operation.create(
            "arith.cmpf",
            results=[self.flags],
            operands=[left, self.constant(right)],
            attributes={"predicate": attribute},
        )
        return self.op("arith.select", [made.results[0], yes, no])

    def constant(self, value: float) -> Any:
        """Returns a constant of the type."""
        return self._constant(self.ir.FloatAttr.get(self.ir.F32Type.get(), value), self.kind)

    def _constant(self, attribute: Any, kind: Any) -> Any:
        if self.shape is not None:
            attribute = self.ir.DenseElementsAttr.get_splat(kind, attribute)
        return self.ir.Operation.create("arith.constant", results=[kind], attributes={"value": attribute}).results[0]

    def op(self, name: str, operands: list[Any], kind: Any = None) -> Any:
        """Returns the result of an instruction."""
        return self.ir.Operation.create(name, results=[kind or self.kind], operands=operands).results[0]

    def _like(self, element: Any) -> Any:
        return element if self.shape is None else self.ir.VectorType.get(self.shape, element)
