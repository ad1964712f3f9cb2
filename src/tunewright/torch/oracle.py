"""Expected results: what a call must compute on other contents, and how far results may be from it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tunewright.errors import BackendError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.judge import MAX_EXPECTED
from tunewright.measure.kernel_workload import MAX_ROTATED_BYTES
from tunewright.torch.diagnostics.numerics import as_reals, distances, finite_part, is_real_or_complex, to_double
from tunewright.torch.tensor_sets import Change, TensorContents, roll, scale, scale_by_size

log = LazyLogger(__name__)

MAX_ERROR_RATIO, MAX_LOCAL_RATIO = 4, 16
"""How many times the eager error the error of a candidate may be: of a whole tensor, and of its worst element."""

LOCAL_SHARE = 16
"""How many times the allowed error of a tensor the error of each of its elements may be in any case."""

MAX_SPREAD = 16
"""How many times the errors allowed on the first contents may be allowed on all, if eager errors vary by so much."""

MIN_SHOWN = 0.01
"""How far results must be from each other, relative to their norm, to show that contents differ."""

FEW_NUMBERS, PERTURBATIONS = 64, 3
"""Results of so few numbers may have a tiny eager error by chance. So errors are allowed too that contents have which
differ by their rounding alone, as often as this."""

REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError)
"""Errors by which PyTorch refuses to compute something."""


class Errors(NamedTuple):
    """How far results are from exact ones, or may be.

    The distance of a tensor relative to its norm; that of an element relative to its size and the typical size in its
    tensor; the share of integers that differ. Each is that of the worst tensor.
    """

    relative: float = 0.0
    local: float = 0.0
    differing: float = 0.0

    def or_larger(self, other: Errors) -> Errors:
        """Returns the larger of each."""
        return Errors(*map(max, self, other))

    def limited(self, relative: float) -> Errors:
        """Returns these errors, limited to what a relative error allows."""
        return Errors(*map(min, self, (relative, LOCAL_SHARE * relative, relative)))

    def at_most(self, other: Errors, times: float) -> Errors:
        """Returns these errors, limited to so many times others."""
        return Errors(*(min(own, times * limit) for own, limit in zip(self, other, strict=True)))


class ExpectedTensors(NamedTuple):
    """What a call must compute: exact results, the dtypes in which they are returned, and the errors allowed."""

    results: list[Any]
    dtypes: list[torch.dtype]
    allowed: Errors

    @classmethod
    def of(cls, eager: Sequence[Any], exact: Sequence[Any]) -> ExpectedTensors:
        """Returns exact results, from which candidates may be a few times as far as eager ones."""
        dtypes, exact = [tensor.dtype for tensor in eager], list(map(_unknown_where_lost, eager, exact))
        eps = max((float(torch.finfo(tensor.dtype).eps) for tensor in eager if is_real_or_complex(tensor)), default=0.0)
        own = measure_errors(eager, exact)
        relative = max(MAX_ERROR_RATIO * own.relative, eps)
        local = max(MAX_LOCAL_RATIO * own.local, LOCAL_SHARE * relative)
        return cls(exact, dtypes, Errors(relative, local, MAX_ERROR_RATIO * own.differing))

    @classmethod
    def within(cls, results: Sequence[Any], relative: float) -> ExpectedTensors:
        """Returns results from which candidates may be so far."""
        exact, dtypes = [to_double(tensor).clone() for tensor in results], [tensor.dtype for tensor in results]
        return cls(exact, dtypes, Errors(relative, LOCAL_SHARE * relative))

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(tensor.nbytes for tensor in self.results)

    def find_problem(self, results: Sequence[Any], allowed: Errors, norms: Sequence[float] = ()) -> str | None:
        """Returns what is wrong with results; None if they are right. Errors are relative to `norms` if larger."""
        if [tensor.shape for tensor in results] != [tensor.shape for tensor in self.results]:
            return "its results have another shape"
        if [tensor.dtype for tensor in results] != self.dtypes:
            return "its results have another dtype"
        errors = measure_errors(results, self.results, norms)
        if errors.differing > allowed.differing:
            return f"{errors.differing:.2%} of its integers differ"
        if not errors.relative <= allowed.relative:
            return f"its relative error is {errors.relative:.1e}, where {allowed.relative:.1e} is allowed"
        if not errors.local <= allowed.local:
            return f"an element is off by {errors.local:.1e} of its size, where {allowed.local:.1e} is allowed"
        return None


def measure_errors(results: Sequence[Any], exact: Sequence[Any], norms: Sequence[float] = ()) -> Errors:
    """Returns how far results are from exact ones, relative to their norms or to `norms` if larger.

    What is NaN is not known exactly.
    """
    worst = Errors()
    for result, right, norm in zip(results, exact, norms or [0.0] * len(exact), strict=True):
        if not right.numel():
            continue
        if not is_real_or_complex(right):
            worst = worst.or_larger(Errors(differing=float((result != right).double().mean())))
            continue
        apart, right = distances(result, right).masked_fill(as_reals(right).isnan(), 0.0), finite_part(right)
        size = max(float(right.norm()), norm)
        typical = max(size / right.numel() ** 0.5, 1e-300)
        relative, local = float(apart.norm()) / max(size, 1e-300), float((apart / (right.abs() + typical)).max())
        worst = worst.or_larger(Errors(relative, local))
    return worst


def _unknown_where_lost(eager: Any, exact: Any) -> Any:
    """Returns exact results with NaN where eager ones are out of the range of their dtype, and others may not be."""
    if not is_real_or_complex(eager):
        return exact
    lost = ~eager.isfinite() & exact.isfinite()
    return exact.masked_fill(lost, torch.nan) if bool(lost.any()) else exact


Expect = Callable[[Sequence[Any]], ExpectedTensors]
"""Returns what a call must compute on given arguments; raises one of REFUSALS if they do not suit it."""


class Oracle:
    """Computes what is right on the contents of a draw, and keeps the latest of it."""

    first: ExpectedTensors

    def __init__(self, contents: TensorContents, expect: Expect) -> None:
        self._contents, self._expect = contents, expect
        self._known: OrderedDict[tuple[int, int], ExpectedTensors | None] = OrderedDict()
        self._allowed = Errors()
        self._norms: list[float] = []
        self.seconds = 0.0

    def prepare(self) -> None:
        """Computes the first results, and finds out how contents can change. Raises BackendError if that fails."""
        try:
            self.first = self._compute(0)
        except REFUSALS as error:
            raise BackendError(f"the expected results cannot be computed: {type(error).__name__}: {error}") from error
        self._norms = [_norm(tensor) for tensor in self.first.results]
        self._contents.change = self._find_change()
        self._known = OrderedDict({(0, 0): self.first})

    def _find_change(self) -> Change | None:
        """Returns the change of contents that shows in most results; None if no change suits the call.

        Random numbers may be moved. A structure may be lost by that, but hardly by scaling, which shows in most
        results, too; if elements are scaled by their size, also where results are normalized.
        """
        shown: dict[Change, int] = {}
        scalings = scale_by_size, scale
        for change in (*scalings, roll) if self._contents.call.structured else (roll, *scalings):
            self._contents.change = change
            if not self._contents.can_change:
                return None
            if (other := self._try(1)) is not None:
                shown[change] = sum(map(self._differ, self.first.results, other.results))
            if shown.get(change) == len(self.first.results):
                break
        return max(shown, key=lambda change: shown[change], default=None)

    def _differ(self, one: Any, other: Any) -> bool:
        if one.shape != other.shape:
            return True
        errors, allowed = measure_errors([one], [other]), self._allowed
        is_shown = errors.relative > max(MIN_SHOWN, MAX_ERROR_RATIO * allowed.relative)
        return is_shown or errors.differing > max(MIN_SHOWN, MAX_ERROR_RATIO * allowed.differing)

    def renew(self, seed: int) -> None:
        """Changes all contents to others that nobody has seen, if they suit the call."""
        self._contents.seed = seed
        if self._contents.can_change and self._expected(0) is None:
            self._contents.seed = 0

    def usable(self, draw: int) -> int:
        """Returns the draw, or 0 if it is not known what is right on its contents."""
        return draw if self._expected(draw) is not None else 0

    def compare(self, draw: int, results: Sequence[Any]) -> str | None:
        """Returns what is wrong with results on the contents of a usable draw; None if they are right."""
        expected = self._expected(draw)
        assert expected is not None
        # A single number may be near zero by chance, and its error relative to the terms that it is a sum of.
        return expected.find_problem(results, expected.allowed.or_larger(self._allowed), self._norms)

    def _expected(self, draw: int) -> ExpectedTensors | None:
        key = (self._contents.seed, draw) if self._contents.can_change else (0, 0)
        if key not in self._known:
            self._known[key] = self._try(draw)
            self._drop_oldest()
        self._known.move_to_end(key)
        return self._known[key]

    def _drop_oldest(self) -> None:
        while len(self._known) > 2 and (len(self._known) > MAX_EXPECTED or self._nbytes > MAX_ROTATED_BYTES):
            self._known.popitem(last=False)

    @property
    def _nbytes(self) -> int:
        return sum(expected.nbytes for expected in self._known.values() if expected is not None)

    def _try(self, draw: int) -> ExpectedTensors | None:
        """Returns what is right; None if it cannot be computed, or has infinities that the first results have not."""
        try:
            expected = self._compute(draw)
        except REFUSALS as error:
            log.info("contents that do not suit the call are not used: %s", error)
            return None
        if _count_infinite(expected) > _count_infinite(self.first):
            return None
        self._allowed = self._allowed.or_larger(expected.allowed.at_most(self.first.allowed, MAX_SPREAD))
        return expected

    def _compute(self, draw: int) -> ExpectedTensors:
        began = time.perf_counter()
        values = self._contents.make(draw)
        expected = self._expect(values)
        self.seconds = time.perf_counter() - began
        if sum(tensor.numel() for tensor in expected.results) > FEW_NUMBERS:
            return expected
        return expected._replace(allowed=expected.allowed.or_larger(self._sensitivity(values, expected)))

    def _sensitivity(self, values: Sequence[Any], expected: ExpectedTensors) -> Errors:
        """Returns the errors to allow because contents are rounded."""
        found = Errors()
        for number in range(PERTURBATIONS):
            try:
                others = self._expect(self._contents.perturb(values, number)).results
            except REFUSALS:  # rounded contents may not suit the call
                continue
            if [tensor.shape for tensor in others] == [tensor.shape for tensor in expected.results]:
                found = found.or_larger(measure_errors(others, expected.results))
        return Errors(MAX_ERROR_RATIO * found.relative, MAX_LOCAL_RATIO * found.local)


def _norm(tensor: Any) -> float:
    """Returns the norm of a tensor of floats; 0 of others, which are compared exactly."""
    return float(finite_part(tensor).norm()) if tensor.numel() and is_real_or_complex(tensor) else 0.0


def _count_infinite(expected: ExpectedTensors) -> int:
    """Returns how many results are not finite numbers."""
    return sum(int((~tensor.isfinite()).sum()) for tensor in expected.results)
