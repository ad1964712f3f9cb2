"""Whether the acceptance kit finds what is wrong with a card, and nothing else: on simulated cards.

    python benchmarks/gpu_accept.py [--quick] [--json]

Rung 2: simulated cards, real compiler and autotuner; nothing here says anything about a GPU. The kit runs to its end on
a healthy card. Then each planted fault is let loose on the stages that should find it; without `--quick` on all stages.

- `planted`, `found`: faults, and those that a stage of theirs reported. `missed` names the others.
- `false_alarms`: findings on the healthy card.
- `unfinished`: runs of the kit that did not end with a signed report that can be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from figures import Goal, Report, parser

from tunewright.testing.acceptance_cards import PLANTED, SimulatedDevice, healthy, with_fault
from tunewright.triton.acceptance.notes import StageResult
from tunewright.triton.acceptance.report import read_report, write_report
from tunewright.triton.acceptance.runner import choose_stages, make_report, run_stages

GOALS = (
    Goal("planted", ">=", 20),
    Goal("found_share", "==", 1.0),
    Goal("false_alarms", "==", 0),
    Goal("unfinished", "==", 0),
)
RUNG = "simulated cards (rung 2): whether the kit finds faults; nothing about a GPU"
HANG_SECONDS = 30.0


def accept(device: SimulatedDevice, stages: Sequence[str], folder: Path, compiled: Path) -> list[StageResult]:
    """Runs stages on a card and writes the report; returns the results as the report has them."""
    deadline = HANG_SECONDS if device.fault == "hangs" else None
    chosen = choose_stages(stages)
    results = list(run_stages(device, chosen, folder / "work", deadline=deadline, compiled=compiled))
    machine, _ = write_report(make_report(device, results), folder, compiled.parent / "key.pem")
    return read_report(machine)[0].stages


def main(arguments: Sequence[str] | None = None) -> int:
    """Test a healthy card and all others, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # said, or Triton warns
    torch.set_num_threads(1)
    missed, unfinished = [], 0
    with TemporaryDirectory() as root:
        compiled = Path(root, "triton")
        good = accept(healthy(), (), Path(root, "healthy"), compiled)
        alarms = [f"{stage.name}: {finding}" for stage in good for finding in stage.findings]
        unfinished += len(good) != len(choose_stages(()))
        for number, (fault, stages) in enumerate(PLANTED.items()):
            results = accept(with_fault(fault), stages if given.quick else (), Path(root, str(number)), compiled)
            unfinished += len(results) != len(choose_stages(stages if given.quick else ()))
            finding = next((stage.findings[0] for stage in results if stage.name in stages and stage.findings), None)
            if finding is None:
                missed.append(fault)
            report.lines.append(f"  {fault}: {finding or 'MISSED'}"[:160])
    report.figures |= {
        "planted": len(PLANTED),
        "found": len(PLANTED) - len(missed),
        "found_share": 1 - len(missed) / len(PLANTED),
        "missed": missed,
        "false_alarms": len(alarms),
        "unfinished": unfinished,
        "stages": {stage.name: round(stage.seconds, 1) for stage in good},
        "rung": RUNG,
    }
    report.lines += [f"  false alarm: {alarm}" for alarm in alarms]
    report.lines += [f"  {name}: {value}" for name, value in report.figures.items()]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
