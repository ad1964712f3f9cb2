"""Judges: compare the results of launches with what the reference, or else the default config, computes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

from tunewright.cases.expected import ExpectedResults
from tunewright.cases.sensitivity import Nudge
from tunewright.cases.tolerance import expected_from
from tunewright.cases.validation import Content, PreparedCase
from tunewright.errors import BackendError
from tunewright.stores.file_lock import exclusive_lock

if TYPE_CHECKING:
    from tunewright.measure.kernel_workload import KernelWorkload

MAX_EXPECTED = 16
"""How many expected results are kept."""

ClaimedTime = Callable[[], tuple[float, str]]
"""Runs launches for some milliseconds; returns their seconds and the clock by which they were measured."""


class Judge(Protocol):
    """Knows what results are right; `seconds` is about how long it takes for contents it has not seen."""

    seconds: float

    def prepare(self) -> None:
        """Computes the first expected results. Raises BackendError if the reference fails."""
        ...

    def compare(self, content: Content, results: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with results; None if they are right."""
        ...

    def check_clock(self, claimed: ClaimedTime) -> str | None:
        """Returns how the clock of this process deviates from a clock that no candidate can reach; None if not."""
        ...


class KernelJudge:
    """A judge in this process: computes expected results, and keeps the latest of them."""

    def __init__(self, workload: KernelWorkload) -> None:
        self._workload = workload
        self._cases: dict[tuple[int, int], PreparedCase] = {}
        self._expected: OrderedDict[Content, ExpectedResults] = OrderedDict()
        self.seconds = 0.0

    def prepare(self) -> None:
        """Computes the expected results of every case. Raises BackendError if the reference fails."""
        with exclusive_lock(self._workload.lock):  # a reference may use all cores
            for number in range(len(self._workload.cases)):
                self.expected(Content(number))

    def compare(self, content: Content, results: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with results; None if they are right."""
        same_dtype = self._workload.check.reference is None
        return self.expected(content).mismatch(results, self._case(content).tolerance, same_dtype=same_dtype)

    def check_clock(self, claimed: ClaimedTime) -> str | None:
        """Returns None: in the same process there is no other clock."""
        return None

    def _case(self, content: Content) -> PreparedCase:
        place = content.case, content.seed
        if place not in self._cases:
            if len(self._cases) >= 2 * len(self._workload.cases) + 2:  # sets of earlier races
                self._cases = {key: case for key, case in self._cases.items() if key[1] == 0}
            self._cases[place] = self._workload.prepare_case(*place)
        return self._cases[place]

    def expected(self, content: Content) -> ExpectedResults:
        """Returns the expected results for contents; they are computed once, and the latest are kept."""
        if content in self._expected:
            self._expected.move_to_end(content)
            return self._expected[content]
        began, by = time.perf_counter(), self._by_reference if self._workload.check.reference else self._by_default
        self._expected[content] = ExpectedResults(lambda nudge: by(self._case(content), content.draw, nudge))
        self.seconds = time.perf_counter() - began
        if len(self._expected) > MAX_EXPECTED:
            self._expected.popitem(last=False)
        return self._expected[content]

    def _by_reference(self, case: PreparedCase, draw: int, nudge: Nudge | None) -> list[Any]:
        workload = self._workload
        reference, precise = workload.check.reference, workload.check.precise
        assert reference is not None
        case.arguments.reset(draw)
        try:
            parameters, args = workload.kernel.parameters, case.arguments.originals
            return expected_from(reference, parameters, args, precise=precise, nudge=nudge)
        except Exception as error:
            hint = '; if it takes only the dtypes of the kernel, declare precision="same"' if precise else ""
            raise BackendError(f"the reference raised {type(error).__name__}: {error}{hint}") from error

    def _by_default(self, case: PreparedCase, draw: int, nudge: Nudge | None) -> list[Any]:
        workload = self._workload
        try:
            artifact = workload.backend.build(workload.kernel, workload.default, case.signature)
            results = case.run(workload.backend.load(workload.kernel, artifact), draw, nudge=nudge)
            if not nudge and (damage := case.arguments.damage()):
                raise BackendError(damage)
        except Exception as error:
            raise BackendError(
                f"there is no reference, and the default config ({workload.default}) fails: "
                f"{type(error).__name__}: {error}; give a `reference=` or another `default=`"
            ) from error
        values = list(results.values())
        is_tuple = len(values) == 1 and isinstance(values[0], tuple) and len(values[0]) > 1
        return deepcopy(list(values[0]) if is_tuple else values)
