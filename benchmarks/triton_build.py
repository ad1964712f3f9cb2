"""What knowing before compiling saves: the 576 configs of an fp16 matrix product in Triton, for sm_80 and sm_90.

    python benchmarks/triton_build.py [--quick] [--json] [--work DIR] [--calibrate] [--sample 96] [--targets sm_80]

No GPU is needed, and nothing is said of speed (rung 1: real compiles). A random sample of 96 configs is compiled,
each in a process of its own; CPU seconds are those of that process and of ptxas. What the model drops is compiled too,
to count how much of it really spills or does not fit: `drop_precision` is that share, `drop_recall` the share of bad
configs that the model drops, `compile_saving` the share of CPU seconds that need not be spent, the model's own
included, and `best_saving` what it would be if the model dropped exactly the bad ones. Sums are extrapolated to all
configs, with the spread of 1,000 resamples.

The limits that the model uses were learned from other configs, the first 240 of a fixed random order (48 for
targets besides these two), none of which is scored; `--calibrate` learns them anew and prints them. Finished compiles
are kept in DIR, so that a killed run goes on.

It is not called triton.py: a file of that name would stand before Triton itself wherever a benchmark imports it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from kernels.triton_matmul import matmul
from triton_ledger import CALL, GROUP, Built, Ledger

import tunewright as tw
from tunewright.triton.static import calibration, call_arguments
from tunewright.triton.static.kernels import unwrap_kernel
from tunewright.triton.static.model import ResourceModel
from tunewright.triton.static.resources import TOLERATED_STACK_BYTES
from tunewright.triton.static.targets import TargetSpec, find_target

SPACE = tw.Space(
    tw.Knob("BLOCK_M", [32, 64, 128, 256]),
    tw.Knob("BLOCK_N", [32, 64, 128, 256]),
    tw.Knob("BLOCK_K", [16, 32, 64]),
    tw.Knob("num_warps", [2, 4, 8]),
    tw.Knob("num_stages", [2, 3, 4, 5]),
)
ORDER = np.random.default_rng(0).permutation(len(SPACE)).tolist()
SCORED, LEARNED = 96, 48
LEARNED_FROM = {"sm_80": 240, "sm_90": 240}
TARGETS = ("sm_80", "sm_90")
DEADLINE = 900.0
GOALS = tuple(
    goal
    for name in TARGETS
    for goal in (Goal(f"{name}.compile_saving", ">=", 0.6), Goal(f"{name}.drop_precision", ">=", 0.95))
)


def sample(first: int, count: int) -> list[tw.Config]:
    """So many configs of a fixed random order: limits were learned from the first, and are scored on those after."""
    return [SPACE[i] for i in ORDER[first : first + count]]


def model_for(place: TargetSpec) -> ResourceModel:
    """What users get: the rules with the limits that are part of the library."""
    return ResourceModel(
        unwrap_kernel(matmul, SPACE), place, (call_arguments.parse_arguments(CALL)[0], {"GROUP_M": GROUP})
    )


def scored(place: TargetSpec, built: Sequence[Built]) -> dict[str, Any]:
    """The figures of one target."""
    model, started = model_for(place), time.process_time()
    dropped = np.array([bool(model.objections(one.config)) for one in built])
    thought = (time.process_time() - started) / len(built)
    spent, bad = np.array([one.cpu for one in built]), np.array([one.bad(place) for one in built])
    score = calibration.CalibrationScore.from_verdicts(list(zip(dropped.tolist(), bad.tolist(), strict=True)))
    rng, savings, sums = np.random.default_rng(1), [], []
    for _ in range(1000):
        drawn = rng.integers(len(built), size=len(built))
        sums.append(spent[drawn].mean() * len(SPACE))
        savings.append(1 - (spent[drawn][~dropped[drawn]].sum() + thought * len(built)) / spent[drawn].sum())
    kept = spent[~dropped].sum() + thought * len(built)
    heavy = np.array([one.figures is not None and one.figures["stack"] > TOLERATED_STACK_BYTES for one in built])
    return {
        "compile_saving": round(float(1 - kept / spent.sum()), 4),
        "saving_spread": [round(float(v), 4) for v in np.quantile(savings, (0.025, 0.975))],
        "drop_precision": score.precision if score.precision is None else round(score.precision, 4),
        "drop_recall": score.recall if score.recall is None else round(score.recall, 4),
        "heavy_recall": round(float(dropped[heavy].mean()), 4) if heavy.any() else None,
        "best_saving": round(float(spent[bad].sum() / spent.sum()), 4),
        "sampled": len(built),
        "dropped": int(dropped.sum()),
        "bad": int(bad.sum()),
        "cpu_seconds_all": round(float(spent.mean() * len(SPACE)), 1),
        "cpu_seconds_all_spread": [round(float(v), 1) for v in np.quantile(sums, (0.025, 0.975))],
        "cpu_seconds_kept": round(float(kept / len(built) * len(SPACE)), 1),
        "limit": str(model.limit),
    }


def learned(place: TargetSpec, built: Sequence[Built]) -> calibration.RegisterLimit:
    """The limit that a sample tells."""
    model = model_for(place)
    found = [(one, model.estimate(one.config)) for one in built if one.figures is not None]
    return calibration.fit_register_limit(
        [(needs.registers, one.figures["stack"] > 0) for one, needs in found if needs]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, count, report."""
    takes = parser(__doc__)
    takes.add_argument("--work", type=Path, help="where finished compiles are kept")
    takes.add_argument("--calibrate", action="store_true", help="learn the limits anew instead of scoring them")
    takes.add_argument("--sample", type=int, default=SCORED, help="how many configs are compiled and scored")
    takes.add_argument("--targets", default=",".join(TARGETS), help="GPUs, as sm_80,gfx942")
    given = takes.parse_args(arguments)
    work = given.work or Path(tempfile.gettempdir()) / "tunewright-triton-build"
    report = Report()
    for name in given.targets.split(","):
        place, seen = find_target(name), LEARNED_FROM.get(name, LEARNED)
        configs = sample(0, seen) if given.calibrate else sample(seen, 3 if given.quick else given.sample)

        def note(done: int, of: int, place: TargetSpec = place) -> None:
            print(f"{place}: {done} of {of} compiled", file=sys.stderr, flush=True)

        built = Ledger(work, place, DEADLINE).built(configs, note)
        if given.calibrate:
            room = learned(place, built)
            report.figures[name] = {"registers": room.registers, "samples": room.samples}
            report.lines.append(f"{name}: {room.registers:g} registers are too many, by {room.samples} samples")
            continue
        report.figures[name] = said = scored(place, built)
        low, high = said["saving_spread"]
        report.lines.append(
            f"{name}: all {len(SPACE)} configs take {said['cpu_seconds_all']:.0f} CPU s, those the model keeps "
            f"{said['cpu_seconds_kept']:.0f}: {said['compile_saving']:.0%} saved ({low:.0%} to {high:.0%}); of "
            f"{said['sampled']} compiled it drops {said['dropped']}, {said['bad']} are bad"
        )
    return report.finish(() if given.quick or given.calibrate else GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
