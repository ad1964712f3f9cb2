"""Tune: search for the best config, live."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.targets import json_option, kernel_at, session_for, shape_option, sizes_of, store_option
from tunewright.engine.budget import Budget
from tunewright.errors import NoDecision, StoreError
from tunewright.fronts.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.event import Decided, Event
from tunewright.model.key import Key
from tunewright.report.progress import Progress, verdict
from tunewright.session import Session, open_store


@click.command()
@click.argument("target")
@shape_option
@click.option("--budget", help="What a search may cost: 200 (trials), 60s, 5m, 1h, or both: 200,5m.")
@click.option("--strategy", help="How to search: portfolio, random, exhaustive, ... or a plugin.")
@click.option("--seed", type=int, help="The same seed proposes the same configs.")
@click.option("--seeds", type=click.Path(exists=True, dir_okay=False), help="A JSON list of configs to try first.")
@click.option("--workers", type=int, help="Processes that build and try configs; one at a time is timed.")
@click.option("--program", help="The command the kernel is for: a winner that makes it slower is refused.")
@click.option("--pool", help="Where attempts run: process (isolated) or serial (in this process).")
@click.option("--more", is_flag=True, help="Search on, although there is a decision.")
@click.option("--fresh", is_flag=True, help="Start over: repeat what earlier runs tried.")
@store_option
@json_option
def tune(target: str, shapes: tuple[str, ...], budget: str | None, **options: Any) -> None:
    """Find the best config of the kernel TARGET (FILE.py:NAME) and remember it.

    Trials of an earlier, interrupted run are not repeated. Ctrl-C keeps what was found.
    """
    fresh, more, as_json = (options.pop(name) for name in ("fresh", "more", "as_json"))
    kernel = kernel_at(target)
    said = {name: value for name in ("program", "seeds") if (value := options.pop(name))}
    kernel.declared = msgspec.structs.replace(kernel.declared, **said)
    # A store object that a kernel brings may be anywhere, also in memory on purpose; one that is named must hold.
    named = kernel.declared.session is None or options["store"] is not None
    session = session_for(kernel, options, (Progress(speak=not as_json),))
    spend = Budget.parse(budget) if budget else kernel.budget()
    answers: list[Any] = []
    asked: list[Problem] = []
    noisy: set[Key] = set()

    def note(event: Event) -> None:
        if isinstance(event, Decided) and not event.kept:
            noisy.add(event.decision.key)

    session.listeners.append(note)
    for sizes in sizes_of(kernel, shapes):
        args = kernel.example(sizes)
        stored = None if fresh or more else session.look_up(kernel.problem(args))
        if stored is not None and (stored.evidence is None or stored.evidence.complete):
            answers.append(_told(session, stored, as_json, known=True))
            continue
        limit = Budget(spend.trials, spend.seconds) if spend else session.budget()
        if more and limit.trials is not None:  # as many again
            limit.trials += len({trial.config for trial in session.store.trials(kernel.problem(args).key)})
        answers.append(_told(session, _searched(kernel, args, limit, fresh), as_json, known=False))
        asked.append(kernel.problem(args))
    if as_json:
        output.as_json(answers[0] if len(answers) == 1 else answers)
    for problem in asked if named else ():
        _require_kept(session, problem, noisy)


def _require_kept(session: Session, problem: Problem, noisy: set[Key]) -> None:
    """A decision that only this process knows is not remembered, and must not look as if it were."""
    if problem.key in noisy:
        raise NoDecision(
            f"nothing was kept: this machine tells no {100 * session.settings.resolution:g} % apart now. "
            "`tunewright quiet` says what disturbs it; the trials are kept, so the same command only races again. "
            "Or raise the setting `resolution`."
        )
    if open_store(session.settings.store_location).get(problem.key) is not None:
        return
    raise StoreError(f"the decision was not kept in {session.settings.store_location}; give another --store")


def _searched(kernel: Tuned, args: list[Any], budget: Budget | None, fresh: bool) -> Decision:
    try:
        return kernel.tune(*args, budget=budget, fresh=fresh)
    except KeyboardInterrupt:
        click.echo("interrupted; what was found is kept. Run the same command to go on.", err=True)
        raise


def _told(session: Session, decision: Decision, as_json: bool, *, known: bool) -> Any:
    """One decision, said to people at once, returned for machines."""
    if as_json:
        return {"decision": output.plain(decision), "counts": dict(session.counts), "known": known}
    if known:
        output.say(f"{decision.key.kernel}  {decision.key.signature}")
        output.say(f"already decided  {verdict(decision)}  (--more searches on, --fresh starts over)")
    return None
