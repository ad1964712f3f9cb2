"""Classes of configs whose results for the same rows are equal, bit for bit, whatever the size of a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

Sizes = tuple[int, ...]
DrawnRow = tuple[int, str]
"""The draw of the inputs, and a row of the results."""


@dataclass(frozen=True)
class RowBits:
    """The fingerprints of a config's rows at each of the sizes that have them."""

    prints: Mapping[DrawnRow, Mapping[Sizes, str]]

    @property
    def rows(self) -> dict[DrawnRow, str]:
        """The fingerprint of each row, if it is the same at all sizes."""
        return {row: next(iter(found.values())) for row, found in self.prints.items()}

    @property
    def change(self) -> tuple[Sizes, Sizes] | None:
        """Two sizes at which a row differs; None if all are the same wherever they are."""
        for found in self.prints.values():
            first, *others = sorted(found)
            for other in others:
                if found[other] != found[first]:
                    return first, other
        return None


@dataclass
class BitClass:
    """Configs with equal results, and what these are."""

    rows: dict[DrawnRow, str]
    configs: list[Config] = field(default_factory=list)

    def agrees(self, bits: RowBits) -> bool:
        """Whether a config has the same results, wherever both have any."""
        return bits.change is None and all(self.rows.get(row, own) == own for row, own in bits.rows.items())


def classes_of(probed: Mapping[Config, RowBits]) -> list[BitClass]:
    """Returns the classes; a config that runs at few sizes may be in several."""
    classes: list[BitClass] = []
    steady = {config: bits for config, bits in probed.items() if bits.prints and bits.change is None}
    for config, bits in sorted(steady.items(), key=lambda pair: -len(pair[1].prints)):
        homes = [one for one in classes if one.agrees(bits)]
        if not homes:
            homes = [BitClass(bits.rows)]
            classes += homes
        for home in homes:
            home.configs.append(config)
    return classes


def what_breaks(space: Space, probed: Mapping[Config, RowBits], dims: Sequence[str]) -> str:
    """Returns a sentence about which knob keeps all sizes from having the same bits."""
    if not probed:
        return "no config that works at one of them ran at all of them; `tunewright trials` shows why"
    steady = [bits for bits in probed.values() if bits.change is None]
    if not steady:
        knobs = [name for name in space.names if _changes_some_sizes(name, probed)]
        first = next(iter(probed.values()))
        return f"every config changes rows with {_between(first, dims)}; " + (
            f"{_named(knobs)} changes them at some sizes only: give it a value that is used at all of them"
            if knobs
            else "no knob does, so the kernel itself does other sums at other sizes"
        )
    changing = [config for config, bits in probed.items() if bits.change is not None]
    groups = [one.configs for one in classes_of(probed)] + ([changing] if changing else [])
    knobs = [name for name in space.names if _separates(name, groups)]
    return "no class runs at all of them; " + (
        f"{_named(knobs)} separates the classes: let one value of it run at all sizes"
        if knobs
        else "let configs of one class run at all sizes"
    )


def _named(knobs: Sequence[str]) -> str:
    return f"the knob {knobs[0]}" if len(knobs) == 1 else f"one of the knobs {', '.join(knobs)}"


def _between(bits: RowBits, dims: Sequence[str]) -> str:
    change = bits.change
    assert change is not None, "only asked of a config that changes rows"
    low, high = (" x ".join(map(str, sizes)) for sizes in change)
    return f"{', '.join(dims)} (between {low} and {high})"


def _changes_some_sizes(name: str, probed: Mapping[Config, RowBits]) -> bool:
    """Whether configs that differ only in a knob differ in their rows at some sizes, and are the same at others."""
    differs: set[Sizes] = set()
    same: set[Sizes] = set()
    for left, right in _pairs(name, probed):
        for row in left.prints.keys() & right.prints.keys():
            for sizes in left.prints[row].keys() & right.prints[row].keys():
                equal = left.prints[row][sizes] == right.prints[row][sizes]
                (same if equal else differs).add(sizes)
    return bool(differs) and bool(same - differs)


def _pairs(name: str, probed: Mapping[Config, RowBits]) -> Iterable[tuple[RowBits, RowBits]]:
    """Yields the results of configs that differ in one knob."""
    alike: dict[tuple[tuple[str, object], ...], list[RowBits]] = {}
    for config, bits in probed.items():
        if name in config:
            alike.setdefault(tuple((k, v) for k, v in sorted(config.items()) if k != name), []).append(bits)
    for group in alike.values():
        yield from pairwise(group)


def _separates(name: str, groups: Sequence[Sequence[Config]]) -> bool:
    """Whether no two groups share a value of a knob."""
    values = [{config.get(name) for config in group} for group in groups]
    return len(values) > 1 and sum(map(len, values)) == len(set().union(*values))
