"""Problem: what is to be tuned. Decision: the config we settled on, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from tunewright.model.conditions import Conditions
from tunewright.model.key import Key
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space


class Tier(StrEnum):
    """How near an answer is to the question; nearest first."""

    EXACT = "exact"
    ALIAS = "alias"
    BUCKET = "bucket"
    NEAREST = "nearest shape"
    ARCHITECTURE = "architecture"
    DEFAULT = "default"


class Problem(msgspec.Struct, frozen=True):
    """A key, the space its config comes from, and the config that is used where nothing is decided.

    `seeds` are configs worth trying first: an earlier decision, a heuristic's proposal, another tool's table.
    `exact` is the key of the call itself, where `key` is that of the bucket which stands for it.
    """

    key: Key
    space: Space
    default: Config
    seeds: tuple[Config, ...] = ()
    exact: Key | None = None


class Finalist(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config with its centre and an interval, in seconds."""

    config: Config
    seconds: float
    low: float
    high: float
    fingerprint: str = ""


class Gain(msgspec.Struct, frozen=True):
    """How many times faster one thing is than another, with an interval."""

    ratio: float
    low: float
    high: float

    @property
    def wash(self) -> bool:
        """Whether neither is shown to be faster."""
        return self.low <= 1 <= self.high


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a config was chosen: times, compared with what, found how, when and by which version.

    `over_default` is the gain over the default, from rounds in which both ran; `end_to_end` that of the whole program
    over what stood before. `resolution` is the smallest difference the race could tell, under these `conditions`.
    `ties` are configs that were not told from the chosen one. `fingerprint` is that of its results. `complete` is
    False if the search was interrupted. `remains` is the strategy's own estimate of its regret: by which fraction the
    best config there is may be faster. `notes` are sentences for people, such as «no gain over the default».
    """

    seconds: float
    low: float
    high: float
    default_seconds: float | None = None
    ties: tuple[Finalist, ...] = ()
    trials: int = 0
    failures: int = 0
    strategy: str = ""
    seed: int = 0
    clock: str = ""
    complete: bool = True
    versions: dict[str, str] = {}
    when: str = ""
    notes: tuple[str, ...] = ()
    over_default: Gain | None = None
    end_to_end: Gain | None = None
    resolution: float | None = None
    conditions: Conditions | None = None
    fingerprint: str = ""
    remains: float | None = None

    @property
    def gain(self) -> float | None:
        """How many times faster than the default, if that was timed."""
        if self.over_default is not None:
            return self.over_default.ratio
        return self.default_seconds / self.seconds if self.default_seconds and self.seconds else None


_EXACT = Tier.EXACT  # to look up a member costs as much as to make a decision


class Decision:
    """The answer to a key. The tier belongs to the answer, not to the record: stored ones are exact.

    One that was `kept` in a store is read when it is looked at: a process may fetch thousands and use a few.
    """

    __slots__ = ("_body", "_read", "_said", "key", "tier")

    _read: Callable[[bytes], tuple[Config, Evidence | None]]

    def __init__(self, key: Key, config: Config, evidence: Evidence | None = None, tier: Tier = Tier.EXACT) -> None:
        self.key, self.tier = key, tier
        self._said: tuple[Config, Evidence | None] | None = (config, evidence)
        self._body: bytes | None = None

    @classmethod
    def kept(cls, key: Key, body: bytes, read: Callable[[bytes], tuple[Config, Evidence | None]]) -> Decision:
        """The decision that `read` finds in `body`, when it comes to that."""
        made = cls.__new__(cls)
        made.key, made.tier, made._said, made._body, made._read = key, _EXACT, None, body, read
        return made

    @classmethod
    def kept_all(
        cls, keys: Iterable[Key], bodies: Iterable[bytes], read: Callable[[bytes], tuple[Config, Evidence | None]]
    ) -> dict[Key, Decision]:
        """The decisions that `read` finds in `bodies`, by their keys."""
        found: dict[Key, Decision] = {}
        new, exact = cls.__new__, _EXACT
        for key, body in zip(keys, bodies, strict=True):  # as above, without a call for each
            found[key] = made = new(cls)
            made.key, made.tier, made._said, made._body, made._read = key, exact, None, body, read
        return found

    def _content(self) -> tuple[Config, Evidence | None]:
        if self._said is None:
            assert self._body is not None
            self._said = self._read(self._body)
        return self._said

    @property
    def config(self) -> Config:
        """What was settled on."""
        return self._content()[0]

    @property
    def evidence(self) -> Evidence | None:
        """Why."""
        return self._content()[1]

    @property
    def body(self) -> bytes | None:
        """Its record, if it was kept as it is."""
        return self._body

    def having(self, **changed: Any) -> Decision:
        """The same decision, but for what is changed."""
        names = ("key", "config", "evidence", "tier")
        return Decision(*(changed[name] if name in changed else getattr(self, name) for name in names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision) or (self.key, self.tier) != (other.key, other.tier):
            return False
        # One value has one record; to compare two of them takes no reading.
        same = self is other or (self._body is not None and self._body == other._body)
        return same or self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.key, self.tier))

    def __repr__(self) -> str:
        return f"Decision({self.key!r}, {self.config!r}, {self.evidence!r}, {self.tier!r})"
