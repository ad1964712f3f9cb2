"""Errand: what travels to another machine: where the kernel is, on what to try it, and what was built already."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, PluginError
from tunewright.measure.attempt import Bench, Limits
from tunewright.model.trial import Trial
from tunewright.pools.isolate import Isolated


class Errand(msgspec.Struct, frozen=True):
    """An isolated attempt as data; a cache under the home folder is under the home folder of every machine."""

    path: list[str]
    target: str
    cases: tuple[Inputs, ...]
    cache: str
    threads: int
    limits: Limits

    @classmethod
    def of(cls, attempt: Isolated) -> Errand:
        """What is said of an attempt elsewhere."""
        if attempt.target is None:
            raise PluginError(
                "this kernel cannot be found by name from another machine: define it in a module or a script, "
                'outside of functions, or use pool="process"'
            )
        cache, home = attempt.cache, Path.home()
        said = f"~/{cache.relative_to(home)}" if cache.is_relative_to(home) else str(cache)
        return cls(sys.path, attempt.target, attempt.cases, said, attempt.threads, attempt.limits)

    def isolated(self, *, builds: bool = False) -> Isolated:
        """The attempt, in the process that this is called in."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        cache = Path(self.cache).expanduser()
        return Isolated(_elsewhere, self.cases, cache, self.target, self.threads, self.limits, builds)


class Built(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a builder reports: the names of the artefacts and what they took; or the trial, if it ended there."""

    names: tuple[str, ...] = ()
    seconds: float = 0.0
    trial: Trial | None = None


def _elsewhere() -> Bench:
    raise BackendError("an errand finds its kernel by name")
