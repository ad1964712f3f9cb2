"""Look: show what is decided, explain why or why not, list trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from tunewright.backends.inductor.names import decision_of, is_told
from tunewright.backends.replay import Recording
from tunewright.cli import knobs, output
from tunewright.cli.targets import callable_at, json_option, session_for, shape_option, sizes_of, store_option
from tunewright.errors import NoDecision
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.model.trial import Failure, Trial
from tunewright.operators.dispatching import Dispatched
from tunewright.report import figures, words
from tunewright.report.importance import Importances
from tunewright.report.progress import verdict
from tunewright.session import Session
from tunewright.sharing.nearby import SAME, Near, nearest
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space


@click.command()
@click.argument("kernel", required=False)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the search: .png, .svg or .html.")
@click.option("--x", help="The knob along the heat map's x axis (default: one that matters).")
@click.option("--y", help="The knob along its y axis.")
@click.option("--key", "prefix", default="", help="Which problem, by the beginning of its digest.")
@store_option
@json_option
def show(kernel: str | None, plot: Path | None, prefix: str, **options: Any) -> None:
    """Show what is decided; with --plot, draw how it was found.

    For all kernels, or for KERNEL. Exit status 1 if nothing is.
    """
    session = session_for(None, {"store": options["store"]})
    if plot is not None:
        key = _one_key(session, kernel, prefix)
        problem_trials = list(session.store.trials(key))
        decided = session.store.get(key)
        figures.draw(plot, key, problem_trials, decided, axes=(options["x"], options["y"]))
        output.say(f"{plot}: {words.counted(len(problem_trials), 'trial')} of {key.kernel} {key.signature}")
        return
    decisions = [d for d in session.store.decisions(kernel) if d.key.digest.startswith(prefix)]
    if options["as_json"]:
        output.as_json(decisions)
        return
    if not decisions:
        raise NoDecision(_nothing(kernel, session))
    heads = ("kernel", "arguments", "device", "config", "time", "vs default", "trials", "when", "key")
    output.table(heads, (_row(decision) for decision in decisions))


def _row(decision: Decision) -> list[str]:
    key, evidence = decision.key, decision.evidence
    sizes = " ".join(f"{n}={s}" for n, s in key.signature.dims.items()) or ", ".join(key.signature.args)
    if evidence is None:
        return [key.kernel, sizes, str(key.device), str(decision.config), "", "", "", "", key.digest[:10]]
    gain = words.ratio(evidence.gain) if evidence.gain else "-"
    trials = f"{evidence.trials}" + ("" if evidence.complete else " (interrupted)")
    time = words.seconds(evidence.seconds)
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


def _nothing(kernel: str | None, session: Session) -> str:
    what = f"nothing is decided for {kernel!r}" if kernel else "nothing is decided yet"
    others = sorted({decision.key.kernel for decision in session.store.decisions()})
    there = f"; the store has {', '.join(others)}" if others and kernel else ""
    return f"{what} in {session.settings.store_name}{there}. Tune a kernel: tunewright tune FILE.py:NAME"


def _one_key(session: Session, kernel: str | None, prefix: str) -> Key:
    """The problem meant: the only one, or the one with most trials."""
    every = list(session.store.keys(kernel))
    keys = [key for key in every if key.digest.startswith(prefix)]
    if every and not keys:
        known = ", ".join(sorted(key.digest[:10] for key in every)[:8])
        raise NoDecision(f"no key begins with {prefix!r}; keys of {kernel or 'this store'}: {known}")
    counted = [(sum(1 for _ in session.store.trials(key)), key) for key in keys]
    if not any(count for count, _ in counted):
        raise NoDecision(_nothing(kernel, session))
    return max(counted, key=lambda pair: (pair[0], pair[1].digest))[1]


@click.command()
@click.argument("target", required=False)
@click.option("--kernel", "generated", help="A generated kernel's name, as code, profiles and reports show it.")
@click.option("--knobs", "by_knob", is_flag=True, help="Also say which knobs mattered in what was tried.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it knob by knob: .png, .svg, .html."
)
@shape_option
@store_option
@json_option
def explain(target: str | None, shapes: tuple[str, ...], store: str | None, as_json: bool, **options: Any) -> None:
    """Say why the kernel TARGET (FILE.py:NAME) gets its config.

    Evidence, ties and conditions of the decision; where there is none, which fields of which stored keys differ.
    With --kernel instead, say which decision a kernel comes from that torch.compile wrote.
    """
    if (generated := options.pop("generated")) is not None:
        _traced(generated, session_for(None, {"store": store}), as_json=as_json)
        return
    if target is None:
        raise click.UsageError("name a kernel: FILE.py:NAME, or --kernel with the name of a generated one")
    answers = _answers(target, shapes, store, options | {"as_json": as_json})
    if as_json:
        output.as_json(answers[0] if len(answers) == 1 else answers)


def _answers(
    target: str, shapes: tuple[str, ...], store: str | None, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What there is to say of a kernel at each shape; said aloud too, where people read it."""
    kernel, as_json = callable_at(target), options["as_json"]
    session = session_for(kernel, {"store": store})
    answers: list[dict[str, Any]] = []
    wanted = list(sizes_of(kernel, shapes))
    if options["plot"]:
        knobs.for_one(len(wanted))
    for sizes in wanted:
        args = kernel.example(sizes)
        problem = kernel.problem(args)
        decision = session.look_up(problem, like=True)
        near = [] if decision and decision.tier in SAME else nearest(session.store, problem.exact or problem.key)
        answers.append(
            {
                "key": output.plain(problem.key),
                "digest": problem.key.digest,
                "tier": decision.tier if decision else Tier.DEFAULT,
                "decision": output.plain(decision) if decision else None,
                "nearest": [{"digest": d.key.digest, "differences": fields} for d, fields in near],
            }
        )
        if not as_json:
            sizes_said = ",".join(f"{name}={size}" for name, size in sizes.items())
            remedy = f"tunewright tune {target}" + (f" --shape {sizes_said}" if sizes_said else "")
            _explained(problem, decision, near, remedy)
        if isinstance(kernel, Dispatched):
            answers[-1]["implementations"] = _entrants(kernel, args, aloud=not as_json)
        tried = list(session.store.trials(problem.key)) if options["by_knob"] or options["plot"] else []
        if options["by_knob"]:
            found = Importances.of(tried)
            answers[-1]["knobs"] = knobs.as_plain(found)
            if not as_json:
                knobs.tell(found)
        if options["plot"]:
            knobs.draw(options["plot"], problem.key, tried, decision)
            if not as_json:
                output.say(f"{options['plot']}: {words.counted(len(tried), 'trial')}, knob by knob")
    return answers


def _traced(generated: str, session: Session, *, as_json: bool) -> None:
    """The decision that a generated kernel comes from."""
    if is_told(generated):
        raise NoDecision(f"{generated} is as an override says, which the program gave: look for `overrides=` there")
    if not (digest := decision_of(generated)):
        raise NoDecision(f"{generated} names no decision: only kernels do that tunewright.torch had compiled")
    found = [one for one in session.store.decisions() if one.key.digest.startswith(digest)]
    if not found:
        where = session.settings.store_name
        raise NoDecision(f"no key in {where} begins with {digest}; it was decided elsewhere: give --store")
    if as_json:
        output.as_json({"kernel": generated, "digest": found[0].key.digest, "decision": output.plain(found[0])})
        return
    key = found[0].key
    output.say(f"{key.kernel}  {key.signature} · {key.device}", "bold")
    output.say("  " + ", ".join(f"{name} {value}" for name, value in key.mode.items() if value))
    _evidence(key, found[0])


def _explained(problem: Problem, decision: Decision | None, near: Near, remedy: str) -> None:
    key = problem.key
    output.say(f"{key.kernel}  {key.signature} · {key.device}", "bold")
    output.say("  " + ", ".join(f"{name} {value}" for name, value in key.mode.items()))
    if decision is not None:
        _evidence(key, decision, problem.exact)
        if decision.tier in SAME:
            return
        output.say("that is what frozen mode serves; nothing is decided for this key itself")
    else:
        output.say(f"default: {problem.default} (nothing is decided for this key)")
    for stored, fields in near:
        output.say(f"nearest stored key {stored.key.digest[:10]} differs in {words.counted(len(fields), 'field')}:")
        for name, (mine, theirs) in fields.items():
            output.say(f"  {name}: {mine} here, {theirs} stored")
    if not near:
        output.say("no other key of this kernel is stored")
    output.say(f"tune it with: {remedy}")


def _entrants(kernel: Dispatched, args: list[Any], *, aloud: bool) -> dict[str, str]:
    """An operator's implementations, and why some are not raced."""
    found = kernel.considered(*args[:-1])
    for name, why in found.items() if aloud else ():
        output.say(f"  {name}: {why or 'takes part'}")
    return found


def _evidence(key: Key, decision: Decision, exact: Key | None = None) -> None:
    """Why this config: how it was found, what tied with it, under which conditions."""
    output.say(f"{decision.tier}: {verdict(decision)}")
    if decision.tier is Tier.BUCKET and exact is not None:
        output.say(f"  {exact.signature} is served by its bucket")
    if (evidence := decision.evidence) is None:
        return
    output.say(
        f"found by {evidence.strategy} (seed {evidence.seed}) in {words.counted(evidence.trials, 'trial')}, "
        f"{evidence.failures} failed; {evidence.clock} clock, {key.mode.get('regime', 'hot')}; "
        f"{evidence.when}; tunewright {evidence.versions.get('tunewright', '?')}"
    )
    if evidence.remains is not None:
        output.say(f"its model expects that the best config there is is {evidence.remains:.1%} faster")
    for tie in evidence.ties:
        bits = "same" if tie.fingerprint == evidence.fingerprint else "other"
        output.say(f"  within noise: {tie.config}  {words.seconds(tie.seconds)}, {bits} results bit for bit")
    for complaint in evidence.conditions.complaints() if evidence.conditions else ():
        output.say(f"  while the finalists raced, {complaint}")


@click.command()
@click.argument("kernel", required=False)
@click.option("--failed", is_flag=True, help="Only those that failed, with the reason.")
@click.option(
    "--best", type=click.IntRange(min=0), default=20, show_default=True, help="How many to list, fastest first; 0: all."
)
@click.option("--key", "prefix", default="", help="Which problem, by the beginning of its digest.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Record them as NAME.parquet, to replay.")
@store_option
@json_option
def trials(kernel: str | None, failed: bool, best: int, **options: Any) -> None:
    """List what was tried for KERNEL: times, or why it failed.

    Of several problems, the one with most trials, unless --key names another.
    """
    session = session_for(None, {"store": options["store"]})
    key = _one_key(session, kernel, options["prefix"])
    found = list(session.store.trials(key))
    if options["save"]:
        Recording.of(key, _space_of(found), found).write(options["save"])
        output.say(f"{options['save']}: {words.counted(len(found), 'trial')} of {key.kernel}")
        return
    chosen = [trial for trial in found if isinstance(trial.outcome, Failure) is failed or not failed]
    chosen.sort(key=lambda trial: trial.seconds)
    more = max(0, len(chosen) - best) if best else 0
    chosen = chosen[: best or None]
    if options["as_json"]:
        output.as_json({"digest": key.digest, "trials": chosen})
        return
    output.say(f"{key.kernel}  {key.signature} · {words.counted(len(found), 'trial')}", "bold")
    output.table(("config", "outcome", "build", "run"), (_trial_row(trial) for trial in chosen))
    if more:
        output.say(f"and {more} more; --best 0 lists all")


def _trial_row(trial: Trial) -> list[str]:
    if isinstance(trial.outcome, Failure):
        said = f"{trial.outcome.kind} at {trial.outcome.stage}: {trial.outcome.reason}"
    else:
        said = words.seconds(trial.seconds)
    return [str(trial.config), said, words.seconds(trial.build_seconds), words.seconds(trial.run_seconds)]


def _space_of(trials: Iterable[Trial]) -> Space:
    """A space that spans what was tried."""
    values: dict[str, dict[Any, None]] = {}
    for trial in trials:
        for name, value in trial.config.items():
            values.setdefault(name, {})[value] = None
    return Space(*(Knob(name, sorted(seen, key=lambda v: (str(type(v)), v))) for name, seen in values.items()))
