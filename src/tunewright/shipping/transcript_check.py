"""Checks whether a decision follows from the transcript of its race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from tunewright.engine.decide import decide
from tunewright.measure.race import CLEAR_RATIO, FIRST_TEST, GROSS_RATIO, Race, replay_race
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Timing, Trial
from tunewright.spaces.config import Config, Value
from tunewright.stores.transcripts import Transcript

TOLERANCE = 1e-5
"""Relative error of a ratio of samples stored in four bytes, with some room."""

SECOND_LOOK_ROUNDS = (4, 6, 8)
"""Rounds after which gross losers are dropped a second time, depending on the clock and the version."""


def find_inconsistency(transcript: Transcript, decision: Decision) -> str | None:
    """Returns why `decision` does not follow from the samples; None if it does.

    Applies the rules that end a search again: which configs were eliminated, which was chosen, and what the evidence
    says about times and gain.
    """
    if transcript.key != decision.key.digest:
        return "the transcript belongs to another key"
    if not transcript.is_consistent:
        return "the transcript contradicts itself"
    if transcript.configs[transcript.chosen] != decision.config:
        return f"in its race {transcript.configs[transcript.chosen]} was chosen"
    times = transcript.times()
    dropped = {index: rounds for index, rounds in enumerate(transcript.left) if rounds is not None}
    for index, rounds in dropped.items():
        if not _was_slower(times, dropped, index, transcript.margin):
            return f"{transcript.configs[index]} left after {rounds} rounds, but was not shown to be slower"
    replayed = _decide_again(transcript, decision, replay_race(times, dropped, transcript.margin))
    fallbacks = (transcript.incumbent, transcript.default)
    if replayed.config != decision.config and not (transcript.weighed and transcript.chosen in fallbacks):
        return f"its samples choose {replayed.config}"
    return _find_overstatement(decision, replayed) if replayed.config == decision.config else None


def _was_slower(times: Sequence[Sequence[float]], dropped: Mapping[int, int], index: int, margin: float) -> bool:
    """Whether a config was clearly slower when it was dropped."""
    rounds = dropped[index]
    present = [i for i in range(len(times)) if dropped.get(i, rounds) >= rounds]
    samples = [times[i][:rounds] for i in present]
    own = samples[present.index(index)]
    is_second_look = rounds in SECOND_LOOK_ROUNDS
    ratio = CLEAR_RATIO if is_second_look else GROSS_RATIO
    if (rounds < FIRST_TEST or is_second_look) and min(own) > ratio * min(map(max, samples)) * (1 - TOLERANCE):
        return True
    standing = replay_race(samples, {}, margin).standings[present.index(index)]
    return rounds >= FIRST_TEST and standing.low > (1 + margin) * (1 - TOLERANCE)


class _ConfigOrder:
    """Stands for the space of a transcript: the order of its configs."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._ranks = {config: rank for rank, config in enumerate(configs)}

    def rank(self, config: Mapping[str, Value]) -> tuple[int, ...]:
        return (self._ranks[Config(config)],)


def _decide_again(transcript: Transcript, decision: Decision, race: Race) -> Decision:
    """Returns the decision that follows from the race alone."""
    configs = transcript.configs
    default = configs[transcript.default] if transcript.default is not None else Config()
    incumbent = configs[transcript.incumbent] if transcript.incumbent is not None else None
    order: Any = _ConfigOrder(configs)
    trials = [Trial(config, Timing(standing.samples)) for config, standing in zip(configs, race.standings, strict=True)]
    return decide(Problem(decision.key, order, default), trials, incumbent, (configs, race))


def _find_overstatement(decision: Decision, replayed: Decision) -> str | None:
    """Returns a claim of the evidence that the samples do not support."""
    claimed, measured = decision.evidence, replayed.evidence
    if claimed is None or measured is None:
        return "it has no evidence"
    pairs = [("time", claimed.seconds, measured.seconds)]
    if claimed.over_default and measured.over_default:
        pairs.append(("gain over the default", claimed.over_default.ratio, measured.over_default.ratio))
    for name, claim, value in pairs:
        if not isclose(claim, value, rel_tol=100 * TOLERANCE):
            return f"its {name} is claimed to be {claim:.4g}; its samples give {value:.4g}"
    return None
