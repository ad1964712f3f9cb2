"""`tunewright trials`: what was tried for a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tunewright.backends.replay import Recording
from tunewright.cli import output
from tunewright.cli.completion import complete_kernel
from tunewright.cli.show import select_key
from tunewright.cli.targets import json_option, session_to_read, store_option
from tunewright.model.key import Key
from tunewright.model.trial import Failure, Trial
from tunewright.report import formatting
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space


@click.command()
@click.argument("kernel", required=False, shell_complete=complete_kernel)
@click.option("--failed", is_flag=True, help="Only those that failed, with the reason.")
@click.option(
    "--best", type=click.IntRange(min=0), default=20, show_default=True, help="How many to list, fastest first; 0: all."
)
@click.option("--key", "prefix", default="", help="Which problem, by the beginning of its digest.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save them as NAME.parquet, for `tunewright replay`.",
)
@store_option
@json_option
def trials(kernel: str | None, failed: bool, best: int, **options: Any) -> None:
    """List what was tried: times and failures.

    If KERNEL has several problems, the one with most trials, unless --key names another.
    """
    session = session_to_read(options["store"])
    key = select_key(session, kernel, options["prefix"])
    recorded = list(session.store.trials(key))
    if options["save"]:
        Recording.from_trials(key, _spanned_space(recorded), recorded).write(options["save"])
        output.echo(f"{options['save']}: {formatting.counted(len(recorded), 'trial')} of {key.kernel}")
        return
    selected = [trial for trial in recorded if isinstance(trial.outcome, Failure) or not failed]
    selected.sort(key=lambda trial: trial.seconds)
    omitted = max(0, len(selected) - best) if best else 0
    selected = selected[: best or None]
    if options["as_json"]:
        output.print_json({"digest": key.digest, "trials": selected})
        return
    output.echo(f"{key.kernel}  {key.signature} · {formatting.counted(len(recorded), 'trial')}", "bold")
    if failed and not selected:
        output.echo("none failed")
    else:
        output.print_table(("config", "outcome", "build", "run"), (_row(key, trial) for trial in selected))
    if omitted:
        output.echo(f"and {omitted} more; --best 0 lists all")
    for other in sorted(set(session.store.keys(kernel)) - {key}, key=lambda other: (other.kernel, other.digest)):
        output.echo(f"also tried: {other.kernel}  {other.signature}  --key {other.digest[:10]}")


def _row(key: Key, trial: Trial) -> list[str]:
    if isinstance(trial.outcome, Failure):
        outcome = f"{trial.outcome.kind} at {trial.outcome.stage}: {trial.outcome.reason}"
    else:
        outcome = formatting.measured(trial.seconds, key)
    return [str(trial.config), outcome, formatting.seconds(trial.build_seconds), formatting.seconds(trial.run_seconds)]


def _spanned_space(trials: Iterable[Trial]) -> Space:
    """Returns a space of every value that was tried."""
    values: dict[str, dict[Any, None]] = {}
    for trial in trials:
        for name, value in trial.config.items():
            values.setdefault(name, {})[value] = None
    return Space(
        *(Knob(name, sorted(seen, key=lambda value: (str(type(value)), value))) for name, seen in values.items())
    )
