"""Tune: search for the best config, live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import click
import msgspec

from tunewright.cli import output, recorded
from tunewright.cli.targets import callable_at, json_option, session_for, shape_option, sizes_of, store_option
from tunewright.engine.budget import Budget
from tunewright.errors import NoDecision, StoreError
from tunewright.fronts.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.event import Decided, Event
from tunewright.model.key import Key
from tunewright.operators.dispatching import Dispatched
from tunewright.report.progress import Progress, verdict
from tunewright.session import Session
from tunewright.settings import Mode


@click.command()
@click.argument("target", required=False)
@click.option("--recorded", is_flag=True, help="What mode=record found missing instead: what cost most time first.")
@shape_option
@click.option("--budget", help="What a search may cost: 200 (trials), 60s, 5m, 1h, or both: 200,5m.")
@click.option("--strategy", help="How to search: portfolio, random, exhaustive, ... or a plugin.")
@click.option("--seed", type=int, help="The same seed proposes the same configs.")
@click.option("--seeds", type=click.Path(exists=True, dir_okay=False), help="A JSON list of configs to try first.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes that build and try configs; one at a time is timed."
)
@click.option("--program", help="The command the kernel is for: a winner that makes it slower is refused.")
@click.option("--pool", help="Where attempts run: process (isolated), serial (in this process), ray.")
@click.option("--more", is_flag=True, help="Search on, although there is a decision.")
@click.option("--fresh", is_flag=True, help="Start over: repeat what earlier runs tried.")
@store_option
@json_option
def tune(target: str | None, shapes: tuple[str, ...], **options: Any) -> None:
    """Find the best config of the kernel TARGET and remember it.

    TARGET is FILE.py:NAME or module:NAME. Trials of an earlier, interrupted run are not repeated. Ctrl-C keeps what
    was found.
    """
    if (workers := options.pop("workers")) is not None:
        name, at, kind = (options["pool"] or "process").partition("@")
        options["pool"] = f"{name}:{workers}{at}{kind}"
    if options.pop("recorded"):
        answers = [
            told for kernel, args in recorded.calls(target, options["store"]) for told in _tune(kernel, [args], options)
        ]
    elif target is None:
        raise click.UsageError("say which kernel: tunewright tune FILE.py:NAME, or tunewright tune --recorded")
    else:
        kernel = callable_at(target)
        answers = _tune(kernel, (kernel.example(sizes) for sizes in sizes_of(kernel, shapes)), options)
    if options["as_json"]:
        output.as_json(answers[0] if len(answers) == 1 else answers)


def _tune(kernel: Tuned | Dispatched, calls: Iterable[list[Any]], given: Mapping[str, Any]) -> list[Any]:
    """Tune a kernel for some calls, each unless it is decided; what to say of each."""
    options = {**given, "mode": Mode.TUNE}
    fresh, more, as_json, budget = (options.pop(name) for name in ("fresh", "more", "as_json", "budget"))
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
    for args in calls:
        stored = None if fresh or more else session.look_up(kernel.problem(args))
        if stored is not None and (stored.evidence is None or stored.evidence.complete):
            answers.append(_told(session, stored, as_json, known=True))
            continue
        limit = Budget(spend.trials, spend.seconds) if spend else session.budget()
        if more and limit.trials is not None:  # as many again
            limit.trials += len({trial.config for trial in session.store.trials(kernel.problem(args).key)})
        problem = kernel.problem(args)
        search = partial(_searched, kernel, args, limit, fresh)
        decision = search() if fresh or more else session.led(problem, search)
        answers.append(_told(session, decision, as_json, known=False))
        asked.append(problem)
    for problem in asked if named else ():
        _require_kept(session, problem, noisy)
    return answers


def _require_kept(session: Session, problem: Problem, noisy: set[Key]) -> None:
    """A decision that only this process knows is not remembered, and must not look as if it were."""
    if problem.key in noisy:
        raise NoDecision(
            f"nothing was kept: this machine tells no {100 * session.settings.resolution:g} % apart now. "
            "`tunewright quiet` says what disturbs it; the trials are kept, so the same command only races again. "
            "Or raise the setting `resolution`."
        )
    if Session(session.settings).store.get(problem.key) is not None:
        return
    raise StoreError(f"the decision was not kept in {session.settings.store_name}; give another --store")


def _searched(kernel: Tuned | Dispatched, args: list[Any], budget: Budget | None, fresh: bool) -> Decision:
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
