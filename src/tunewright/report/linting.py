"""Linting: is the key right? Fields that never change the winner; winners that exclude each other under one key.

A field of a key is judged by decisions that differ in it alone: if one of them stood for all, what would the others
lose? It is needless only if none loses anything worth mentioning, often enough to say so with confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import comb, exp
from typing import NamedTuple

import msgspec

from tunewright.measure.stats import UNKNOWN, interval
from tunewright.model.decision import Decision, Gain
from tunewright.model.key import Key, flatten
from tunewright.model.trial import Timing, Trial, median
from tunewright.sharing.records import Generation
from tunewright.spaces.config import Config

WORTH = 0.05
"""A loss below which nobody needs another config, nor a field in a key that tells two of them apart."""

DOUBT = 0.05
"""How often a bound that is stated may be wrong."""

MOST = 1 / 3
"""The largest share of cases in which a needless field may matter after all; it takes 8 agreeing of 8 to say so."""

LARGEST = 32
"""Decisions of one group that are compared, all with all; of more, as many evenly chosen."""

MOST_TIES = 8
"""Ties that a decision keeps; where there are so many, there may have been more."""

ABSENT = "(absent)"

Journal = Callable[[Key], Iterable[Trial]]
"""The trials of a key."""


class Witness(msgspec.Struct, frozen=True):
    """Two values of a field that want different configs: what the first one's choice loses under the second."""

    here: str
    there: str
    config: Config
    loss: Gain


class Field(msgspec.Struct, frozen=True):
    """What is known of one field of a key, or of several that never changed apart: does it change the winner?

    Each of the `pairs` compares a decision with the one that could stand for its whole group. `agree` are those where
    neither loses by the other's config, `differ` decisions that lose beyond doubt by some other's of their group; the
    rest of the pairs cannot be judged. `bound` is the largest share of cases in which the field may matter, with 95 %
    confidence, where what cannot be judged counts against it. `loss` and `worst` are what sharing costs, as shares;
    `tunings` and `seconds` what it saves.
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
    witness: Witness | None = None

    @property
    def needless(self) -> bool:
        """Whether it never changed the winner, and was varied often enough to believe that."""
        return self.differ == 0 and len(self.values) > 1 and self.bound <= MOST

    @property
    def matters(self) -> bool:
        """Whether it changed the winner beyond doubt; if it is not needless either, too little is stored to say."""
        return self.differ > 0


class Contradiction(msgspec.Struct, frozen=True):
    """Two configs that stood for one key, each beyond doubt faster than the other when it was chosen.

    Something that matters was different, and the key does not say what. `gain` is that of the earlier config over the
    later one when it was chosen, `reverse` that of the later one when that was.
    """

    key: Key
    earlier: Config
    later: Config
    gain: Gain
    reverse: Gain


def fields(decisions: Iterable[Decision], journal: Journal) -> list[Field]:
    """Every field that was varied while all else stayed; needless ones first, among them those that save most."""
    alike: dict[tuple[str, str], list[Decision]] = {}
    for decision in decisions:
        alike.setdefault((decision.key.kernel, decision.key.source), []).append(decision)
    losses = Losses(journal)
    found = [field for some in alike.values() for field in _fields(some, losses)]
    return sorted(found, key=lambda one: (not one.needless, -one.tunings, one.kernel, one.names))


def remedy(field: Field) -> str:
    """What can be done about a needless field."""
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


def contradictions(key: Key, generations: Sequence[Generation], trials: Sequence[Trial]) -> list[Contradiction]:
    """What stood for a key and excludes each other, by the trials that were made for each generation."""
    spans = zip([0.0, *(one.since for one in generations)], generations, strict=False)
    seen = [(one.decision, {t.config: t for t in trials if after < t.at <= one.since}) for after, one in spans]
    found: dict[tuple[Config, Config], Contradiction] = {}
    for number, (earlier, then) in enumerate(seen):
        for later, now in seen[number + 1 :]:
            pair = earlier.config, later.config
            if pair[0] == pair[1] or pair in found or _tie(*pair, earlier, later):
                continue
            gain, reverse = _slower(pair[1], pair[0], then), _slower(pair[0], pair[1], now)
            if gain and reverse and _excluded(gain, earlier) and _excluded(reverse, later):
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
        low, high = (rate, high) if tail > DOUBT else (low, rate)
    return high


class Losses:
    """What a config chosen for one key costs under another, as far as stored evidence tells."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Groups are looked at one after another, and a store may have more journals than memory.
        self._trials = lru_cache(8 * LARGEST)(lambda key: {trial.config: trial for trial in journal(key)})

    def seconds(self, key: Key) -> float:
        """What it took to tune a key."""
        return sum(trial.build_seconds + trial.run_seconds for trial in self._journal(key))

    def of(self, config: Config, there: Decision) -> Gain | None:
        """How many times longer `config` takes than the winner for `there`'s key; None if nothing says so.

        The race that decided knows best, if it is there as a tie; else the trials of the key.
        """
        doubt = _doubt(there)
        if config == there.config:
            return Gain(1.0, 1.0, doubt)
        said = there.evidence
        tie = next((tie for tie in said.ties if tie.config == config), None) if said else None
        if said is None or tie is None:
            loss = _slower(config, there.config, self._trials(there.key))
            return loss and Gain(loss.ratio, loss.low, loss.high * doubt)
        ratio = tie.seconds / said.seconds
        return Gain(ratio, ratio / exp(said.resolution or 0.0), ratio * doubt)


def _doubt(decision: Decision) -> float:
    """How many times faster than the winner the best may be, for all its race and search could tell.

    Where two races told nothing, the default stayed in both: that they agree would be no evidence.
    """
    if (said := decision.evidence) is None or not said.complete:
        return exp(UNKNOWN)
    return exp(max(said.resolution or 0.0, said.remains or 0.0))


def _slower(config: Config, winner: Config, trials: Mapping[Config, Trial]) -> Gain | None:
    """How many times longer one config took than another in trials of the same key."""
    one, other = (trials[which].outcome if which in trials else None for which in (config, winner))
    if not isinstance(one, Timing) or not isinstance(other, Timing):
        return None
    (low, high), (least, greatest) = (
        tuple(bound / median(timing.samples) for bound in interval(timing.samples)) for timing in (one, other)
    )
    ratio = one.seconds / other.seconds
    return Gain(ratio, ratio * low / greatest, ratio * high / least)


def _excluded(gain: Gain, decided: Decision) -> bool:
    """Whether a winner was faster beyond doubt than another that did not tie with it.

    Its trials may show it; if there was a race, that has told the winner from all but its ties, though trials were few.
    """
    said = decided.evidence
    raced = said is not None and said.conditions is not None and len(said.ties) < MOST_TIES
    return gain.low > 1 + WORTH or (raced and gain.ratio > 1 + 2 * WORTH)


def _tie(one: Config, other: Config, *decided: Decision) -> bool:
    """Whether a race could not tell the two apart."""
    ties = [tie.config for decision in decided if decision.evidence for tie in decision.evidence.ties]
    return one in ties or other in ties


def serves(loss: Gain | None) -> bool:
    """Whether a loss is shown to be none, or too small to matter."""
    return loss is not None and loss.ratio <= 1 + WORTH and loss.high <= 1 + 2 * WORTH


def _hurts(loss: Gain | None) -> bool:
    return loss is not None and loss.low > 1 + WORTH


def _fields(decisions: Sequence[Decision], losses: Losses) -> list[Field]:
    """The fields of keys of one kernel and source."""
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
    """The fields that vary, as the numbers of their values; fields that always changed together are one column."""
    columns: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name in sorted({name for key in keys for name in key} - {"kernel", "source"}):
        numbers: dict[str, int] = {}
        codes = tuple(numbers.setdefault(key.get(name, ABSENT), len(numbers)) for key in keys)
        if len(numbers) > 1:
            columns[codes] = (*columns.get(codes, ()), name)
    return columns


class _Member(NamedTuple):
    """A decision, and the value of the field in question in its key."""

    value: str
    decision: Decision


def _order(member: _Member) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(member.value), member.value
    except ValueError:
        return True, 0.0, member.value


class _Group:
    """Decisions whose keys differ in one column alone, compared all with all."""

    def __init__(self, members: Sequence[_Member], losses: Losses) -> None:
        self.members = members
        self._some = members[:: max(1, -(-len(members) // LARGEST))]
        every = range(len(self._some))
        self._losses = {
            (i, j): losses.of(self._some[i].decision.config, self._some[j].decision)
            for i in every
            for j in every
            if i != j
        }
        agreed = [
            sum(serves(self._losses[i, j]) and serves(self._losses[j, i]) for j in every if j != i) for i in every
        ]
        # One decision would stand for all: the one that serves most of them.
        self._standard = max(every, key=agreed.__getitem__)
        self.pairs, self.agree = len(every) - 1, agreed[self._standard]

    @property
    def differ(self) -> int:
        """Decisions that lose by some other's config."""
        return len({j for (_, j), loss in self._losses.items() if _hurts(loss)})

    @property
    def shares(self) -> list[float]:
        """What sharing costs, where that is known."""
        known = [loss for pair, loss in self._losses.items() if self._standard in pair and loss is not None]
        return [max(0.0, loss.ratio - 1) for loss in known]

    @property
    def witnesses(self) -> list[Witness]:
        """Who loses beyond doubt, by whose config."""
        return [
            Witness(self._some[i].value, self._some[j].value, self._some[i].decision.config, loss)
            for (i, j), loss in self._losses.items()
            if loss is not None and _hurts(loss)
        ]


def _field(kernel: str, names: tuple[str, ...], groups: Sequence[_Group], losses: Losses) -> Field:
    members = sorted((member for group in groups for member in group.members), key=_order)
    pairs, agree, differ = (sum(getattr(group, name) for group in groups) for name in ("pairs", "agree", "differ"))
    shares = [share for group in groups for share in group.shares] or [0.0]
    witnesses = [witness for group in groups for witness in group.witnesses]
    found = Field(
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
    return msgspec.structs.replace(found, seconds=_saved(groups, losses)) if found.needless else found


def _saved(groups: Sequence[_Group], losses: Losses) -> float:
    """Seconds of tuning, if one decision of each group had done."""
    spent = [[losses.seconds(member.decision.key) for member in group.members] for group in groups]
    return sum(sum(each) * (len(each) - 1) / len(each) for each in spent)
