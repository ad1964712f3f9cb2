"""Race: compare commands, Python functions, or configs of a kernel, in interleaved rounds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.contestants import config_of, one_clock, programs, require_working, shortened
from tunewright.cli.targets import json_option, kernel_at, session_for, shape_option, sizes_of, store_option
from tunewright.errors import NoDecision
from tunewright.measure import race as racing
from tunewright.measure.attempt import WALL_ROUNDS
from tunewright.measure.clock import Visit
from tunewright.measure.race import Race, Standing, Stopped, Terms
from tunewright.report import raceplot, words
from tunewright.report.raceplot import bounded, order
from tunewright.spaces.config import Config

FEW = 3
"""Contestants of whom all run long enough to be compared with an interval, however slow."""


def _compared(count: int) -> range:
    return range(count if count <= FEW else 0)


def _share(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """A share of one, typed as 1% or 0.01."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = inf
    if not 0 < share < 1:
        raise click.BadParameter(f"{text!r} is no share between 0 and 1; write it as 1% or 0.01")
    return share


@dataclass(frozen=True)
class _Ran:
    """A race that was run: what was typed, what is shown for it, and what came of it."""

    typed: Sequence[str]
    names: Sequence[str]
    race: Race
    interrupted: bool = False
    heading: str = ""
    configs: Sequence[Config] = ()


@click.command()
@click.argument("contestants", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--kernel", "target", metavar="TARGET", help="Race configs of this kernel (FILE.py:NAME or module:NAME).")
@shape_option
@click.option("--margin", default="1%", show_default=True, callback=_share, help="A difference too small to matter.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=Terms().seconds, show_default=True,
              help="How long to race at most.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=Terms().rounds, show_default=True,
              help="How many rounds at most.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed runs them in the same order.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the race: .png, .svg or .html.")
@store_option
@json_option
def race(contestants: tuple[str, ...], target: str | None, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Find out which of A, B, ... is fastest, and by how much.

    Each is a command in quotes ("sort -n data.txt", run without a shell) or a Python function that needs no arguments
    (FILE.py:NAME or module:NAME). With --kernel, each is a config of that kernel: VW=8,MR=4 (the other knobs as in the
    default), default, or decided, which is what the store says.

    All that are left run in every round, in a new order; whoever is slower beyond doubt leaves. Ctrl-C shows the
    standings so far.
    """
    if len(contestants) < 2:
        raise click.UsageError("a race needs two contestants; to see the noise, race one against itself")
    if plot is not None:
        raceplot.require(plot)
    terms = Terms(options["margin"], options["rounds"], options["seconds"], options["seed"])
    if target is None and (options["shapes"] or options["store"]):
        raise click.UsageError("--shape and --store are for configs; say of which kernel: --kernel FILE.py:NAME")
    try:
        ran = _of_configs(contestants, target, terms, options) if target else _of_programs(contestants, terms)
    except KeyboardInterrupt:
        click.echo("interrupted before there was a round to show", err=True)
        raise
    if as_json:
        output.as_json(_plain(ran))
    else:
        _tell(ran, terms)
    if plot is not None:
        raceplot.draw(plot, ran.race, ran.names)
        if not as_json:
            output.say(f"drawn: {plot}")
    if ran.interrupted:
        raise KeyboardInterrupt


def _of_programs(contestants: Sequence[str], terms: Terms) -> _Ran:
    """Commands and functions, raced here; Ctrl-C ends the race, with what it has shown."""
    parsed, names, visits = programs(contestants), shortened(contestants), []
    terms = msgspec.structs.replace(terms, gross=WALL_ROUNDS, span=terms.seconds / 5)
    interrupted: list[KeyboardInterrupt] = []

    def stopping(visit: Visit) -> float:
        try:
            return visit()
        except KeyboardInterrupt as stop:
            interrupted.append(stop)
            raise Stopped("interrupted") from stop

    with _Bar(terms) as bar:
        for name, program in zip(names, parsed, strict=True):
            bar.say(f"first run of {name}, which does not count")
            visits.append(partial(stopping, program.ready()))
        clock = one_clock(parsed)
        try:
            raced = racing.run(visits, terms, kept=_compared(len(visits)), after=bar.show)
        except Stopped:
            raise interrupted[0] from None
    return _Ran(contestants, names, msgspec.structs.replace(raced, clock=clock), bool(interrupted))


class _Bar:
    """A line on a terminal while a race runs, drawn between rounds: drawing takes time, and that must not count."""

    def __init__(self, terms: Terms) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where someone races
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._terms, self._since, self._drawn = terms, 0.0, 0.0
        self._progress = Progress(
            BarColumn(30),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str, share: float = 0.0) -> None:
        """Draw the bar with some text beside it."""
        self._progress.update(self._task, completed=share, description=text, refresh=True)

    def show(self, number: int, left: int) -> None:
        """Say which round it is, and how many are left in the race."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._drawn > 0.1:
            self._drawn, spent, most = now, now - self._since, self._terms.seconds
            share = min(1.0, max(spent / most, number / self._terms.rounds))
            rest = words.clock(max(0.0, most - spent))
            self.say(f"round {number} · {left} in the race · at most {rest} to go", share)


def _of_configs(contestants: Sequence[str], target: str, terms: Terms, options: dict[str, Any]) -> _Ran:
    """Configs of a kernel, each proven to work, then raced in one worker."""
    kernel = kernel_at(target)
    session = session_for(kernel, {"store": options["store"]})
    sizes, *more = sizes_of(kernel, options["shapes"])
    said = ",".join(f"{name}={size}" for name, size in sizes.items())
    if more:
        raise click.UsageError(f"a race is run at one size, and {kernel.name} has {1 + len(more)}; say --shape {said}")
    args = kernel.example(sizes)
    problem = kernel.problem(args)
    configs = []
    for typed in contestants:
        stored = session.look_up(problem) if typed == "decided" else None
        if typed == "decided" and stored is None:
            remedy = f"tunewright tune {target}" + (f" --shape {said}" if said else "")
            raise NoDecision(f"nothing is decided for {kernel.name} {problem.key.signature}; tune it with: {remedy}")
        configs.append(stored.config if stored else problem.default if typed == "default" else config_of(kernel, typed))
    attempt = kernel.attempt(kernel.cases_like(args))
    with _waiting(f"racing {len(configs)} configs of {kernel.name} in a worker"):
        require_working(dict(zip(configs, contestants, strict=True)), attempt, session)
        terms = msgspec.structs.replace(terms, span=terms.seconds / 5)
        raced = attempt.race(configs, terms, list(_compared(len(configs)))) if hasattr(attempt, "race") else None
    if raced is None:
        raise click.ClickException("the race did not come to its end; race fewer configs, or a smaller --shape")
    spelt = [
        f"{typed} ({config})" if "=" not in typed else typed for typed, config in zip(contestants, configs, strict=True)
    ]
    heading = f"{kernel.name}  {problem.key.signature} · {problem.key.device}"
    return _Ran(contestants, shortened(spelt), raced, heading=heading, configs=configs)


@contextlib.contextmanager
def _waiting(text: str) -> Iterator[None]:
    """A moving sign on a terminal, for a race that is run elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only where someone looks

    with Console(stderr=True).status(text):
        yield


def _tell(ran: _Ran, terms: Terms) -> None:
    """The standings as a table, then what they mean in a sentence."""
    if ran.heading:
        output.say(ran.heading, "bold")
    heads = ("place", "contestant", "time per run", "times the leader's", "rounds")
    output.table(heads, (_row(ran, place, i) for place, i in enumerate(order(ran.race), start=1)))
    output.say()
    output.say(verdict(ran.race, ran.names), "bold")
    if ran.race.clock:
        output.say(f"by the {ran.race.clock} clock")
    rounds = len(ran.race.standings[ran.race.leader].samples)
    if ran.interrupted:
        output.say(f"interrupted after {words.counted(rounds, 'round')}; these are the standings so far")
    elif not ran.race.settled:
        limit, more = (
            (words.counted(rounds, "round"), "--rounds")
            if rounds >= terms.rounds
            else (f"{terms.seconds:g} s", "--seconds")
        )
        output.say(f"the race did not settle within {limit}; give it more {more}", "yellow")


def _row(ran: _Ran, place: int, number: int) -> list[str]:
    race, standing = ran.race, ran.race.standings[number]
    said = "1=" if standing.left is None and len(race.ties) > 1 else str(place)
    rounds = str(len(standing.samples)) if standing.left is None else f"left after {standing.left}"
    times = "1x" if number == race.leader else _times(standing)
    return [said, ran.names[number], words.seconds(raceplot.seconds(race, number)), times, rounds]


def _times(standing: Standing) -> str:
    """A ratio with its interval: `1.23x (1.20 to 1.26)`; with more digits where they mean something."""
    if not bounded(standing):
        return f"about {words.ratio(standing.ratio)}"
    digits = 3 if standing.high / standing.low < 1.05 else 2
    ratio, low, high = (f"{value:.{digits}f}" for value in (standing.ratio, standing.low, standing.high))
    return f"{ratio}x ({low} to {high})"


def verdict(race: Race, names: Sequence[str]) -> str:
    """What the race showed, in a sentence."""
    leader, *others = order(race)
    ties = [race.standings[i] for i in race.ties if i != race.leader]
    if not ties:
        ratio, _, interval = _times(race.standings[others[0]]).rpartition("x")
        whom = names[others[0]] if len(others) == 1 else f"the next, {names[others[0]]}"
        return f"{names[leader]} is {ratio}x as fast as {whom}{interval}"
    one, who = len(ties) == 1, names[others[0]] if len(ties) == 1 else f"{len(ties)} others"
    if not all(map(bounded, ties)):
        rounds = words.counted(len(race.standings[leader].samples), "round is", "rounds are")
        return f"{names[leader]} leads, but {rounds} too few to tell {who} from it"
    apart = f"{100 * (max(max(1 / tie.low, tie.high) for tie in ties) - 1):.1f} %"
    if not race.settled:
        return f"{names[leader]} leads, but {who} cannot be told from it yet: they may differ by {apart}"
    return f"{names[leader]} leads; {who} {'ties' if one else 'tie'} with it: they differ by less than {apart}"


def _plain(ran: _Ran) -> dict[str, Any]:
    """The race for machines, contestants as they were typed."""
    race, places = ran.race, {number: place for place, number in enumerate(order(ran.race), start=1)}
    return {
        "leader": ran.typed[race.leader],
        "ties": [ran.typed[i] for i in race.ties],
        "settled": race.settled,
        "clock": race.clock,
        "interrupted": ran.interrupted,
        "margin": race.margin,
        "contestants": [
            {
                "name": ran.typed[i],
                "place": 1 if standing.left is None else places[i],
                "seconds": raceplot.seconds(race, i),
                "ratio": standing.ratio,
                "low": standing.low if bounded(standing) else None,
                "high": standing.high if bounded(standing) else None,
                "left": standing.left,
                "samples": standing.samples,
                **({"config": ran.configs[i]} if ran.configs else {}),
            }
            for i, standing in enumerate(race.standings)
        ],
    }
