"""Calibration: how many registers are free for accumulators and operands, learned from compiled samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunewright.backends.triton.targets import Target
from tunewright.errors import SettingsError

UNCALIBRATED = 0.85
"""Of a thread's registers, the share that is taken to be too many where nothing was compiled to learn from."""


@dataclass(frozen=True)
class Score:
    """How often a model was right on samples it did not learn from.

    `precision` is the share of those it dropped that are really bad, `recall` the share of bad ones it dropped; each
    None where there was nothing to tell it by.
    """

    samples: int
    dropped: int
    bad: int
    precision: float | None
    recall: float | None

    @classmethod
    def of(cls, verdicts: Sequence[tuple[bool, bool]]) -> Score:
        """From pairs of dropped and bad."""
        both = sum(dropped and bad for dropped, bad in verdicts)
        dropped, bad = (sum(pair[i] for pair in verdicts) for i in (0, 1))
        return cls(len(verdicts), dropped, bad, both / dropped if dropped else None, both / bad if bad else None)

    def __str__(self) -> str:
        def percent(share: float | None) -> str:
            return "unknown" if share is None else f"{share:.0%}"

        return f"precision {percent(self.precision)}, recall {percent(self.recall)} on {self.samples} other samples"


@dataclass(frozen=True)
class Room:
    """So many registers a thread are too many for accumulators and operands, and how that is known."""

    registers: float
    samples: int = 0
    score: Score | None = None

    def __str__(self) -> str:
        if not self.samples:
            return "not calibrated"
        return f"calibrated on {self.samples} samples" + (f"; {self.score}" if self.score else "")


def calibrated(samples: Sequence[tuple[float, bool]]) -> Room:
    """The limit that `samples` tell, each the registers a config was reckoned to need and whether it spilled.

    It is the least need from which on all of them spilled: to drop a good config costs more than to compile a bad one.
    """
    if not any(spilled for _, spilled in samples) or all(spilled for _, spilled in samples):
        raise SettingsError("samples that all spill, or none of which does, tell no limit; compile others")
    sizes = sorted({size for size, _ in samples})
    good = max(size for size, spilled in samples if not spilled)
    if good == sizes[-1]:
        raise SettingsError("samples that need most registers do not spill; the model does not fit this kernel")
    return Room(float(min(size for size in sizes if size > good)), len(samples))


ROOMS = {
    "sm_80": Room(224.0, 240, Score(96, 30, 32, 1.0, 0.9375)),
    "sm_90": Room(224.0, 240, Score(96, 30, 30, 1.0, 1.0)),
    "sm_100": Room(256.0, 48, Score(29, 7, 8, 1.0, 0.875)),
    "gfx942": Room(304.0, 48, Score(46, 9, 9, 1.0, 1.0)),
}
"""Limits by target, as `benchmarks/triton_build.py --calibrate` found them with Triton 3.9.0 on its matrix product."""


def room_for(target: Target) -> Room:
    """The limit for a target: calibrated, else a cautious share of what a thread may have."""
    return ROOMS.get(target.name) or Room(float(int(UNCALIBRATED * target.registers_thread)))
