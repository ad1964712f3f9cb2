"""Trial: one config, tried once, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from tunewright.spaces.config import Config


def median(values: Sequence[float]) -> float:
    """The middle value; the mean of the two middle ones if their number is even."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Stage(StrEnum):
    """How far an attempt got."""

    BUILD = "build"
    WAIT = "wait"  # for the device, which times one at a time
    LOAD = "load"
    VERIFY = "verify"
    TIME = "time"


class Kind(StrEnum):
    """In which way an attempt failed."""

    REFUSED = "refused"  # the compiler or the backend would not take it
    WRONG = "wrong"  # it ran, and the result is not right
    RAISED = "raised"  # it raised an error
    CRASHED = "crashed"  # it took its process with it
    HUNG = "hung"  # it did not end before its deadline
    MEMORY = "memory"  # it wanted more memory than it may have


class Timing(msgspec.Struct, frozen=True, tag="timing", tag_field="is", omit_defaults=True):
    """It ran: seconds per launch, one entry per sample, by the clock named.

    If it was raced against the best so far, `ratio` is its time over that one's in the same rounds, and `par` what
    that one is taken to need: by both, trials compare although the machine changed its pace between them.
    """

    samples: Annotated[tuple[float, ...], msgspec.Meta(min_length=1)]
    clock: str = ""
    ratio: float | None = None
    par: float | None = None

    @property
    def seconds(self) -> float:
        """What it takes: by its race if it had one, else the centre of the samples."""
        return median(self.samples) if self.ratio is None or self.par is None else self.ratio * self.par


class Failure(msgspec.Struct, frozen=True, tag="failure", tag_field="is"):
    """It did not: where it stopped, in which way, and why in words."""

    stage: Stage
    kind: Kind
    reason: str


Outcome = Timing | Failure


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config with its outcome, what the attempt cost, and figures learned on the way (registers, spills).

    `fingerprint` tells its results on the check inputs from others bit for bit; `varies` if two runs differed.
    """

    config: Config
    outcome: Outcome
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    figures: dict[str, float] = {}
    at: float = 0.0
    fingerprint: str = ""

    @property
    def works(self) -> bool:
        """Whether it ran and was right."""
        return isinstance(self.outcome, Timing)

    @property
    def seconds(self) -> float:
        """Seconds per launch; infinite if it failed, so that trials can be compared."""
        return self.outcome.seconds if isinstance(self.outcome, Timing) else float("inf")


CLEARLY = 0.97
"""How much faster a trial must look to become the rival of those that follow: luck must not be handed on as fact."""


class Rival(msgspec.Struct, frozen=True):
    """The best so far, whom a new candidate is raced against, and what it is taken to need."""

    config: Config
    seconds: float


class Entry(msgspec.Struct, frozen=True):
    """A config to be tried, and its rival if there is one yet."""

    config: Config
    rival: Rival | None = None
