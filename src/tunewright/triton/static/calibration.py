"""Register limits for accumulators and operands, calibrated on compiled samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunewright.errors import SettingsError
from tunewright.triton.static.targets import TargetSpec

UNCALIBRATED_SHARE = 0.85
"""The limit as a share of a thread's registers where there is no calibration."""


@dataclass(frozen=True)
class CalibrationScore:
    """How often a limit was right on samples it was not fitted to.

    `precision` is the share of dropped configs that are bad, `recall` the share of bad configs that were dropped; None
    if there were none.
    """

    samples: int
    dropped: int
    bad: int
    precision: float | None
    recall: float | None

    @classmethod
    def from_verdicts(cls, verdicts: Sequence[tuple[bool, bool]]) -> CalibrationScore:
        """Returns the score of pairs (dropped, bad)."""
        dropped_bad = sum(dropped and bad for dropped, bad in verdicts)
        dropped, bad = (sum(pair[i] for pair in verdicts) for i in (0, 1))
        precision, recall = (dropped_bad / count if count else None for count in (dropped, bad))
        return cls(len(verdicts), dropped, bad, precision, recall)

    def __str__(self) -> str:
        def percent(share: float | None) -> str:
            return "unknown" if share is None else f"{share:.0%}"

        return f"precision {percent(self.precision)}, recall {percent(self.recall)} on {self.samples} other samples"


@dataclass(frozen=True)
class RegisterLimit:
    """Registers per thread for accumulators and operands from which on a config spills, and how it was found."""

    registers: float
    samples: int = 0
    score: CalibrationScore | None = None

    def __str__(self) -> str:
        if not self.samples:
            return "not calibrated"
        return f"calibrated on {self.samples} samples" + (f"; {self.score}" if self.score else "")


def fit_register_limit(samples: Sequence[tuple[float, bool]]) -> RegisterLimit:
    """Fits the limit to samples: the estimated registers of a config, and whether it spilled.

    The limit is the smallest estimate from which on all samples spilled: dropping a good config costs more than
    compiling a bad one.
    """
    if not any(spilled for _, spilled in samples) or all(spilled for _, spilled in samples):
        raise SettingsError("no limit can be fitted: all samples spill, or none does; compile other configs")
    needs = sorted({need for need, _ in samples})
    largest_good = max(need for need, spilled in samples if not spilled)
    if largest_good == needs[-1]:
        raise SettingsError("the model does not fit this kernel: the samples with the highest estimate do not spill")
    return RegisterLimit(float(min(need for need in needs if need > largest_good)), len(samples))


REGISTER_LIMITS = {
    "sm_80": RegisterLimit(224.0, 240, CalibrationScore(96, 30, 32, 1.0, 0.9375)),
    "sm_90": RegisterLimit(224.0, 240, CalibrationScore(96, 30, 30, 1.0, 1.0)),
    "sm_100": RegisterLimit(256.0, 48, CalibrationScore(29, 7, 8, 1.0, 0.875)),
    "gfx942": RegisterLimit(304.0, 48, CalibrationScore(46, 9, 9, 1.0, 1.0)),
}
"""Limits by target, fitted by `benchmarks/triton_build.py --calibrate` with Triton 3.9.0 to its matrix product."""


def register_limit(target: TargetSpec) -> RegisterLimit:
    """Returns the limit of a target: calibrated, else a cautious share of a thread's registers."""
    return REGISTER_LIMITS.get(target.name) or RegisterLimit(float(int(UNCALIBRATED_SHARE * target.registers_thread)))
