"""Transcripts of the races that decisions rest on, kept so that others can check them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.conditions import Conditions
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.ports.pool import Attempt
from tunewright.spaces.config import Config
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import HasArtifacts, KeepsNamespaces

log = LazyLogger(__name__)

NAMESPACE, KIND = namespaces.TRANSCRIPTS.name, "race"
"""The namespace of transcripts in a store, and the kind of such attachments of a bundle; both are named by key."""

_FLOAT = np.dtype("<f4")


class RacerResult(Protocol):
    """The result of one candidate."""

    @property
    def samples(self) -> Sequence[float]:
        """Its times, round by round."""
        ...

    @property
    def left(self) -> int | None:
        """The round after which it was eliminated."""
        ...


class RaceResult(Protocol):
    """The parts of a race that a transcript has."""

    @property
    def standings(self) -> Sequence[RacerResult]:
        """The results of all candidates."""
        ...

    @property
    def margin(self) -> float:
        """The relative difference that is too small to matter."""
        ...


class Transcript(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded race: its candidates, the time of each in each round, and which was chosen.

    `configs` are in canonical order; `samples` are those of each in turn, four bytes a round, `counts` their numbers,
    `left` the rounds after which they were eliminated. `incumbent` and `default` are indices into `configs`. `target`
    says where the kernel is defined, `recipe` how to make its arguments. `weighed` means that a race of the whole
    program was taken into account.
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
    def is_consistent(self) -> bool:
        """Whether its parts match: it may come from anywhere."""
        size = len(self.configs)
        indices = [index for index in (self.chosen, self.default, self.incumbent) if index is not None]
        if not len(self.counts) == len(self.left) == size or not all(0 <= index < size for index in indices):
            return False
        if min(self.counts, default=0) <= 0 or sum(self.counts) * _FLOAT.itemsize != len(self.samples):
            return False
        if not 0 <= self.margin < 1 or None not in self.left:
            return False
        rounds = max(self.counts)
        if any(count != (rounds if left is None else left) for count, left in zip(self.counts, self.left, strict=True)):
            return False
        times = np.frombuffer(self.samples, _FLOAT)
        return bool(np.all(np.isfinite(times) & (times > 0)))

    def times(self) -> list[list[float]]:
        """Returns the seconds of each candidate, round by round."""
        samples = np.frombuffer(self.samples, _FLOAT).astype(np.float64)
        return [part.tolist() for part in np.split(samples, np.cumsum(self.counts)[:-1])]

    def ranking(self) -> list[Config]:
        """Returns the candidates, fastest first: those that stayed to the end before those that were eliminated."""
        medians = [float(np.median(times)) for times in self.times()]
        order = sorted(range(len(self.configs)), key=lambda i: (self.left[i] is not None, medians[i]))
        return [self.configs[i] for i in order]

    def without_local_path(self) -> Transcript:
        """Returns the transcript for other machines: a target that is a file of this machine is removed."""
        module = self.target.rpartition(":")[0]
        return self if is_module(module) else msgspec.structs.replace(self, target="")


def is_module(name: str) -> bool:
    """Returns whether `name` is that of a module, not of a file."""
    return not name.endswith(".py") and all(part.isidentifier() for part in name.split("."))


def make_transcript(
    problem: Problem,
    decision: Decision,
    raced: tuple[Sequence[Config], RaceResult],
    incumbent: Config | None,
    attempt: Attempt,
) -> Transcript:
    """Returns the transcript of the race that made `decision`, without candidates that could not run."""
    racers = [(config, racer) for config, racer in zip(raced[0], raced[1].standings, strict=True) if racer.samples]
    racers.sort(key=lambda pair: problem.space.rank(pair[0]))
    configs = [config for config, _ in racers]
    evidence = decision.evidence
    assert evidence is not None
    chosen, default_index, incumbent_index = (
        configs.index(config) if config in configs else None for config in (decision.config, problem.default, incumbent)
    )
    assert chosen is not None
    source: Any = attempt
    return Transcript(
        key=decision.key.digest,
        configs=tuple(configs),
        chosen=chosen,
        counts=tuple(len(racer.samples) for _, racer in racers),
        left=tuple(racer.left for _, racer in racers),
        samples=np.concatenate([np.asarray(racer.samples, _FLOAT) for _, racer in racers]).tobytes(),
        margin=raced[1].margin,
        seed=evidence.seed,
        clock=evidence.clock,
        conditions=evidence.conditions,
        when=evidence.when,
        default=default_index,
        incumbent=incumbent_index,
        weighed=evidence.end_to_end is not None,
        target=getattr(source, "target", None) or "",
        recipe=serialization.encode(getattr(source, "cases", ())).decode(),
    )


def keep_transcript(store: object, transcript: Transcript) -> None:
    """Stores a transcript, if the store has namespaces; a later one for the same key replaces it."""
    if not isinstance(store, KeepsNamespaces):
        return
    try:
        store.keep(NAMESPACE, transcript.key, serialization.encode(transcript))
    except StoreError as error:
        log.warning("cannot store the transcript of a race: %s", error)


def encode_for_bundle(store: object, decision: Decision) -> bytes | None:
    """Returns the transcript of the race that made `decision`, for other machines; None if there is only another."""
    transcript, evidence = load_transcript(store, decision.key), decision.evidence
    if transcript is None or evidence is None or not transcript.is_consistent:
        return None
    is_same = transcript.when == evidence.when and transcript.configs[transcript.chosen] == decision.config
    return serialization.encode(transcript.without_local_path()) if is_same else None


def load_transcript(store: object, key: Key) -> Transcript | None:
    """Returns the transcript of the race for `key`, from a bundle or a namespace of a store; None if there is none."""
    body = store.read_attachment(KIND, key.digest) if isinstance(store, HasArtifacts) else None
    if body is None and isinstance(store, KeepsNamespaces):
        body = store.fetch(NAMESPACE, [key.digest]).get(key.digest)
    if body is None:
        return None
    try:
        transcript = serialization.decode(body, Transcript)
        if transcript.key != key.digest:
            raise WireError(f"it is for another key, {transcript.key[:12]}")
    except WireError as error:
        log.warning("%s: the transcript of its race is skipped: %s", key.kernel, error)
        return None
    return transcript
