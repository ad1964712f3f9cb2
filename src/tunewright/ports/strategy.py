"""The Strategy protocol: proposes configs and learns from trials; measures nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config


class Source(msgspec.Struct, frozen=True):
    """Trials of the same kernel under a related key; `name` describes what differs."""

    name: str
    trials: Sequence[Trial]


class Prior(msgspec.Struct, frozen=True):
    """Trials known before the search, nearest key first. Only a hint: a strategy must check it against new trials."""

    sources: Sequence[Source] = ()


class Strategy(Protocol):
    """A search strategy, made from a space and a random generator: the same seed gives the same proposals."""

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` configs that were not proposed before; empty when the search is over."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Adds finished trials, failures included; some may not have been asked for (such as the default)."""
        ...


class Forecast(msgspec.Struct, frozen=True):
    """What a strategy expects from more trials, as fractions of the best time so far."""

    gain: float
    """Expected gain of the next trial."""
    regret: float
    """By how much the best config of the space is expected to be faster."""


@runtime_checkable
class PredictsRegret(Strategy, Protocol):
    """A strategy that can predict the gain of more trials."""

    def forecast(self) -> Forecast | None:
        """Returns the current prediction; None while there are too few trials."""
        ...


@runtime_checkable
class AcceptsPrior(Strategy, Protocol):
    """A strategy that can use trials of related keys."""

    def inform(self, prior: Prior) -> None:
        """Takes the prior; called once, before the first `ask`."""
        ...
