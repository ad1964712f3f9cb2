"""Trials: one config, tried once, with its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from tunewright.spaces.config import Config


def median(values: Sequence[float]) -> float:
    """Returns the middle value, or the mean of the two middle values."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Stage(StrEnum):
    """The stages of a trial, in order."""

    BUILD = "build"
    WAIT = "wait"  # for the device, which times one trial at a time
    LOAD = "load"
    VERIFY = "verify"
    TIME = "time"


class Kind(StrEnum):
    """The kinds of failure."""

    REFUSED = "refused"  # the compiler or the backend rejected the config
    WRONG = "wrong"  # the result is wrong
    RAISED = "raised"  # the kernel raised an error
    CRASHED = "crashed"  # the process died
    HUNG = "hung"  # the deadline passed
    MEMORY = "memory"  # the memory limit was exceeded
    BUSY = "busy"  # the device was busy or unavailable
    STOPPED = "stopped"  # the budget was over while it ran; never stored: it says nothing, or the config is called hung


TRANSIENT = frozenset({Kind.MEMORY, Kind.HUNG, Kind.BUSY})
"""Failures that may come from what else ran on the machine; see `engine.journal.remembered`."""

ENDED_BY_BUDGET = "ended_by_budget"
"""The metric of a config that is called hung because it ran until the budget was over."""


class Timing(msgspec.Struct, frozen=True, tag="timing", tag_field="is", omit_defaults=True):
    """The outcome of a trial that worked: seconds per launch for each sample, by the named clock.

    If the config was raced against the incumbent, `ratio` is its time divided by the incumbent's in the same rounds,
    and `incumbent_seconds` the reference time of the incumbent. Their product compares between trials even if the
    machine changed its speed. If `is_first`, the only sample is the first launch, which may contain a compilation.
    """

    samples: Annotated[tuple[float, ...], msgspec.Meta(min_length=1)]
    clock: str = ""
    ratio: float | None = None
    incumbent_seconds: float | None = msgspec.field(default=None, name="par")
    is_first: bool = msgspec.field(default=False, name="first")

    @property
    def seconds(self) -> float:
        """Seconds per launch: from the race against the incumbent if there was one, else the median sample."""
        if self.ratio is None or self.incumbent_seconds is None:
            return median(self.samples)
        return self.ratio * self.incumbent_seconds

    def is_comparable(self, other: Timing) -> bool:
        """Whether both times are of the same kind: by one clock or from a race, and none with a compilation."""
        raced = self.ratio is not None or other.ratio is not None
        return not self.is_first and (raced or self.clock == other.clock or self is other)


class Failure(msgspec.Struct, frozen=True, tag="failure", tag_field="is"):
    """The outcome of a trial that failed: at which stage, how, and why."""

    stage: Stage
    kind: Kind
    reason: str


Outcome = Timing | Failure


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config with its outcome, what the trial cost, and further metrics (registers, spills, retries).

    `fingerprint` identifies the results on the check inputs bit for bit; it is "varies" if two runs differed. `by` says
    which search made the trial: host, process id and start, such as "node7:4711:1700000000".
    """

    config: Config
    outcome: Outcome
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    metrics: dict[str, float] = msgspec.field(default_factory=dict, name="figures")
    at: float = 0.0
    fingerprint: str = ""
    by: str = ""

    @property
    def works(self) -> bool:
        """Whether the config ran and its results were right."""
        return isinstance(self.outcome, Timing)

    @property
    def seconds(self) -> float:
        """Seconds per launch; infinite if the trial failed."""
        return self.outcome.seconds if isinstance(self.outcome, Timing) else float("inf")


CLEARLY_FASTER = 0.97
"""A trial replaces the incumbent only below this ratio of its time, so that lucky measurements do not accumulate."""


class Incumbent(msgspec.Struct, frozen=True):
    """The best config so far, which new candidates are raced against, and its reference time."""

    config: Config
    seconds: float


class Allowance(msgspec.Struct, frozen=True):
    """How long a trial may take by the budget: its runs should end after `usual` seconds, all of it after `most`.

    `until` is the time of day at which `most` ends, if known. `compiles_late` says whether earlier configs took longer
    at their first launch than at the second, if that is known.
    """

    usual: float
    most: float
    compiles_late: bool | None = None
    until: float = 0.0


class TrialRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config to try, the incumbent if there is one yet, and how long it may take; None means as long as it takes.

    An `essential` one, the default, may end its first run whatever the budget says.
    """

    config: Config
    incumbent: Incumbent | None = msgspec.field(default=None, name="rival")
    allowance: Allowance | None = None
    essential: bool = False
