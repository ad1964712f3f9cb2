"""Strategy: proposes configs and learns from trials; measures nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from tunewright.model.trial import Trial
from tunewright.spaces.config import Config


class Source(msgspec.Struct, frozen=True):
    """Trials of the same kernel under another key, with the words for what differs."""

    name: str
    trials: Sequence[Trial]


class Prior(msgspec.Struct, frozen=True):
    """What is known before the first trial; nearest sources first. A guess: it must earn its trust."""

    sources: Sequence[Source] = ()


class Strategy(Protocol):
    """Made from a space and a random generator, so that the same seed gives the same proposals."""

    def ask(self, count: int) -> Sequence[Config]:
        """Up to `count` configs to try next, none of them proposed before; empty when the search is over."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """What became of configs, failures included; also of some that were not asked for (the default)."""
        ...


class Outlook(msgspec.Struct, frozen=True):
    """What a strategy expects of going on, as fractions of the best time so far."""

    gain: float
    """What the next trial is expected to gain."""
    regret: float
    """By how much the best config there is is expected to be faster."""


@runtime_checkable
class Farsighted(Strategy, Protocol):
    """A strategy that can say what going on may bring."""

    def outlook(self) -> Outlook | None:
        """What is expected now; None while it is too early to tell."""
        ...


@runtime_checkable
class Informed(Strategy, Protocol):
    """A strategy that can make use of what is known before the first trial."""

    def inform(self, prior: Prior) -> None:
        """Take note of `prior`; called once, before the first `ask`."""
        ...
