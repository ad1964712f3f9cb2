"""Errors of configs: the failures they are, and whose fault they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunewright.errors import DeviceLost, TunewrightError
from tunewright.model.trial import Failure, Kind, Stage
from tunewright.ports.candidate import WrongResult
from tunewright.spaces.config import Config


def failure_of(error: Exception, stage: Stage, config: Config) -> Failure:
    """Returns the failure that an error of a config is; raises DeviceLost if no other config can be tried either."""
    if isinstance(error, DeviceLost):
        raise error.blaming(config)
    reason = str(error) if isinstance(error, TunewrightError) else f"{type(error).__name__}: {error}".strip()
    if isinstance(error, WrongResult):
        return Failure(stage, Kind.WRONG, reason)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Failure(stage, Kind.MEMORY, reason)
    return Failure(stage, Kind.REFUSED if stage in (Stage.BUILD, Stage.LOAD) else Kind.RAISED, reason)


class FinalistFailed(TunewrightError):
    """Raised in a race when a candidate fails that worked in its trial."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(str(error))
        self.number, self.error = number, error


def blaming(config: Config, sample: Callable[[], float]) -> Callable[[], float]:
    """Wraps a sampler of the incumbent, so that a device that it loses is not the candidate's fault."""

    def blamed() -> float:
        try:
            return sample()
        except DeviceLost as lost:
            raise lost.blaming(config) from None

    return blamed


def naming(number: int, call: Callable[[], Any]) -> Callable[[], Any]:
    """Wraps a call of a candidate so that its failure names the candidate."""

    def numbered() -> Any:
        try:
            return call()
        except Exception as error:
            raise FinalistFailed(number, error) from error

    return numbered
