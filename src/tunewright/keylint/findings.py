"""Key lint from stored decisions: fields that never change the winner, and contradicting winners of one key.

A field is judged by decisions whose keys differ only in it: what would the others lose if they shared one config? It is
needless only if none loses more than `MIN_LOSS`, in enough cases to be confident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb, exp
from typing import NamedTuple

import msgspec

from tunewright.model.decision import Decision, Gain
from tunewright.model.key import Key, flatten
from tunewright.model.trial import Timing, Trial, median
from tunewright.spaces.config import Config
from tunewright.stats import UNKNOWN, interval
from tunewright.stores.statistics import Revision

MIN_LOSS = 0.05
"""Relative loss below which two configs count as equally good."""

ALPHA = 0.05
"""Significance level of bounds."""

MAX_SHARE = 1 / 3
"""Upper bound of the share of cases in which a needless field may matter; needs 8 agreements of 8."""

MAX_GROUP = 32
"""Maximum of decisions of a group that are compared pairwise; larger groups are sampled evenly."""

MAX_TIES = 8
"""Ties that a decision stores; if there are as many, there may have been more."""

ABSENT = "(absent)"

LoadTrials = Callable[[Key], Iterable[Trial]]
"""Returns the trials of a key."""


class Counterexample(msgspec.Struct, frozen=True):
    """Two values of a field that need different configs: what the config of the first loses under the second."""

    here: str
    there: str
    config: Config
    loss: Gain


class KeyField(msgspec.Struct, frozen=True):
    """Whether a field of a key, or several that always change together, changes the winner.

    Each of the `pairs` compares a decision with the representative of its group. `agree` counts pairs where neither
    loses with the other's config, `differ` decisions that lose significantly with another config of their group; the
    other pairs are undecided. `bound` is the upper 95 % bound of the share of cases in which the field matters;
    undecided pairs count as if it did. `loss` and `worst` are the mean and maximum relative loss of sharing a config;
    `tunings` and `seconds` are what sharing saves.
    """

    kernel: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    pairs: int
    agree: int
    differ: int
    bound: float
    loss: float
    worst: float
    tunings: int
    seconds: float = 0.0
    witness: Counterexample | None = None

    @property
    def needless(self) -> bool:
        """Whether it never changed the winner, in enough cases to be confident."""
        return self.differ == 0 and len(self.values) > 1 and self.bound <= MAX_SHARE

    @property
    def matters(self) -> bool:
        """Whether it changed the winner significantly; if it is not needless either, there are too few decisions."""
        return self.differ > 0


class Contradiction(msgspec.Struct, frozen=True):
    """Two winners of one key, each significantly faster than the other when it was chosen.

    Something that matters is missing in the key. `gain` is that of the earlier config over the later one at its time,
    `reverse` that of the later one at its time.
    """

    key: Key
    earlier: Config
    later: Config
    gain: Gain
    reverse: Gain


def check_fields(decisions: Iterable[Decision], journal: LoadTrials) -> list[KeyField]:
    """Returns indices field that varied alone; needless ones first, then by the tunings they cost."""
    by_source: dict[tuple[str, str], list[Decision]] = {}
    for decision in decisions:
        by_source.setdefault((decision.key.kernel, decision.key.source), []).append(decision)
    losses = ConfigLosses(journal)
    fields = [field for same_source in by_source.values() for field in _fields(same_source, losses)]
    return sorted(fields, key=lambda field: (not field.needless, -field.tunings, field.kernel, field.names))


def field_remedy(field: KeyField) -> str:
    """Returns what to do about a needless field."""
    name = field.names[0]
    last = name.rpartition(".")[2]
    if name.startswith("signature.dims."):
        return f"let one decision serve them: buckets={{{last!r}: [{field.values[-1]}]}}"
    sizes = {value.partition("[")[::2] for value in field.values}
    if (
        name.startswith("signature.args.")
        and len({dtype for dtype, _ in sizes}) == 1
        and all(size for _, size in sizes)
    ):
        return f'name the dimensions of argument {last} (In("M")), and put them into buckets={{...}}'
    if name.startswith("device."):
        return "name these devices as one in [aliases] of tunewright.toml"
    if name.startswith("mode."):
        return f"declare one {last} for all of them, where you may choose"
    return "no declaration leaves it out of the key; with the winner in seeds=[...] the next tuning can be short"


def find_contradictions(key: Key, revisions: Sequence[Revision], trials: Sequence[Trial]) -> list[Contradiction]:
    """Returns pairs of revisions that contradict each other, by the trials made for each."""
    spans = zip([0.0, *(revision.since for revision in revisions)], revisions, strict=False)
    history = [
        (revision.decision, {trial.config: trial for trial in trials if after < trial.at <= revision.since})
        for after, revision in spans
    ]
    found: dict[tuple[Config, Config], Contradiction] = {}
    for number, (earlier, then) in enumerate(history):
        for later, now in history[number + 1 :]:
            pair = earlier.config, later.config
            if pair[0] == pair[1] or pair in found or _are_tied(*pair, earlier, later):
                continue
            gain, reverse = _slowdown(pair[1], pair[0], then), _slowdown(pair[0], pair[1], now)
            if gain and reverse and _is_excluded(gain, earlier) and _is_excluded(reverse, later):
                found[pair] = Contradiction(key, *pair, gain, reverse)
    return list(found.values())


def at_most(misses: int, count: int) -> float:
    """The largest rate at which so few misses of `count` are still plausible (Clopper and Pearson, 1934)."""
    if misses >= count:
        return 1.0
    low, high = misses / count, 1.0
    for _ in range(40):
        rate = (low + high) / 2
        tail = sum(comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(misses + 1))
        low, high = (rate, high) if tail > ALPHA else (low, rate)
    return high


class ConfigLosses:
    """Losses of configs chosen for one key under another key, from stored evidence."""

    def __init__(self, journal: LoadTrials) -> None:
        self._journal = journal
        # Groups are processed one by one, and a store may have more journals than fit into memory.
        self._trials = lru_cache(8 * MAX_GROUP)(lambda key: {trial.config: trial for trial in journal(key)})

    def seconds(self, key: Key) -> float:
        """Returns the seconds spent on tuning a key."""
        return sum(trial.build_seconds + trial.run_seconds for trial in self._journal(key))

    def of(self, config: Config, decision: Decision) -> Gain | None:
        """Returns how many times longer `config` takes than the winner of a decision; None if unknown.

        The deciding race is used if the config tied in it, else the trials of the key.
        """
        uncertainty = _uncertainty(decision)
        if config == decision.config:
            return Gain(1.0, 1.0, uncertainty)
        evidence = decision.evidence
        tie = next((tie for tie in evidence.ties if tie.config == config), None) if evidence else None
        if evidence is None or tie is None:
            loss = _slowdown(config, decision.config, self._trials(decision.key))
            return loss and Gain(loss.ratio, loss.low, loss.high * uncertainty)
        ratio = tie.seconds / evidence.seconds
        return Gain(ratio, ratio / exp(evidence.resolution or 0.0), ratio * uncertainty)


def _uncertainty(decision: Decision) -> float:
    """Returns how many times faster than the winner the best config may be, given its race and search.

    Two inconclusive races both keep the default: that they agree is no evidence.
    """
    if (evidence := decision.evidence) is None or not evidence.complete:
        return exp(UNKNOWN)
    return exp(max(evidence.resolution or 0.0, evidence.remains or 0.0))


def _slowdown(config: Config, winner: Config, trials: Mapping[Config, Trial]) -> Gain | None:
    """Returns how many times longer one config took than another in trials of the same key."""
    slow, fast = (trials[tried].outcome if tried in trials else None for tried in (config, winner))
    if not isinstance(slow, Timing) or not isinstance(fast, Timing):
        return None
    (low, high), (least, greatest) = (
        tuple(bound / median(timing.samples) for bound in interval(timing.samples)) for timing in (slow, fast)
    )
    ratio = slow.seconds / fast.seconds
    return Gain(ratio, ratio * low / greatest, ratio * high / least)


def _is_excluded(gain: Gain, decided: Decision) -> bool:
    """Returns whether a winner was significantly faster than a config that did not tie with it.

    Either its trials show it, or it won a race, which separates the winner from all but its ties.
    """
    evidence = decided.evidence
    raced = evidence is not None and evidence.conditions is not None and len(evidence.ties) < MAX_TIES
    return gain.low > 1 + MIN_LOSS or (raced and gain.ratio > 1 + 2 * MIN_LOSS)


def _are_tied(first: Config, second: Config, *decided: Decision) -> bool:
    """Returns whether two configs tied in a race."""
    ties = [tie.config for decision in decided if decision.evidence for tie in decision.evidence.ties]
    return first in ties or second in ties


def is_served(loss: Gain | None) -> bool:
    """Returns whether a loss is known to be negligible."""
    return loss is not None and loss.ratio <= 1 + MIN_LOSS and loss.high <= 1 + 2 * MIN_LOSS


def _is_hurt(loss: Gain | None) -> bool:
    return loss is not None and loss.low > 1 + MIN_LOSS


def _fields(decisions: Sequence[Decision], losses: ConfigLosses) -> list[KeyField]:
    """Returns the fields of keys of one kernel and source."""
    flat = [flatten(decision.key) for decision in decisions]
    columns = _columns(flat)
    rows = list(zip(*columns, strict=True))
    found = []
    for place, names in enumerate(columns.values()):
        groups: dict[tuple[int, ...], list[_Member]] = {}
        for row, key, decision in zip(rows, flat, decisions, strict=True):
            text = ", ".join(dict.fromkeys(key.get(name, ABSENT) for name in names))
            groups.setdefault(row[:place] + row[place + 1 :], []).append(_Member(text, decision))
        varied = [_Group(sorted(some, key=_order), losses) for some in groups.values() if len(some) > 1]
        if varied:
            found.append(_field(decisions[0].key.kernel, names, varied, losses))
    return found


def _columns(keys: Sequence[Mapping[str, str]]) -> dict[tuple[int, ...], tuple[str, ...]]:
    """Returns the varying fields as codes of their values; fields that always change together are one column."""
    columns: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name in sorted({name for key in keys for name in key} - {"kernel", "source"}):
        numbers: dict[str, int] = {}
        codes = tuple(numbers.setdefault(key.get(name, ABSENT), len(numbers)) for key in keys)
        if len(numbers) > 1:
            columns[codes] = (*columns.get(codes, ()), name)
    return columns


class _Member(NamedTuple):
    """A decision and the value of the field in its key."""

    value: str
    decision: Decision


def _order(member: _Member) -> tuple[bool, float, str]:
    """Returns a sort key: numbers by size, then text."""
    try:
        return False, float(member.value), member.value
    except ValueError:
        return True, 0.0, member.value


class _Group:
    """Decisions whose keys differ in one column only, compared pairwise."""

    def __init__(self, members: Sequence[_Member], losses: ConfigLosses) -> None:
        self.members = members
        self._sample = members[:: max(1, -(-len(members) // MAX_GROUP))]
        indices = range(len(self._sample))
        self._losses = {
            (i, j): losses.of(self._sample[i].decision.config, self._sample[j].decision)
            for i in indices
            for j in indices
            if i != j
        }
        agreements = [
            sum(is_served(self._losses[i, j]) and is_served(self._losses[j, i]) for j in indices if j != i)
            for i in indices
        ]
        # The representative is the decision whose config serves most of the others.
        self._representative = max(indices, key=agreements.__getitem__)
        self.pairs, self.agree = len(indices) - 1, agreements[self._representative]

    @property
    def differ(self) -> int:
        """Decisions that lose with another config of the group."""
        return len({j for (_, j), loss in self._losses.items() if _is_hurt(loss)})

    @property
    def shares(self) -> list[float]:
        """Known relative losses of sharing a config."""
        known = [loss for pair, loss in self._losses.items() if self._representative in pair and loss is not None]
        return [max(0.0, loss.ratio - 1) for loss in known]

    @property
    def witnesses(self) -> list[Counterexample]:
        """Significant losses of one decision with another's config."""
        return [
            Counterexample(self._sample[i].value, self._sample[j].value, self._sample[i].decision.config, loss)
            for (i, j), loss in self._losses.items()
            if loss is not None and _is_hurt(loss)
        ]


def _field(kernel: str, names: tuple[str, ...], groups: Sequence[_Group], losses: ConfigLosses) -> KeyField:
    members = sorted((member for group in groups for member in group.members), key=_order)
    pairs, agree, differ = (sum(getattr(group, name) for group in groups) for name in ("pairs", "agree", "differ"))
    shares = [share for group in groups for share in group.shares] or [0.0]
    witnesses = [witness for group in groups for witness in group.witnesses]
    found = KeyField(
        kernel=kernel,
        names=names,
        values=tuple(dict.fromkeys(member.value for member in members)),
        pairs=pairs,
        agree=agree,
        differ=differ,
        bound=at_most(pairs - agree, pairs),
        loss=sum(shares) / len(shares),
        worst=max(shares),
        tunings=sum(len(group.members) - 1 for group in groups),
        witness=max(witnesses, key=lambda one: one.loss.low, default=None),
    )
    return msgspec.structs.replace(found, seconds=_saved_seconds(groups, losses)) if found.needless else found


def _saved_seconds(groups: Sequence[_Group], losses: ConfigLosses) -> float:
    """Returns the tuning seconds saved with one decision per group."""
    spent = [[losses.seconds(member.decision.key) for member in group.members] for group in groups]
    return sum(sum(each) * (len(each) - 1) / len(each) for each in spent)
