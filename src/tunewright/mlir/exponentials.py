"""Replaces calls of exp, erf and tanh by series that vectors can compute."""

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


TANH_SERIES = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
"""tanh(x) / x - 1 in powers of the square of x, where that is less than `TANH_SMALL` squared (Cephes)."""

TANH_SMALL, ERF_SMALL = 0.625, 0.5

ERF_SERIES = tuple(1.1283791670955126 * term for term in (-1 / 1320, 1 / 216, -1 / 42, 1 / 10, -1 / 3, 1.0))
"""erf(x) / x around 0, in powers of the square of x."""

ERF_TAIL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""(1 - erf(x)) exp(x * x) in powers of 1 / (1 + `ERF_SCALE` x) (Abramowitz and Stegun, 7.1.26), to 1.5e-7."""

ERF_SCALE = 0.3275911


EXPANDED = ("math.exp", "math.erf", "math.tanh")
"""Functions that are replaced."""


def expand_exponentials(ir: Any, module: Any) -> int:
    """Compute each exp, erf and tanh of float32 by a series. Returns how many there were.

    exp and tanh are right to about one unit in the last place, erf to about five.
    """
    calls: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name in EXPANDED and str(op.results[0].type).removeprefix("vector<").rstrip(">").endswith("f32"):
            calls.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for call in calls:
        with ir.InsertionPoint(call):
            value = getattr(_Series(ir, call.results[0].type), call.name.removeprefix("math."))(call.operands[0])
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
        series = self.powers(SERIES, rest)
        bits = self.op("arith.bitcast", [shifted], self.integers)
        places = self.ir.IntegerAttr.get(self.ir.IntegerType.get_signless(32), 23)
        exponent = self.op("arith.shli", [bits, self._constant(places, self.integers)], self.integers)
        return self.op("arith.mulf", [series, self.op("arith.bitcast", [exponent])])

    def tanh(self, x: Any) -> Any:
        """Returns tanh(x): by a series near 0, else 1 - 2 / (exp(2 |x|) + 1) with the sign of x."""
        size, square = self.op("math.absf", [x]), self.op("arith.mulf", [x, x])
        near = self.fma(self.op("arith.mulf", [self.powers(TANH_SERIES, square), square]), x, x)
        one = self.constant(1.0)
        power = self.exp(self.op("arith.addf", [size, size]))
        rest = self.op("arith.divf", [self.constant(2.0), self.op("arith.addf", [power, one])])
        return self._joined(x, size, TANH_SMALL, near, self.op("arith.subf", [one, rest]))

    def erf(self, x: Any) -> Any:
        """Returns erf(x): by a series near 0, else by its tail with the sign of x."""
        size, square = self.op("math.absf", [x]), self.op("arith.mulf", [x, x])
        near = self.op("arith.mulf", [self.powers(ERF_SERIES, square), x])
        one = self.constant(1.0)
        part = self.op("arith.divf", [one, self.fma(size, ERF_SCALE, one)])
        power = self.exp(self.op("arith.negf", [square]))
        tail = self.op("arith.mulf", [self.op("arith.mulf", [self.powers(ERF_TAIL, part), part]), power])
        return self._joined(x, size, ERF_SMALL, near, self.op("arith.subf", [one, tail]))

    def _joined(self, x: Any, size: Any, limit: float, near: Any, far: Any) -> Any:
        """Returns `near` where x is small, else `far` with the sign of x."""
        return self.select("olt", size, limit, near, self.op("math.copysign", [far, x]))

    def powers(self, terms: tuple[float, ...], x: Any) -> Any:
        """Returns a polynomial, its terms given from the highest power on."""
        series = self.constant(terms[0])
        for term in terms[1:]:
            series = self.fma(series, x, term)
        return series

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
