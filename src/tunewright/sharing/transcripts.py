"""Transcripts: what was seen in the races that decisions rest on, kept so that others can judge it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from tunewright.errors import StoreError, WireError
from tunewright.model.conditions import Conditions
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.ports.pool import Attempt
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.offers import Brings, Shelves
from tunewright.spaces.config import Config

log = Remarks(__name__)

SHELF, KIND = "races", "race"
"""Where a store keeps transcripts, and what an enclosure of a bundle is called that is one; both named by key."""

_FLOAT = np.dtype("<f4")


class Standing(Protocol):
    """How one candidate did."""

    @property
    def samples(self) -> Sequence[float]:
        """Its times, round by round."""
        ...

    @property
    def left(self) -> int | None:
        """The round after which it was eliminated."""
        ...


class Ran(Protocol):
    """A race, as far as it is written down."""

    @property
    def standings(self) -> Sequence[Standing]:
        """How everyone did."""
        ...

    @property
    def margin(self) -> float:
        """The difference that was too small to matter."""
        ...


class Transcript(msgspec.Struct, frozen=True, omit_defaults=True):
    """A race as it was run: who ran, the time of each in each round, and who was chosen then.

    `configs` are in canonical order; `samples` are those of each in turn, four bytes a round, `counts` their numbers,
    `left` the rounds after which they were eliminated. `incumbent` and `default` are places in `configs`. `target` says
    where the kernel is found, `recipe` how its arguments are made. Where it was `weighed`, the whole program had a say.
    """

    key: str
    configs: tuple[Config, ...]
    chosen: int
    counts: tuple[int, ...]
    left: tuple[int | None, ...]
    samples: bytes
    margin: float
    seed: int = 0
    clock: str = ""
    conditions: Conditions | None = None
    when: str = ""
    default: int | None = None
    incumbent: int | None = None
    weighed: bool = False
    target: str = ""
    recipe: str = ""

    @property
    def sound(self) -> bool:
        """Whether its parts fit each other: it may come from anywhere."""
        size = len(self.configs)
        named = [place for place in (self.chosen, self.default, self.incumbent) if place is not None]
        fits = len(self.counts) == len(self.left) == size and all(0 <= place < size for place in named)
        told = min(self.counts, default=0) > 0 and sum(self.counts) * _FLOAT.itemsize == len(self.samples)
        if not (fits and told and 0 <= self.margin < 1):
            return False
        times, rounds = np.frombuffer(self.samples, _FLOAT), max(self.counts)
        whole = all(
            count == (rounds if gone is None else gone) for count, gone in zip(self.counts, self.left, strict=True)
        )
        return whole and None in self.left and bool(np.all(np.isfinite(times) & (times > 0)))

    def times(self) -> list[list[float]]:
        """Everyone's seconds, round by round."""
        every = np.frombuffer(self.samples, _FLOAT).astype(np.float64)
        return [part.tolist() for part in np.split(every, np.cumsum(self.counts)[:-1])]

    def best(self) -> list[Config]:
        """Who ran, fastest first: those who stayed to the end before those who left."""
        centres = [float(np.median(own)) for own in self.times()]
        order = sorted(range(len(self.configs)), key=lambda i: (self.left[i] is not None, centres[i]))
        return [self.configs[i] for i in order]

    def travelling(self) -> Transcript:
        """The same for other machines: no place of this one's files is told."""
        place = self.target.rpartition(":")[0]
        return self if is_module(place) else msgspec.structs.replace(self, target="")


def is_module(place: str) -> bool:
    """Whether `place` is the name of a module, not that of a file."""
    return not place.endswith(".py") and all(part.isidentifier() for part in place.split("."))


def of(
    problem: Problem,
    decision: Decision,
    raced: tuple[Sequence[Config], Ran],
    incumbent: Config | None,
    attempt: Attempt,
) -> Transcript:
    """The transcript of the race that `decision` was made by; one that could not run in it is left out."""
    ran = [(config, one) for config, one in zip(raced[0], raced[1].standings, strict=True) if one.samples]
    ran.sort(key=lambda pair: problem.space.rank(pair[0]))
    configs = [config for config, _ in ran]
    said = decision.evidence
    assert said is not None
    chosen, default, before = (
        configs.index(config) if config in configs else None for config in (decision.config, problem.default, incumbent)
    )
    assert chosen is not None
    known: Any = attempt
    return Transcript(
        key=decision.key.digest,
        configs=tuple(configs),
        chosen=chosen,
        counts=tuple(len(one.samples) for _, one in ran),
        left=tuple(one.left for _, one in ran),
        samples=np.concatenate([np.asarray(one.samples, _FLOAT) for _, one in ran]).tobytes(),
        margin=raced[1].margin,
        seed=said.seed,
        clock=said.clock,
        conditions=said.conditions,
        when=said.when,
        default=default,
        incumbent=before,
        weighed=said.end_to_end is not None,
        target=getattr(known, "target", None) or "",
        recipe=wire.encode(getattr(known, "cases", ())).decode(),
    )


def keep(store: object, transcript: Transcript) -> None:
    """Put a transcript on the store's shelf of races, if it has shelves; a later one for the same key replaces it."""
    if not isinstance(store, Shelves):
        return
    try:
        store.keep(SHELF, transcript.key, wire.encode(transcript))
    except StoreError as error:
        log.warning("a race is not kept: %s", error)


def enclosable(store: object, decision: Decision) -> bytes | None:
    """The transcript of the very race that made `decision`, as it travels; None if another race has taken its place."""
    told, said = transcript_of(store, decision.key), decision.evidence
    if told is None or said is None or not told.sound:
        return None
    same = told.when == said.when and told.configs[told.chosen] == decision.config
    return wire.encode(told.travelling()) if same else None


def transcript_of(store: object, key: Key) -> Transcript | None:
    """The transcript of the race for `key`: enclosed in a bundle, or from the shelf of a store; None if it has none."""
    body = store.enclosed(KIND, key.digest) if isinstance(store, Brings) else None
    if body is None and isinstance(store, Shelves):
        body = store.fetch(SHELF, [key.digest]).get(key.digest)
    if body is None:
        return None
    try:
        return wire.decode(body, Transcript)
    except WireError as error:
        log.warning("%s: the transcript of its race is passed over: %s", key.kernel, error)
        return None
