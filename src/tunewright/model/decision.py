"""Problems and decisions: what to tune, the chosen config, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from tunewright.lazy_names import lazy_method
from tunewright.model.conditions import Conditions
from tunewright.model.key import Key
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import ShapeRule
from tunewright.spaces.space import Space


class Tier(StrEnum):
    """How well a stored decision matches the key that was asked for; best first."""

    EXACT = "exact"
    ALIAS = "alias"
    BUCKET = "bucket"
    RULE = "rule"
    NEAREST = "nearest shape"
    ARCHITECTURE = "architecture"
    DEFAULT = "default"


class Problem(msgspec.Struct, frozen=True):
    """What to tune: a key, the space of configs, and the default config.

    `seeds` are configs to try first: an earlier decision, a heuristic's proposal, another tool's table.
    `exact` is the key of the call itself if `key` is the key of its bucket. `notes` are for every decision.
    `ready` are seeds that need no build: they are tried even if there is no time left to build another.
    """

    key: Key
    space: Space
    default: Config
    seeds: tuple[Config, ...] = ()
    exact: Key | None = None
    notes: tuple[str, ...] = ()
    ready: tuple[Config, ...] = ()


class Finalist(msgspec.Struct, frozen=True, omit_defaults=True):
    """A config with its median time and a confidence interval, in seconds."""

    config: Config
    seconds: float
    low: float
    high: float
    fingerprint: str = ""


class Gain(msgspec.Struct, frozen=True):
    """A speedup with its confidence interval."""

    ratio: float
    low: float
    high: float

    @property
    def is_inconclusive(self) -> bool:
        """Whether neither side is shown to be faster."""
        return self.low <= 1 <= self.high


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a config was chosen: times, compared with what, found how, when and by which version.

    - `over_default`: gain over the default, from rounds in which both ran.
    - `end_to_end`: gain of the whole program over the earlier config.
    - `resolution`: the smallest difference the race could detect, under these `conditions`.
    - `ties`: configs that could not be distinguished from the chosen one.
    - `fingerprint`: identifies the results bit for bit.
    - `complete`: False if the search was interrupted.
    - `remains`: the strategy's estimate of its regret, the fraction by which the best config may be faster.
    - `notes`: sentences for people, such as "no gain over the default".
    - `rule`: for a key without sizes, which config serves which shape; times are the median, least and most of shapes.
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
    rule: ShapeRule | None = None

    @property
    def gain(self) -> float | None:
        """How many times faster than the default, if that was timed."""
        if self.over_default is not None:
            return self.over_default.ratio
        return self.default_seconds / self.seconds if self.default_seconds and self.seconds else None


Content = tuple[Config, Evidence | None]

_EXACT = Tier.EXACT  # looking up an enum member costs as much as making a decision


class Decision:
    """The config chosen for a key, with its evidence. Stored decisions are exact; other tiers belong to an answer.

    A decision made by `from_body` is decoded on first use: a process may fetch thousands and use a few.
    """

    __slots__ = ("_body", "_content", "_decode", "key", "tier")

    _decode: Callable[[bytes], Content]

    def __init__(self, key: Key, config: Config, evidence: Evidence | None = None, tier: Tier = Tier.EXACT) -> None:
        self.key, self.tier = key, tier
        self._content: Content | None = (config, evidence)
        self._body: bytes | None = None

    @classmethod
    def from_body(
        cls, key: Key, body: bytes, decode: Callable[[bytes], Content], content: Content | None = None
    ) -> Decision:
        """Returns the decision encoded in `body`, decoded on first use unless `content` is known."""
        decision = cls.__new__(cls)
        decision.key, decision.tier, decision._content, decision._body = key, _EXACT, content, body
        decision._decode = decode
        return decision

    @classmethod
    def from_bodies(
        cls, keys: Iterable[Key], bodies: Iterable[bytes], decode: Callable[[bytes], Content]
    ) -> dict[Key, Decision]:
        """Returns the decisions encoded in `bodies`, by their keys."""
        decisions: dict[Key, Decision] = {}
        new, exact = cls.__new__, _EXACT
        for key, body in zip(keys, bodies, strict=True):  # as `from_body`, without a call for each
            decisions[key] = decision = new(cls)
            decision.key, decision.tier, decision._content, decision._body = key, exact, None, body
            decision._decode = decode
        return decisions

    def _decoded(self) -> Content:
        if self._content is None:
            assert self._body is not None
            self._content = self._decode(self._body)
        return self._content

    @property
    def config(self) -> Config:
        """The chosen config."""
        return self._decoded()[0]

    @property
    def evidence(self) -> Evidence | None:
        """Why it was chosen."""
        return self._decoded()[1]

    @property
    def body(self) -> bytes | None:
        """The encoded record, if the decision was made from one."""
        return self._body

    def replace(self, **changes: Any) -> Decision:
        """Returns this decision with some fields changed."""
        names = ("key", "config", "evidence", "tier")
        return Decision(*(changes[name] if name in changes else getattr(self, name) for name in names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision) or (self.key, self.tier) != (other.key, other.tier):
            return False
        # Equal decisions have equal records, which can be compared without decoding.
        same = self is other or (self._body is not None and self._body == other._body)
        return same or self._decoded() == other._decoded()

    def __hash__(self) -> int:
        return hash((self.key, self.tier))

    __repr__ = lazy_method("tunewright.report.summary", "decision_text")
    _repr_html_ = lazy_method("tunewright.report.notebook", "decision_html")
