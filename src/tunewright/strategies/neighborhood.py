"""Random changes of configs, and the cost of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite, log

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import VARIANT, Value
from tunewright.spaces.space import Knob, Space

MIN_SECONDS = 1e-12
"""Lower bound of a time before its logarithm is taken."""


def cost(trial: Trial) -> float:
    """Returns the log of a trial's seconds; infinite if it failed."""
    return log(max(trial.seconds, MIN_SECONDS)) if isfinite(trial.seconds) else inf


class Neighborhood:
    """Random changes of a space's configs; the variant counts as one more knob.

    Rules are ignored: the caller checks whether the space contains the result.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._rng = rng
        self._knobs: dict[Value | None, tuple[Knob, ...]] = {v.name: space.knobs + v.knobs for v in space.variants}
        if not space.variants:
            self._knobs[None] = space.knobs
        self._free = {name: [knob for knob in knobs if len(knob) > 1] for name, knobs in self._knobs.items()}

    def knobs(self, config: Mapping[str, Value]) -> tuple[Knob, ...]:
        """Returns the knobs of the config's variant."""
        return self._knobs[config.get(VARIANT)]

    def mutable_count(self, config: Mapping[str, Value]) -> int:
        """Returns how many knobs of a config can change, the variant included."""
        return len(self._free[config.get(VARIANT)]) + (len(self._knobs) > 1)

    def mutate(self, settings: Mapping[str, Value], times: int = 1) -> dict[str, Value]:
        """Returns settings after `times` changes: each moves a knob to an adjacent value or, half the time, to any."""
        mutated = dict(settings)
        for _ in range(times if self.mutable_count(mutated) else 0):
            free = self._free[mutated.get(VARIANT)]
            choice = int(self._rng.integers(self.mutable_count(mutated)))
            if choice < len(free):
                self._change_knob(mutated, free[choice])
            else:
                mutated = self._switch_variant(mutated)
        return mutated

    def crossover(self, first: Mapping[str, Value], second: Mapping[str, Value]) -> dict[str, Value]:
        """Returns settings of the first parent's variant with each knob from either parent."""
        settings, knobs = dict(first), self._free[first.get(VARIANT)]
        for knob, coin in zip(knobs, self._rng.random(len(knobs)).tolist(), strict=True):
            if coin < 0.5 and (value := second.get(knob.name)) in knob.codes:
                settings[knob.name] = knob.values[knob.codes[value]]
        return settings

    def _change_knob(self, settings: dict[str, Value], knob: Knob) -> None:
        code, last = knob.codes[settings[knob.name]], len(knob) - 1
        if knob.range is not None and self._rng.random() < 0.5:
            new_code = knob.range.around(code)[int(self._rng.integers(len(knob.range.around(code))))]
        elif self._rng.random() < 0.5:
            up = code == 0 or (code < last and self._rng.random() < 0.5)
            new_code = code + 1 if up else code - 1
        else:
            new_code = int(self._rng.integers(last))
            new_code += new_code >= code
        settings[knob.name] = knob.values[new_code]

    def _switch_variant(self, settings: dict[str, Value]) -> dict[str, Value]:
        """Returns settings of another variant: shared knobs are kept, the rest are random."""
        names = [name for name in self._knobs if name is not None and name != settings[VARIANT]]
        name = names[int(self._rng.integers(len(names)))]
        switched: dict[str, Value] = {VARIANT: name}
        for knob in self._knobs[name]:
            value = settings.get(knob.name)
            code = knob.codes[value] if value in knob.codes else int(self._rng.integers(len(knob)))
            switched[knob.name] = knob.values[code]
        return switched
