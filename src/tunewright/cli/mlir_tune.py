"""`tunewright mlir tune FILE.mlir`: tunes a payload of one's own, and writes what was found as a transform script."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import load_kernel, make_session, resolve_sizes
from tunewright.cli.tune import tune
from tunewright.errors import BackendError
from tunewright.mlir.dot_plans import plan_for
from tunewright.mlir.models import kernel_source, read_file
from tunewright.mlir.script import TransformScript


@click.command(
    "tune",
    params=[
        *tune.params,
        click.Option(
            ["--python", "python_at"],
            type=click.Path(dir_okay=False, path_type=Path),
            help="Of FILE.mlir: write a file that declares it as a kernel, to be called from Python.",
        ),
        click.Option(
            ["--schedule", "schedule_at"],
            type=click.Path(dir_okay=False, path_type=Path),
            help="Of FILE.mlir: write the schedule that was found as a transform script.",
        ),
        click.Option(
            ["--last-digits"], is_flag=True, help="Of FILE.mlir: allow schedules that change the last digits."
        ),
        click.Option(
            ["--threads"],
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Of FILE.mlir: threads that share the loops of large operations.",
        ),
    ],
)
def tune_payload(
    targets: tuple[str, ...],
    python_at: Path | None,
    schedule_at: Path | None,
    last_digits: bool,
    threads: int,
    **options: Any,
) -> None:
    """Find the best schedule of a payload or the best config of a kernel, and store it.

    TARGET is FILE.mlir with a function on tensors, as torch-mlir exports it, or FILE.py:NAME of a kernel. Every
    schedule of FILE.mlir is compared with the payload as it is written.
    """
    context = click.get_current_context()
    if len(targets) != 1 or not targets[0].endswith(".mlir"):
        if python_at or schedule_at or last_digits or threads > 1:
            raise click.UsageError("--python, --schedule, --last-digits and --threads are for one FILE.mlir")
        context.invoke(tune, targets=targets, **options)
        return
    path = Path(targets[0])
    if not path.is_file():
        raise click.UsageError(f"no file {path}; give a file with MLIR, or FILE.py:NAME")
    with _declared(path, python_at, last_digits, threads) as target:
        context.invoke(tune, targets=(target,), **options)
        if schedule_at:
            script = _found(target, options["store"])
            schedule_at.write_text(f"// A schedule of {path.name}, found by tunewright.\n{script}")
            output.echo(f"{len(script.steps)} steps written to {schedule_at}; tunewright mlir explain {schedule_at}")


@contextlib.contextmanager
def _declared(path: Path, python_at: Path | None, last_digits: bool, threads: int) -> Iterator[str]:
    """Writes the payload as a kernel, to a file that is kept or not. Yields where it is."""
    payload = read_file(path)
    if not payload.arguments:
        raise BackendError(f"{path} has a function on memrefs; declare it in Python with Mlir(payload, plan)")
    allowed = [variant.name for variant in plan_for(payload).space.variants if variant.numerics] if last_digits else []
    with tempfile.TemporaryDirectory() as scratch:
        file = python_at or Path(scratch) / f"{path.stem}.py"
        file.write_text(kernel_source(path, payload, allowed, threads))
        yield f"{file}:{payload.name}"


def _found(target: str, store: str | None) -> TransformScript:
    """Returns the script of what was decided."""
    kernel: Any = load_kernel(target)
    session = make_session(kernel, {"store": store})
    decision = session.find_decision(kernel.problem(kernel.example(resolve_sizes(kernel, ())[0])))
    if decision is None:
        raise BackendError(f"nothing is decided for {kernel.name}; run the command again with a larger --budget")
    script: TransformScript = kernel.backend.script(decision.config)
    return script
