"""How tuners choose on a bad day: noise, drift, contention, throttling, lying clocks, near ties and crashes.

    python benchmarks/torture.py [--quick] [--json]

Tuners choose on the same simulated machine, whose truth is known (`tunewright.testing.torture`): this library, from its
trials to its decision, through its front ends for kernels, for calls on tensors (`torch`) and for Triton kernels on a
fake driver (`triton`); `do_bench` and the autotuner the way Triton 3.9.0 does it; and Kernel Tuner itself, by
brute force with its defaults. Every problem is tuned twice, independently.

- flip rate: of 100 near ties, in seven weathers by turns, how many pairs of tunings chose differently.
- wrong: choices more than 1 % slower than the best. Regret: how much slower choices are, by the truth.
- losers: choices that are slower than the default beyond doubt when both are raced afterwards, on another day.
- lost: tunings that a failing candidate ended without a choice, or kept from trying working ones.
- kernel: simulated seconds that the launches of one tuning take.

Needs the dependency group `peers` and gcc.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from figures import Goal, Report, parser
from torture_fronts import TorchTuner, TritonTuner

from tunewright.testing.torture import (
    NEAR_TIES,
    SCENARIOS,
    DoBench,
    KernelTuner,
    TortureScore,
    Tuner,
    TunewrightTuner,
    torture,
)

GOALS = tuple(
    Goal(f"{prefix}{figure}", sign, bound)
    for prefix in ("", "torch_", "triton_")
    for figure, sign, bound in (("flip_rate", "<=", 0.02), ("losers_vs_default", "==", 0), ("lost", "==", 0))
)
OTHERS = tuple(scenario for scenario in SCENARIOS if scenario is not NEAR_TIES)
PREFIXES = {
    "tunewright": "",
    "torch": "torch_",
    "triton": "triton_",
    "do_bench": "peer_",
    "kernel_tuner": "kernel_tuner_",
}


def run(tuner: Tuner, *, quick: bool) -> list[TortureScore]:
    """Its scores, the near ties first."""
    return [
        *torture(tuner, [NEAR_TIES], problems=14 if quick else 100),
        *torture(tuner, OTHERS, problems=1 if quick else 20),
    ]


def note(report: Report, tuner: Tuner, scores: Sequence[TortureScore]) -> None:
    """Add the figures of a tuner: those of the near ties, sums over every scenario, and one row for each."""
    prefix, tunings = PREFIXES[tuner.name], sum(2 * score.problems for score in scores)
    report.figures |= {
        f"{prefix}flip_rate": round(scores[0].flip_rate, 4),
        f"{prefix}losers_vs_default": sum(score.losers for score in scores),
        f"{prefix}wrong_winners": sum(score.wrong for score in scores),
        f"{prefix}lost": sum(score.lost for score in scores),
        f"{prefix}tunings": tunings,
    }
    report.figures.setdefault("rows", []).extend(
        msgspec.to_builtins(score) | {"flip_rate": round(score.flip_rate, 4)} for score in scores
    )
    report.lines.append(f"{tuner.name}, {tunings} tunings")
    report.lines += [f"  {line(score)}" for score in scores]


def line(score: TortureScore) -> str:
    """A score for people."""
    return (
        f"{score.scenario:<13}flips {score.flips:>3}/{score.pairs:<4}"
        f"regret {score.regret:>6.2%} (worst {score.worst_regret:>6.1%})  "
        f"wrong {score.wrong:>3}  losers {score.losers:>3}  lost {score.lost:>3}  kernel {score.kernel_seconds:.2f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Torture, compare, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    for tuner in (TunewrightTuner(), TorchTuner(), TritonTuner(), DoBench(), KernelTuner()):
        note(report, tuner, run(tuner, quick=given.quick))
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
