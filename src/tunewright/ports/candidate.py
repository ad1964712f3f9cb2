"""The Workload and Candidate protocols: what differs between kinds of kernels when configs are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, Protocol

from tunewright.errors import TunewrightError
from tunewright.spaces.config import Config


class WrongResult(TunewrightError):
    """Raised while a candidate is sampled, if one of its launches computed something else."""


class HasClock(Protocol):
    """A timer, of which only the clock is known."""

    clock: str


class Candidate(Protocol):
    """A config that is ready to run in this process, with arguments to run it on.

    Arguments change from sample to sample: a draw selects a set of them and its contents. Compared candidates get the
    same draws in the same order.
    """

    @property
    def launches(self) -> int:
        """Launches so far, which an error names."""
        ...

    @property
    def timers(self) -> Sequence[HasClock]:
        """Its timers, so that compared candidates use the same clock."""
        ...

    @property
    def launch_seconds(self) -> float:
        """About how long a launch takes, by the wall clock; 0 if that is not known."""
        ...

    @property
    def first_sample(self) -> tuple[float, str]:
        """What the first launch counts as if it stays the only one, and by which clock."""
        ...

    def verify(self, seconds: float = inf) -> tuple[str | None, str]:
        """Returns what is wrong with its results, and their fingerprint over two runs, or one if two take longer."""
        ...

    def hurry(self) -> None:
        """Launches from now on no more often than needed: there is no time to prepare samples."""
        ...

    def sample(self, draw: int, *, audited: bool) -> float:
        """Returns seconds per launch on the contents of a draw; raises WrongResult if `audited` results are wrong."""
        ...

    def check(self, draw: int, *, launches: int) -> str | None:
        """Launches up to so many times on the contents of a draw, and returns what is wrong with the results."""
        ...


class Workload(Protocol):
    """A problem whose configs can be built and run."""

    @property
    def name(self) -> str:
        """The name of the kernel, for messages."""
        ...

    @property
    def lock(self) -> Path | None:
        """The file that one process at a time holds while it runs candidates; None if they need no device."""
        ...

    @property
    def oracle_seconds(self) -> float:
        """About how long it takes to compute the expected results of a new draw."""
        ...

    def prepare(self) -> None:
        """Computes the first expected results. Raises BackendError if that fails, which is no config's fault."""
        ...

    def renew(self) -> None:
        """Replaces the arguments by new ones that no candidate has seen."""
        ...

    def build(self, config: Config) -> Any:
        """Returns what `load` takes; needs no device."""
        ...

    def load(self, config: Config, artifact: Any) -> Candidate:
        """Makes a config ready in this process."""
        ...
