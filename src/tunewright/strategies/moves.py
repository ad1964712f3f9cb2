"""Moves: how strategies change configs and compare trials."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite, log

import numpy as np

from tunewright.model.trial import Trial
from tunewright.spaces.config import VARIANT, Value
from tunewright.spaces.space import Knob, Space

LEAST_SECONDS = 1e-12
"""What a time of zero counts as, for its logarithm."""


def cost(trial: Trial) -> float:
    """The log of its seconds, so that a difference is a ratio of times; infinite if it failed."""
    return log(max(trial.seconds, LEAST_SECONDS)) if isfinite(trial.seconds) else inf


class Moves:
    """Random changes of a space's configs; the variant counts as one more knob.

    They are blind to rules: whoever makes one looks whether the space holds what came out.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._rng = rng
        self._knobs: dict[Value | None, tuple[Knob, ...]] = {v.name: space.knobs + v.knobs for v in space.variants}
        if not space.variants:
            self._knobs[None] = space.knobs
        self._free = {name: [knob for knob in knobs if len(knob) > 1] for name, knobs in self._knobs.items()}

    def knobs(self, config: Mapping[str, Value]) -> tuple[Knob, ...]:
        """The knobs that a config of this variant sets."""
        return self._knobs[config.get(VARIANT)]

    def places(self, config: Mapping[str, Value]) -> int:
        """How many things can be changed about a config."""
        return len(self._free[config.get(VARIANT)]) + (len(self._knobs) > 1)

    def turned(self, settings: Mapping[str, Value], times: int = 1) -> dict[str, Value]:
        """Settings with knobs turned so many times: half the time to a value beside, else to any."""
        turned = dict(settings)
        for _ in range(times if self.places(turned) else 0):
            free = self._free[turned.get(VARIANT)]
            place = int(self._rng.integers(self.places(turned)))
            if place < len(free):
                self._turn(turned, free[place])
            else:
                turned = self._switched(turned)
        return turned

    def crossed(self, one: Mapping[str, Value], other: Mapping[str, Value]) -> dict[str, Value]:
        """Settings of `one`'s variant with each knob as in either."""
        settings, knobs = dict(one), self._free[one.get(VARIANT)]
        for knob, coin in zip(knobs, self._rng.random(len(knobs)).tolist(), strict=True):
            if coin < 0.5 and (value := other.get(knob.name)) in knob.codes:
                settings[knob.name] = knob.values[knob.codes[value]]
        return settings

    def _turn(self, settings: dict[str, Value], knob: Knob) -> None:
        here, last = knob.codes[settings[knob.name]], len(knob) - 1
        if self._rng.random() < 0.5:
            up = here == 0 or (here < last and self._rng.random() < 0.5)
            there = here + 1 if up else here - 1
        else:
            there = int(self._rng.integers(last))
            there += there >= here
        settings[knob.name] = knob.values[there]

    def _switched(self, settings: dict[str, Value]) -> dict[str, Value]:
        """The same in another variant: what both have is kept, what only the other has is set at random."""
        names = [name for name in self._knobs if name is not None and name != settings[VARIANT]]
        name = names[int(self._rng.integers(len(names)))]
        switched: dict[str, Value] = {VARIANT: name}
        for knob in self._knobs[name]:
            kept = settings.get(knob.name)
            code = knob.codes[kept] if kept in knob.codes else int(self._rng.integers(len(knob)))
            switched[knob.name] = knob.values[code]
        return switched
