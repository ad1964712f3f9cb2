"""`tunewright tune`: search for the best config of a kernel, with live progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tunewright.cli import misses, output
from tunewright.cli.completion import complete_target
from tunewright.cli.storing import storing_problem, warn_if_unwritable
from tunewright.cli.targets import (
    dtype_option,
    json_option,
    load_tunable,
    make_session,
    resolve_sizes,
    shape_option,
    store_option,
    use_dtype,
)
from tunewright.engine.budget import Budget
from tunewright.errors import TunewrightError
from tunewright.kernel.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.event import DecisionMade, Event
from tunewright.model.key import Key
from tunewright.report.progress import Progress, verdict
from tunewright.session import Session
from tunewright.settings import Mode

if TYPE_CHECKING:
    from tunewright.operators.dispatch import DispatchedOperator


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET", shell_complete=complete_target)
@click.option("--recorded", is_flag=True, help="Tune what mode=record found missing, what cost most time first.")
@shape_option
@click.option("--shapes", "place", metavar="FILE|recorded",
              help="Tune many shapes within one budget: those of a file, or those that mode=record found.")  # fmt: skip
@dtype_option
@click.option("--budget", help="Limit of a search: 200 (trials), 60s, 5m, 1h, or both: 200,5m.")
@click.option("--strategy", help="Search strategy: portfolio, random, exhaustive, ... or a plugin.")
@click.option("--seed", type=int, help="The same seed proposes the same configs.")
@click.option("--seeds", type=click.Path(exists=True, dir_okay=False), help="A JSON list of configs to try first.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes that build and run configs; one at a time is timed."
)
@click.option("--program", help="The command that uses the kernel: a winner that makes it slower is rejected.")
@click.option("--proposer", help="Also ask this for configs: a command, unix:SOCKET, or a recording (FILE.jsonl).")
@click.option("--answer-seconds", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="How long an answer of the proposer may take.")  # fmt: skip
@click.option("--record-proposals", type=click.Path(dir_okay=False, path_type=Path),
              help="Write down what the proposer answers, to be used as a recording.")  # fmt: skip
@click.option("--progress", is_flag=True, help="Print lines of progress to standard error, also with --json.")
@click.option("--pool", help="Where trials run: process (isolated), serial (in this process), ray.")
@click.option("--more", is_flag=True, help="Continue the search although there is a decision.")
@click.option("--fresh", is_flag=True, help="Start over: repeat what earlier runs tried.")
@store_option
@json_option
def tune(targets: tuple[str, ...], shapes: tuple[str, ...], place: str | None, **options: Any) -> None:
    """Find the best config of a kernel and store it.

    TARGET is FILE.py:NAME or module:NAME. Trials of an earlier, interrupted run are not repeated. Ctrl-C keeps what
    was found.

    With --shapes, a model over shape and config decides where the next trial goes, so that the shapes that come most
    get fast configs first; the budget is that of all shapes together.

    With --recorded, each TARGET is a file, a module or a kernel in one. What a store recorded is tuned only if it is
    a kernel of these: the store says what is missing, not what to run.
    """
    if (workers := options.pop("workers")) is not None:
        name, at, kind = (options["pool"] or "process").partition("@")
        options["pool"] = f"{name}:{workers}{at}{kind}"
    dtype = options.pop("dtype")
    if options.pop("recorded"):
        answers = [
            answer
            for kernel, args in misses.recorded_calls(targets, options["store"])
            for answer in tune_calls(kernel, [args], options)
        ]
    elif len(targets) != 1:
        raise click.UsageError("say which kernel: tunewright tune FILE.py:NAME, or tunewright tune --recorded FILE.py")
    else:
        kernel = load_tunable(targets[0])
        use_dtype(kernel, dtype)
        if place is not None:
            from tunewright.cli.tune_shapes import tune_shapes  # noqa: PLC0415 - an extension

            if shapes:
                raise click.UsageError("--shape tunes each shape by itself, --shapes all together; give one of them")

            tune_shapes(kernel, place, options)
            return
        sizes_to_tune = resolve_sizes(kernel, shapes)
        if getattr(kernel.declaration, "invariant", ()):  # they are tuned together
            kernel.declaration = msgspec.structs.replace(kernel.declaration, shapes=sizes_to_tune)
        calls = (kernel.example(sizes) for sizes in sizes_to_tune)
        tune_calls(kernel, calls, options, partial(_show, as_json=options["as_json"]))
        return
    _show(answers, as_json=options["as_json"])


def _show(answers: list[Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(answers[0] if len(answers) == 1 else answers)


def tune_calls(
    kernel: Tuned | DispatchedOperator,
    calls: Iterable[list[Any]],
    typed: Mapping[str, Any],
    show: Callable[[list[Any]], None] = lambda answers: None,
) -> list[Any]:
    """Tunes a kernel for calls that are not decided yet; returns an answer for each call if JSON is asked for.

    They are shown, and then an error is raised if one of them is not stored: a command must not look successful.
    """
    options = {**typed, "mode": Mode.TUNE}
    fresh, more, as_json, budget = (options.pop(name) for name in ("fresh", "more", "as_json", "budget"))
    proposals = [options.pop(name, None) for name in ("proposer", "answer_seconds", "record_proposals")]
    speak = options.pop("progress", False) or not as_json
    overrides = {name: value for name in ("program", "seeds") if (value := options.pop(name, None))}
    kernel.declaration = msgspec.structs.replace(kernel.declaration, **overrides)
    # A kernel may bring a store object, even one in memory; a store that is named must keep the decision.
    is_named = kernel.declaration.session is None or options["store"] is not None
    session = make_session(kernel, options, (Progress(speak=speak),))
    limit = Budget.parse(budget) if budget else kernel.budget()
    answers: list[Any] = []
    tuned: list[tuple[Problem, Any]] = []
    if is_named:
        warn_if_unwritable(session)
    noisy: set[Key] = set()

    def collect_noisy(event: Event) -> None:
        if isinstance(event, DecisionMade) and not event.kept:
            noisy.add(event.decision.key)

    session.listeners.append(collect_noisy)
    with _asking(session, *proposals):
        for args in calls:
            stored = None if fresh or more else session.find_decision(kernel.problem(args))
            if stored is not None and (stored.evidence is None or stored.evidence.complete):
                answers.append(_answer(session, stored, as_json, known=True, budgeted=bool(budget)))
                continue
            own = Budget(limit.trials, limit.seconds) if limit else session.budget()
            if more and own.trials is not None:  # that many again
                own.trials += len({trial.config for trial in session.store.trials(kernel.problem(args).key)})
            problem = kernel.problem(args)
            search = partial(_search, kernel, args, own, fresh)
            decision = search() if fresh or more else session.tune_once(problem, search)
            answers.append(_answer(session, decision, as_json, known=False))
            tuned.append((problem, answers[-1]))
    problems = _mark_unstored(session, tuned if is_named else (), noisy)
    show(answers)
    if problems:
        raise problems[0]
    return answers


def _mark_unstored(session: Session, tuned: Iterable[tuple[Problem, Any]], noisy: set[Key]) -> list[TunewrightError]:
    """Returns why decisions are not stored, and notes it in their answers."""
    problems = []
    for problem, answer in tuned:
        if (found := storing_problem(session, problem, noisy=problem.key in noisy)) is not None:
            problems.append(found)
        if answer is not None:
            answer.update({"stored": found is None} | ({"note": str(found)} if found else {}))
    return problems


@contextlib.contextmanager
def _asking(session: Session, place: str | None, seconds: float | None, record: Path | None) -> Iterator[None]:
    """Lets a proposer, if there is one, take turns with the strategy of a session."""
    if place is None:
        yield
        return
    from tunewright.agents.proposers import ANSWER_SECONDS, open_proposer  # noqa: PLC0415 - an extension
    from tunewright.strategies.external import External  # noqa: PLC0415 - as above

    with open_proposer(place, seconds or ANSWER_SECONDS, record) as proposer:
        session.wrap_strategy = lambda space, strategy: External(space, strategy, proposer)
        yield


def _search(kernel: Tuned | DispatchedOperator, args: list[Any], budget: Budget | None, fresh: bool) -> Decision:
    try:
        return kernel.tune(*args, budget=budget, fresh=fresh)
    except KeyboardInterrupt:
        click.echo("interrupted; what was found is kept. Run the same command to continue.", err=True)
        raise


def _answer(session: Session, decision: Decision, as_json: bool, *, known: bool, budgeted: bool = False) -> Any:
    """Prints a decision that was known before; returns one as JSON if that is asked for."""
    if as_json:
        return {"decision": output.to_builtins(decision), "counts": dict(session.counts), "known": known}
    if known:
        output.echo(f"{decision.key.kernel}  {decision.key.signature}")
        output.echo(f"already decided  {verdict(decision)}  (--more continues the search, --fresh starts over)")
        if budgeted:
            output.echo("the budget was not used; add --more to spend it on this kernel")
    return None
