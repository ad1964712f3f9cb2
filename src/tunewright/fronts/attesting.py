"""Attesting: whether a decision follows from the race that it is said to rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from tunewright.engine.decide import decide
from tunewright.measure.race import CLEAR, FIRST_TEST, GROSS, Race, retold
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Timing, Trial
from tunewright.sharing.transcripts import Transcript
from tunewright.spaces.config import Config, Value

SLACK = 1e-5
"""What four bytes a sample may change in a ratio, and more."""

GLANCES = (4, 8)
"""Rounds after which a second glance is cast at gross losers, by one clock or another."""


def objection(transcript: Transcript, decision: Decision) -> str | None:
    """Why `decision` does not follow from the samples; None if it does.

    The race is judged once more by the rules that a search ends with: who was eliminated, who was chosen, and what the
    evidence says of the times and of the gain.
    """
    if transcript.key != decision.key.digest:
        return "the transcript is of another key"
    if not transcript.sound:
        return "the parts of the transcript do not fit each other"
    if transcript.configs[transcript.chosen] != decision.config:
        return f"in its race {transcript.configs[transcript.chosen]} was chosen"
    times = transcript.times()
    left = {place: gone for place, gone in enumerate(transcript.left) if gone is not None}
    for place, gone in left.items():
        if not _eliminated(times, left, place, gone, transcript.margin):
            return f"{transcript.configs[place]} left after {gone} rounds, but was not shown to be slower"
    again = _decided(transcript, decision, retold(times, left, transcript.margin))
    stood = (transcript.incumbent, transcript.default)
    if again.config != decision.config and not (transcript.weighed and transcript.chosen in stood):
        return f"by its samples {again.config} is to be chosen"
    return _overstated(decision, again) if again.config == decision.config else None


def _eliminated(
    times: Sequence[Sequence[float]], left: Mapping[int, int], place: int, gone: int, margin: float
) -> bool:
    """Whether a candidate was slower beyond doubt when it left."""
    there = [i for i in range(len(times)) if left.get(i, gone) >= gone]
    seen = [times[i][:gone] for i in there]
    own = seen[there.index(place)]
    factor = CLEAR if gone in GLANCES else GROSS
    if (gone < FIRST_TEST or gone in GLANCES) and min(own) > factor * min(map(max, seen)) * (1 - SLACK):
        return True
    standing = retold(seen, {}, margin).standings[there.index(place)]
    return gone >= FIRST_TEST and standing.low > (1 + margin) * (1 - SLACK)


class _Order:
    """A space, as far as it is known from a transcript: the order of its configs."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._places = {config: place for place, config in enumerate(configs)}

    def rank(self, config: Mapping[str, Value]) -> tuple[int, ...]:
        return (self._places[Config(config)],)


def _decided(transcript: Transcript, decision: Decision, race: Race) -> Decision:
    """What is decided by the race alone."""
    configs = transcript.configs
    default = configs[transcript.default] if transcript.default is not None else Config()
    incumbent = configs[transcript.incumbent] if transcript.incumbent is not None else None
    order: Any = _Order(configs)
    trials = [Trial(config, Timing(one.samples)) for config, one in zip(configs, race.standings, strict=True)]
    return decide(Problem(decision.key, order, default), trials, incumbent, (configs, race))


def _overstated(decision: Decision, again: Decision) -> str | None:
    """What its evidence says that its samples do not."""
    said, seen = decision.evidence, again.evidence
    if said is None or seen is None:
        return "it has no evidence"
    pairs = [("time", said.seconds, seen.seconds)]
    if said.over_default and seen.over_default:
        pairs.append(("gain over the default", said.over_default.ratio, seen.over_default.ratio))
    for name, claimed, found in pairs:
        if not isclose(claimed, found, rel_tol=100 * SLACK):
            return f"its {name} is said to be {claimed:.4g}, by its samples it is {found:.4g}"
    return None
