"""`tunewright gpu`: the acceptance kit for a card."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.cli.triton import require_triton
from tunewright.pools.kernel_loader import load_target
from tunewright.settings import Settings

if TYPE_CHECKING:
    from tunewright.triton.acceptance.notes import StageResult

FILE = click.Path(dir_okay=False, path_type=Path)
COLORS = {"passed": "green", "skipped": "dim", "failed": "red", "hung": "red", "died": "red"}


@click.group()
def gpu() -> None:
    """Test whether everything works on a card, and write a report."""


@gpu.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("gpu-report"), show_default=True,
              help="The folder for the report, its page and the logs.")  # fmt: skip
@click.option("--only", help="Stages, as clock,kernels (default: all).")
@click.option("--deadline", type=click.FloatRange(min=1), help="Seconds for each stage (default: its own).")
@click.option(
    "--sign", "key", type=FILE, help="The private key to sign with (default: one of this machine, made once)."
)
@click.option("--simulate", metavar="MODULE:NAME", help="Test a simulated card instead of the GPU of this machine.")
@json_option
def accept(out: Path, only: str | None, deadline: float | None, key: Path | None, **options: Any) -> None:
    """Test whether everything works on the card of this machine.

    Stages run one after the other, each in a process of its own with a deadline: inventory, adapter, clock, kernels,
    memory, faults, streams, compile, processes, launch, prebuilt, truth. The stage `faults` lets a kernel store far
    outside of its memory, which ends its process and no other. Writes `report.json`, which is signed, and `report.md`.
    Exit status 1 if a stage did not pass.
    """
    with require_triton():
        from tunewright.triton.acceptance import report as reports  # noqa: PLC0415 - loads Triton and torch
        from tunewright.triton.acceptance import runner  # noqa: PLC0415
        from tunewright.triton.acceptance.device import TorchDevice  # noqa: PLC0415

        device = load_target(options["simulate"])() if options["simulate"] else TorchDevice()
        results = []
        stages = runner.choose_stages(only.split(",") if only else ())
        for result in runner.run_stages(device, stages, out / "work", deadline=deadline):
            results.append(result)
            if not options["as_json"]:
                _print_result(result)
        report = runner.make_report(device, results)
        machine, page = reports.write_report(report, out, key or Settings.read().cache_path / reports.KEY_NAME)
    if options["as_json"]:
        verdicts = {result.name: {"verdict": result.verdict, "findings": result.findings} for result in results}
        output.print_json({"good": report.is_good, "rung": report.rung, "report": str(machine), "stages": verdicts})
    else:
        output.echo(f"{reports.RUNGS[report.rung]}; wrote {machine} and {page}", "dim")
    if not report.is_good:
        sys.exit(1)


def _print_result(result: StageResult) -> None:
    output.echo(f"{result.name:<12}{result.verdict:<9}{result.seconds:6.1f} s", COLORS[result.verdict])
    for finding in result.findings:
        output.echo(f"  - {finding}")


@gpu.command()
@click.argument("report", type=FILE)
@json_option
def verify(report: Path, as_json: bool) -> None:
    """Check that REPORT was not changed, and print its verdicts and who signed it."""
    with require_triton():
        from tunewright.triton.acceptance.report import RUNGS, read_report  # noqa: PLC0415 - needs `cryptography`

        found, signer = read_report(report)
    if as_json:
        verdicts = {stage.name: stage.verdict for stage in found.stages}
        output.print_json({"good": found.is_good, "rung": found.rung, "signer": signer, "stages": verdicts})
        return
    output.echo(f"signed by {signer}; {found.card}; {RUNGS[found.rung]}; {found.made}")
    for stage in found.stages:
        _print_result(stage)
