"""Results that do not depend on a dimension: all its sizes get configs of one class, whose rows are equal bit for bit.

First each size is searched freely, under the key of a kernel that does not ask for this. Then the configs that worked
are probed: the same rows, with inputs drawn anew, at many sizes. Of the classes of equal bits that run at all sizes,
the fastest is chosen, and only its configs are raced for the decisions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.cases.validation import VARIES
from tunewright.engine.budget import Budget
from tunewright.errors import NotInvariant
from tunewright.kernel.probing import CaseRows
from tunewright.kernel.row_bits import BitClass, DrawnRow, RowBits, Sizes, classes_of, what_breaks
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.race import RaceOptions
from tunewright.model.decision import Decision, Problem
from tunewright.model.signature import Signature
from tunewright.model.trial import Incumbent, TrialRequest
from tunewright.ports import plugins
from tunewright.ports.pool import Pool
from tunewright.spaces.config import Config
from tunewright.spaces.pinning import only
from tunewright.stores import serialization

if TYPE_CHECKING:
    from tunewright.kernel.tuned import Tuned

log = LazyLogger(__name__)

DRAWS = 2
"""How often the inputs of a probe are drawn."""

MAX_PROBED = 256
"""Configs that are probed: the fastest of all sizes."""

MAX_RACED = 8
"""Configs of the chosen class that are raced for each size."""

PRICE_RACE = RaceOptions(rounds=40, seconds=2.0)
"""The race between the class and the free choice."""


@dataclass
class _Bucket:
    """One of the sizes that must agree: its arguments, problems, times by config, and the free choice."""

    kernel: Tuned
    args: Sequence[Any]
    problem: Problem

    @cached_property
    def free_problem(self) -> Problem:
        """The problem without the wish that bits are the same."""
        key = self.problem.key
        mode = {name: value for name, value in key.mode.items() if name != "invariant"}
        return msgspec.structs.replace(self.problem, key=msgspec.structs.replace(key, mode=mode), exact=None)

    @cached_property
    def attempt(self) -> Any:
        """What tries and races configs at this size."""
        return self.kernel.attempt(self.kernel.cases_like(self.args))

    def search_freely(self, budget: Budget | None, *, fresh: bool) -> None:
        """Finds the free choice, unless it is known."""
        session, problem = self.kernel.session, self.free_problem
        stored = None if fresh else session.find_decision(problem)
        self.seconds = self._known_seconds()
        if stored is None or not self.seconds:  # a decision may come without its trials
            stored = self.kernel.search(problem, self.args, _again(budget), fresh=fresh)
            self.seconds = self._known_seconds()
        self.free = stored.config

    def _known_seconds(self) -> dict[Config, float]:
        """Returns the times of configs that work here, the same each time."""
        latest = {trial.config: trial for trial in self.kernel.session.store.trials(self.free_problem.key)}
        return {c: t.seconds for c, t in latest.items() if t.works and t.fingerprint != VARIES}

    def slower(self, configs: Iterable[Config]) -> float:
        """Returns the time of the fastest of some configs, as a ratio to the fastest of all; infinite if none works."""
        return min((self.seconds.get(c, inf) for c in configs), default=inf) / min(self.seconds.values(), default=inf)

    def try_config(self, config: Config) -> None:
        """Tries a config that was not tried at this size."""
        known = Incumbent(self.free, self.seconds[self.free]) if self.free in self.seconds else None
        trial = self.attempt(TrialRequest(config, known))
        self.kernel.session.store.record(self.free_problem.key, [trial])
        if trial.works:
            self.seconds[config] = trial.seconds

    def decide(self, found: BitClass, note: str, options: Mapping[str, Any]) -> Decision:
        """Races the fastest configs of a class."""
        members = sorted((c for c in found.configs if c in self.seconds), key=self.seconds.__getitem__)
        default, best = self.problem.default, members[0]
        notes = (*self.problem.notes, note, self._price(best))
        members = [*members[:MAX_RACED], *(c for c in members[MAX_RACED:] if c == default)]
        if default not in members:
            notes = (*notes, f"the default has other bits, so {best} is called the default here")
        space = only(self.problem.space, members, "its rows have the same bits at all sizes")
        default = default if default in members else best
        problem = msgspec.structs.replace(self.problem, space=space, default=default, notes=notes)
        return self.kernel.search(problem, self.args, Budget(len(members)), **options)

    def _price(self, config: Config) -> str:
        """Returns a sentence about how much slower the class is than the free choice, raced against it."""
        if config == self.free:
            return "that costs nothing: it is also the free choice"
        race = self.attempt.race([config, self.free], PRICE_RACE, protected=(0, 1))
        if race is None or race.failed:
            return f"{self.slower([config]) - 1:.1%} slower than the fastest trial of the free choice"
        ratio, low, high = race.ratio(0, 1)
        return f"{ratio - 1:.1%} ({low - 1:.1%} to {high - 1:.1%}) slower than the free choice, {self.free}"


def tune_invariant(
    kernel: Tuned, problem: Problem, args: Sequence[Any], budget: Budget | None, *, fresh: bool = False, **options: bool
) -> Decision:
    """Tunes all declared sizes of the invariant dimensions together, and returns the decision for a call with `args`.

    If other sizes are decided already, their class is kept and only this size is tuned. Raises NotInvariant if there
    is no class of configs that runs at all sizes, and says which knob is to blame.
    """
    dims = problem.key.signature.dims
    peers = [] if fresh else _peers(kernel, problem)
    buckets = [_Bucket(kernel, args, problem)]
    if not peers:
        buckets += [_bucket(kernel, args, sizes) for sizes in _other_sizes(kernel, dims)]
    for bucket in buckets:
        bucket.search_freely(budget, fresh=fresh)
    probe = _Probe(kernel, args, [bucket.problem.key.signature.dims for bucket in buckets])
    probed = probe.run(dict.fromkeys((*peers, *_fastest(buckets))))
    kept = [probed[peer] for peer in peers if peer in probed]
    if peers and not kept:
        raise NotInvariant(_refusal(kernel, buckets, "what is decided for other sizes does not run at this one"))
    classes = [one for one in classes_of(probed) if all(one.agrees(bits) for bits in kept)]
    found = _fastest_class(classes, buckets)
    if found is None:
        near = [config for config in problem.space.neighbors(problem.default, None) if config not in probed]
        probed |= probe.run([problem.default, *near[:MAX_PROBED]])
        raise NotInvariant(_refusal(kernel, buckets, what_breaks(problem.space, probed, probe.dims)))
    note = _note(found, probe)
    log.info("%s: %s", kernel.name, note)
    decisions = [bucket.decide(found, note, {"fresh": fresh, **options}) for bucket in buckets]
    return decisions[0]


def _again(budget: Budget | None) -> Budget | None:
    """Returns the same limits for another search."""
    return budget and Budget(budget.trials, budget.seconds)


def _bucket(kernel: Tuned, args: Sequence[Any], sizes: Mapping[str, int]) -> _Bucket:
    if kernel.declaration.inputs is None:
        made = Inputs.like(kernel.parameters, args, sizes).make()
    else:
        made = kernel.example({name: sizes[name] for name in kernel.dims if name in sizes})
    return _Bucket(kernel, made, kernel.problem(made))


def _other_sizes(kernel: Tuned, dims: Mapping[str, int]) -> list[dict[str, int]]:
    """Returns the other declared sizes: of `shapes=`, and all edges of buckets, where everything else is the same."""
    names = [name for name in kernel.declaration.invariant if name in dims]
    declared = [{n: kernel.buckets(n, size) for n, size in shape.items()} for shape in kernel.declaration.shapes]
    found = [sizes for sizes in declared if all(sizes.get(n) == size for n, size in dims.items() if n not in names)]
    if all(kernel.buckets.tops(name) for name in names):
        tops = product(*(kernel.buckets.tops(name) for name in names))
        found += [{**dims, **dict(zip(names, each, strict=True))} for each in tops]
    unique = {tuple(sizes[name] for name in names): {**dims, **sizes} for sizes in found if sizes.keys() >= set(names)}
    unique.pop(tuple(dims[name] for name in names), None)
    return list(unique.values())


def _peers(kernel: Tuned, problem: Problem) -> list[Config]:
    """Returns what was decided for other sizes of the invariant dimensions, everything else being the same."""
    invariant = kernel.declaration.invariant

    def others(signature: Signature) -> dict[str, int]:
        return {name: size for name, size in signature.dims.items() if name not in invariant}

    key = problem.key
    related = [
        decision.config
        for decision in kernel.session.store.relatives(key)
        if decision.key != key
        and decision.key.device == key.device
        and others(decision.key.signature) == others(key.signature)
    ]
    return list(dict.fromkeys(config for config in related if config in problem.space))


def _fastest(buckets: Sequence[_Bucket]) -> list[Config]:
    """Returns the configs that worked somewhere, those first that are fast somewhere."""
    every = dict.fromkeys(config for bucket in buckets for config in bucket.seconds)
    return sorted(every, key=lambda config: min(bucket.slower([config]) for bucket in buckets))[:MAX_PROBED]


def _fastest_class(classes: Sequence[BitClass], buckets: Sequence[_Bucket]) -> BitClass | None:
    """Returns the class with the least mean time over all sizes; None if none runs at all of them."""
    best: tuple[float, BitClass] | None = None
    for one in classes:
        for bucket in buckets:
            if bucket.slower(one.configs) == inf:  # none was tried, or it failed
                elsewhere = [min(other.slower([c]) for other in buckets) for c in one.configs]
                config = one.configs[elsewhere.index(min(elsewhere))]
                bucket.try_config(config)
        cost = sum(bucket.slower(one.configs) for bucket in buckets)
        if cost < (best[0] if best else inf):
            best = cost, one
    return best[1] if best else None


class _Probe:
    """Which sizes and rows are compared, and the inputs to do that with."""

    def __init__(self, kernel: Tuned, args: Sequence[Any], shapes: Sequence[Mapping[str, int]]) -> None:
        self._kernel = kernel
        self.dims = [name for name in kernel.declaration.invariant if name in shapes[0]]
        self.sizes = sorted({sizes for shape in shapes for sizes in self._around(shape)})
        rows = {(0,) * len(self.dims), *(tuple(size - 1 for size in sizes) for sizes in self.sizes)}
        rows |= {tuple(secrets.randbelow(size) for size in sizes) for sizes in self.sizes}
        largest = [max(column) for column in zip(*self.sizes, strict=True)]
        whole = {**shapes[0], **dict(zip(self.dims, largest, strict=True))}
        if kernel.declaration.inputs is None:
            recipe = Inputs.like(kernel.parameters, args, whole)
        else:
            recipe = Inputs(dims={name: whole[name] for name in kernel.dims if name in whole})
        self.cases = tuple(
            msgspec.structs.replace(
                recipe,
                dims=recipe.dims | dict(zip(self.dims, sizes, strict=True)),
                seed=seed,
                rows=tuple(sorted(row for row in rows if all(r < s for r, s in zip(row, sizes, strict=True)))),
            )
            for seed in (1 + secrets.randbelow(1 << 30) for _ in range(DRAWS))
            for sizes in self.sizes
        )

    def _around(self, shape: Mapping[str, int]) -> list[Sizes]:
        """Returns sizes of a bucket: its top, one between, and just above the half of it; and 1."""
        tops = [shape[name] for name in self.dims]
        between = [top // 2 + 1 + secrets.randbelow(max(1, top - top // 2 - 1)) for top in tops]
        return [tuple(tops), tuple(between), tuple(top // 2 + 1 for top in tops), (1,) * len(tops)]

    def run(self, configs: Iterable[Config]) -> dict[Config, RowBits]:
        """Returns the bits of all configs that ran at some of the sizes."""
        kernel, settings = self._kernel, self._kernel.session.settings
        pool: Pool = plugins.load("pools", settings.pool_name)(*settings.pool_arguments)
        try:
            trials = list(pool.run(kernel.attempt(self.cases), [TrialRequest(config) for config in configs]))
        finally:
            pool.close()
        found = {trial.config: self._bits(trial.fingerprint) for trial in trials if trial.works}
        return {config: bits for config, bits in found.items() if bits.prints}

    def _bits(self, text: str) -> RowBits:
        prints: dict[DrawnRow, dict[Sizes, str]] = {}
        for case, rows in zip(self.cases, serialization.decode(text.encode(), list[CaseRows]), strict=True):
            sizes = tuple(case.dims[name] for name in self.dims)
            for row, own in rows.items():
                prints.setdefault((case.seed, row), {})[sizes] = own
        return RowBits(prints)


def _note(found: BitClass, probe: _Probe) -> str:
    names = ", ".join(probe.dims)
    configs = "config has" if len(found.configs) == 1 else "configs have"
    return f"rows do not depend on {names}: {len(found.configs)} {configs} the same bits at {len(probe.sizes)} sizes"


def _refusal(kernel: Tuned, buckets: Sequence[_Bucket], reason: str) -> str:
    signatures = [bucket.problem.key.signature.dims for bucket in buckets]
    names = kernel.declaration.invariant
    sizes = ", ".join(" x ".join(str(dims[name]) for name in names) for dims in signatures)
    return (
        f"{kernel.name}: no configs give rows the same bits at all sizes of {', '.join(names)} ({sizes}): {reason}. "
        "Without invariant= each size gets its fastest config"
    )
