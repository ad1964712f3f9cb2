"""Problem: what is to be tuned. Decision: the config we settled on, and the evidence for it."""

from __future__ import annotations

from enum import StrEnum

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
    """

    key: Key
    space: Space
    default: Config
    seeds: tuple[Config, ...] = ()


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


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a key. The tier belongs to the answer, not to the record: stored ones are exact."""

    key: Key
    config: Config
    evidence: Evidence | None = None
    tier: Tier = Tier.EXACT
