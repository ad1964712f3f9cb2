"""Messages to and from the actors of the Ray pool: an attempt as data, and what a build produced."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, PluginError
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.model.trial import Trial
from tunewright.pools.worker import IsolatedAttempt


class AttemptJob(msgspec.Struct, frozen=True):
    """An isolated attempt as data; a cache under the home folder is under the home folder of every machine."""

    path: list[str]
    target: str
    cases: tuple[Inputs, ...]
    cache: str
    threads: int
    limits: Limits

    @classmethod
    def from_attempt(cls, attempt: IsolatedAttempt) -> AttemptJob:
        """Describes an attempt for another machine; raises PluginError if its kernel cannot be found there."""
        if attempt.target is None:
            raise PluginError(
                "this kernel cannot be found by name from another machine: define it in a module or a script, "
                'outside of functions, or use pool="process"'
            )
        cache, home = attempt.cache, Path.home()
        cache_text = f"~/{cache.relative_to(home)}" if cache.is_relative_to(home) else str(cache)
        return cls(sys.path, attempt.target, attempt.cases, cache_text, attempt.threads, attempt.limits)

    def to_attempt(self, *, build_only: bool = False) -> IsolatedAttempt:
        """Returns the attempt, to be run by this process."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        cache = Path(self.cache).expanduser()
        return IsolatedAttempt(_no_evaluator, self.cases, cache, self.target, self.threads, self.limits, build_only)


class BuildReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names of built artifacts and the seconds they took; or the trial, if it ended there."""

    names: tuple[str, ...] = ()
    seconds: float = 0.0
    trial: Trial | None = None


def _no_evaluator() -> Evaluator:
    raise BackendError("a job on another machine loads its kernel by name")
