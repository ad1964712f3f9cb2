"""`tunewright show`: what is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.completion import complete_kernel
from tunewright.cli.targets import json_option, session_to_read, store_option
from tunewright.errors import NoDecision
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.report import formatting, plots
from tunewright.session import Session


@click.command()
@click.argument("kernel", required=False, shell_complete=complete_kernel)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the search: .png, .svg or .html.")
@click.option("--x", help="The knob along the heat map's x axis (default: one that matters).")
@click.option("--y", help="The knob along its y axis.")
@click.option("--key", "prefix", default="", help="Which problem, by the beginning of its digest.")
@store_option
@json_option
def show(kernel: str | None, plot: Path | None, prefix: str, **options: Any) -> None:
    """Show what is decided; with --plot, how it was found.

    For all kernels, or for KERNEL. Exit status 1 if nothing is decided.
    """
    session = session_to_read(options["store"])
    if plot is not None:
        key = select_key(session, kernel, prefix)
        trials = list(session.store.trials(key))
        plots.draw(plot, key, trials, session.store.get(key), axes=(options["x"], options["y"]))
        output.echo(f"{plot}: {formatting.counted(len(trials), 'trial')} of {key.kernel} {key.signature}")
        return
    decisions = [decision for decision in session.store.decisions(kernel) if decision.key.digest.startswith(prefix)]
    if options["as_json"]:
        output.print_json(decisions)
        return
    if not decisions:
        raise NoDecision(describe_absence(kernel, session))
    heads = ("kernel", "arguments", "device", "config", "time", "vs default", "trials", "when", "key")
    output.print_table(heads, (_row(decision) for decision in decisions))


def _row(decision: Decision) -> list[str]:
    key, evidence = decision.key, decision.evidence
    sizes = " ".join(f"{name}={size}" for name, size in key.signature.dims.items()) or ", ".join(key.signature.args)
    if evidence is not None and evidence.rule is not None:
        sizes = f"a rule over {', '.join(evidence.rule.sizes)}"
    if evidence is None:
        return [key.kernel, sizes, str(key.device), str(decision.config), "", "", "", "", key.digest[:10]]
    gain = formatting.ratio(evidence.gain) if evidence.gain else "-"
    trials = f"{evidence.trials}" + ("" if evidence.complete else " (interrupted)")
    time = formatting.measured(evidence.seconds, key)
    return [
        key.kernel,
        sizes,
        str(key.device),
        str(decision.config),
        time,
        gain,
        trials,
        evidence.when,
        key.digest[:10],
    ]


def describe_absence(kernel: str | None, session: Session) -> str:
    """Returns a message that nothing is decided, what the store has instead, and how to tune."""
    what = f"nothing is decided for {kernel!r}" if kernel else "nothing is decided yet"
    names = sorted({decision.key.kernel for decision in session.store.decisions()})
    available = f"; the store has {', '.join(names)}" if names and kernel else ""
    return f"{what} in {session.settings.store_name}{available}. Tune a kernel: tunewright tune FILE.py:NAME"


def select_key(session: Session, kernel: str | None, prefix: str) -> Key:
    """Returns the key of a kernel whose digest begins with `prefix`; of several, the one with most trials."""
    stored = list(session.store.keys(kernel))
    keys = [key for key in stored if key.digest.startswith(prefix)]
    if stored and not keys:
        digests = ", ".join(sorted(key.digest[:10] for key in stored)[:8])
        raise NoDecision(f"no key begins with {prefix!r}; keys of {kernel or 'this store'}: {digests}")
    counts = {key: sum(1 for _ in session.store.trials(key)) for key in keys}
    if not any(counts.values()):
        raise NoDecision(describe_absence(kernel, session))
    return max(counts, key=lambda key: (counts[key], key.digest))
