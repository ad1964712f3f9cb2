"""Audits: results of timed launches are compared at moments that a candidate cannot foresee."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import SystemRandom

from tunewright.measure.clock import Sampler
from tunewright.ports.candidate import Candidate, WrongResult

AUDITED_SHARE = 0.25
"""The share of rounds whose results are compared, if that is cheap."""

FIRST_ROUNDS = 3
"""One of these rounds is audited at least."""

MAX_AUDITS = 4
"""Rounds whose results are compared in one race."""

MAX_COST = 0.1
"""The share of the time for samples that audits may take; the last check is made in any case."""

CHEAP_ORACLE = 0.25
"""The share of a launch that expected results may take if every sample of a slow candidate is to be compared."""

MAX_ORACLE_SECONDS = 0.25
"""If expected results take longer than this, trials are checked on contents for which they are known."""


OWN_ORACLE_SECONDS = 5e-3
"""If expected results take no longer than this, no candidate is audited on contents that another has seen."""


def new_draw() -> int:
    """Returns a draw that no one can foresee."""
    return 1 + SystemRandom().getrandbits(30)


def audited_draws() -> list[int]:
    """Returns the draws on which candidates are audited and checked last: few, so that expected results are kept."""
    return [new_draw() for _ in range(MAX_AUDITS + 1)]


class AuditSchedule:
    """The contents of each round, and whether results are compared in it; drawn at random as the rounds come.

    Each candidate has contents of its own, so that none can use what another computed. If expected results take long,
    audits are made on a few contents that are `shared`, so that they are computed once: some of the `audited_draws`,
    each once. One of the first rounds is always audited. The last check uses new contents if they are `always_new`, or
    expected results are cheap.
    """

    def __init__(
        self, oracle_seconds: float, audited_draws: Sequence[int], *, always_new: bool = False, verified: bool = True
    ) -> None:
        self.oracle_seconds, self.verified = oracle_seconds, verified
        self._random = SystemRandom()
        self._audited_draws = self._random.sample(audited_draws, len(audited_draws))
        self._rounds: list[tuple[int, bool]] = []
        self._first_audit = self._random.randrange(FIRST_ROUNDS)
        self.is_cheap = always_new or oracle_seconds <= MAX_ORACLE_SECONDS
        self.shared = oracle_seconds > OWN_ORACLE_SECONDS
        self._last = self._audited_draws.pop() if self.is_cheap else 0

    @property
    def last(self) -> int:
        """The draw of a last check."""
        return self._last if self.shared else new_draw()

    def round(self, number: int) -> tuple[int, bool]:
        """Returns the draw of a round, and whether results are compared in it; the first contents if not `verified`."""
        if not self.verified:
            return 0, False
        while len(self._rounds) <= number:
            is_due = len(self._rounds) == self._first_audit or self._random.random() < AUDITED_SHARE
            audited = is_due and bool(self._audited_draws)
            self._rounds.append((self._audited_draws.pop() if audited else 0, audited))
        draw, audited = self._rounds[number]
        return draw if audited and self.shared else new_draw(), audited


class HurriedSchedule(AuditSchedule):
    """For a few samples of slow candidates: each is compared, and there is no last check.

    If expected results take long beside a launch, one more launch is compared instead.
    """

    def __init__(self, oracle_seconds: float, launch_seconds: float, last: int, *, verified: bool = True) -> None:
        super().__init__(oracle_seconds, [last], verified=verified)
        self._last, self.is_cheap = last, oracle_seconds <= CHEAP_ORACLE * launch_seconds
        self.shared = not self.is_cheap

    def round(self, number: int) -> tuple[int, bool]:
        """Returns a new draw, and whether results are compared in it."""
        return (new_draw(), self.is_cheap) if self.verified else (0, False)


class AuditedSampler:
    """Samples a candidate on the contents of each round, and compares the results of some of them."""

    def __init__(
        self, candidate: Candidate, schedule: AuditSchedule, on_sample: Callable[[], None], *, audited: bool = True
    ) -> None:
        self.candidate, self.schedule, self._is_audited = candidate, schedule, audited and schedule.verified
        self._on_sample = on_sample
        self._round = 0
        self._sampling = self._auditing = 0.0

    def __call__(self) -> float:
        """Returns seconds per launch; raises WrongResult with the number of the launch if a result is wrong."""
        draw, is_due = self.schedule.round(self._round)
        audited, began = self._is_audited and is_due and self._can_afford(), time.perf_counter()
        self._round += 1
        seconds = self._naming_launch(lambda: self._sample(draw, audited=audited))
        elapsed = time.perf_counter() - began
        self._on_sample()
        if audited:
            self._auditing += elapsed
        else:
            self._sampling += elapsed
        return seconds

    def _sample(self, draw: int, *, audited: bool) -> float:
        """Samples on the contents of a draw; if others have seen them, what counts is a sample on new ones."""
        if not self.schedule.verified or not self.schedule.shared:
            return self.candidate.sample(draw, audited=audited)
        if audited:
            self.candidate.sample(draw, audited=True)
        return self.candidate.sample(new_draw(), audited=False)

    def _can_afford(self) -> bool:
        """Whether there is time: always for the first audit, unless expected results take long."""
        if isinstance(self.schedule, HurriedSchedule):
            return True
        if not self._auditing:
            return self.schedule.is_cheap
        return self._auditing <= MAX_COST * self._sampling

    def finish(self, launches: int) -> None:
        """Checks the results of some more launches after the last sample; raises WrongResult."""

        hurried = isinstance(self.schedule, HurriedSchedule)

        def check() -> float:
            if hurried:
                return self.candidate.sample(self.schedule.last, audited=True)
            if problem := self.candidate.check(self.schedule.last, launches=launches):
                raise WrongResult(problem)
            return 0.0

        if self._is_audited and not (hurried and self.schedule.is_cheap):
            self._naming_launch(check)

    def _naming_launch(self, call: Sampler) -> float:
        try:
            return call()
        except WrongResult as error:
            raise WrongResult(f"{error} (launch {self.candidate.launches:,})") from None
