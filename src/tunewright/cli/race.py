"""`tunewright race`: commands, Python functions or configs of a kernel, compared in interleaved rounds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.quantities import parse_share
from tunewright.cli.race_candidates import (
    parse_config,
    parse_programs,
    require_working,
    shorten_names,
    use_one_clock,
)
from tunewright.cli.targets import (
    dtype_option,
    json_option,
    load_kernel,
    make_session,
    resolve_sizes,
    shape_option,
    store_option,
    use_dtype,
)
from tunewright.errors import NoDecision
from tunewright.measure import race as racing
from tunewright.measure.clock import Sampler
from tunewright.measure.evaluator import WALL_ROUNDS
from tunewright.measure.race import Race, RaceOptions, Standing, StopRace
from tunewright.pools.command_times import CLOCK_NAMES
from tunewright.report import formatting, race_plot
from tunewright.report.race_plot import has_interval, ranked_order
from tunewright.spaces.config import Config

GATE_SECONDS = 60.0
"""How long a race with a limit may take, if nothing else is said."""

ALL_PROTECTED = 3
"""Up to so many candidates all run long enough to be compared with an interval, however slow they are."""


def _protected(count: int) -> range:
    return range(count if count <= ALL_PROTECTED else 0)


@dataclass(frozen=True)
class _RaceResult:
    """A finished race, with the candidates as they were typed and as they are shown."""

    typed: Sequence[str]
    names: Sequence[str]
    race: Race
    interrupted: bool = False
    heading: str = ""
    configs: Sequence[Config] = ()


@click.command()
@click.argument("candidates", nargs=-1, required=True, metavar="A B [C ...]")
@click.option("--kernel", "target", metavar="TARGET", help="Race configs of this kernel (FILE.py:NAME or module:NAME).")
@shape_option
@dtype_option
@click.option(
    "--margin", default="1%", show_default=True, callback=parse_share, help="A difference too small to matter."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=None,
              show_default=f"{RaceOptions().seconds:g}; with --fail-if-slower {GATE_SECONDS:g}",
              help="How long to race at most.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=RaceOptions().rounds, show_default=True,
              help="How many rounds at most.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed runs them in the same order.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the race: .png, .svg or .html.")
@click.option("--fail-if-slower", "limit", callback=parse_share, metavar="SHARE",
              help="Exit 1 if B is slower than A by this much (3%), 3 if that cannot be told in the time.")  # fmt: skip
@click.option("--baseline", metavar="REVISION",
              help="Race one candidate against itself at this revision, or in this checkout.")  # fmt: skip
@click.option("--cflags", default="-O2", show_default=True, help="Flags for C functions, with one of the former two.")
@store_option
@json_option
def race(candidates: tuple[str, ...], target: str | None, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Race commands, functions or configs: which is fastest, and by how much.

    Each of A, B, ... is a command in quotes ("sort -n data.txt", run without a shell) or a Python function without
    arguments (FILE.py:NAME or module:NAME), or a C function without arguments (FILE.c:NAME). With --kernel, each is a
    config of that kernel: VW=8,MR=4 (other knobs as in the default), default, or decided, which is what the store has.

    All candidates run in every round, in a new order; one that is clearly slower leaves the race. Ctrl-C shows the
    standings so far.

    For CI, --fail-if-slower 3% makes the exit status the verdict on B: 0 not slower by so much, 1 slower beyond doubt
    (by more than half of it), 3 not known within --seconds, 2 wrong use or a candidate that fails. With --baseline main
    name one candidate: what is here is raced against that revision, both on this machine, in turn.
    """
    if options["limit"] is not None or options["baseline"] is not None:
        _race_gate(candidates, target or plot, as_json, options)
        return
    options["seconds"] = options["seconds"] or RaceOptions().seconds
    if len(candidates) < 2:
        raise click.UsageError("a race needs two candidates; to see the noise, race one against itself")
    if plot is not None:
        race_plot.require_drawable(plot)
    terms = RaceOptions(options["margin"], options["rounds"], options["seconds"], options["seed"])
    if target is None and (options["shapes"] or options["store"] or options["dtype"]):
        raise click.UsageError(
            "--shape, --dtype and --store are for configs of a kernel; name it: --kernel FILE.py:NAME"
        )
    try:
        result = _race_configs(candidates, target, terms, options) if target else _race_programs(candidates, terms)
    except KeyboardInterrupt:
        click.echo("interrupted before the first round was over", err=True)
        raise
    if as_json:
        output.print_json(_to_json(result))
    else:
        _print_result(result, terms)
    if plot is not None:
        race_plot.draw(plot, result.race, result.names)
        if not as_json:
            output.echo(f"drawn: {plot}")
    if result.interrupted:
        raise KeyboardInterrupt


def _race_gate(candidates: Sequence[str], unfit: object, as_json: bool, options: dict[str, Any]) -> None:
    """Races two candidates, or two checkouts, for an exit status."""
    from tunewright.cli import race_gate  # noqa: PLC0415 - needs an extension
    from tunewright.gate.verdict import GateOptions  # noqa: PLC0415

    if unfit or options["shapes"] or options["store"] or options["dtype"]:
        raise click.UsageError("--fail-if-slower and --baseline are for commands and functions, and draw no picture")
    limit = options["limit"]
    terms = GateOptions(limit or GateOptions().by, options["seconds"] or GATE_SECONDS, options["seed"])
    outcome = race_gate.race_with_limit(candidates, options["baseline"], terms, options["cflags"], as_json=as_json)
    if limit is not None and (status := race_gate.EXIT_STATUS[outcome]):
        sys.exit(status)


def _race_programs(candidates: Sequence[str], terms: RaceOptions) -> _RaceResult:
    """Races commands and functions in this process; Ctrl-C ends the race with the standings so far."""
    programs, names, samplers = parse_programs(candidates), shorten_names(candidates), []
    terms = msgspec.structs.replace(terms, gross=WALL_ROUNDS, span=terms.seconds / 5)
    interrupted: list[KeyboardInterrupt] = []

    def sample(sampler: Sampler) -> float:
        try:
            return sampler()
        except KeyboardInterrupt as interrupt:
            interrupted.append(interrupt)
            raise StopRace("interrupted") from interrupt

    with _ProgressBar(terms) as bar:
        for name, program in zip(names, programs, strict=True):
            bar.update(f"warm-up run of {name}")
            samplers.append(partial(sample, program.ready()))
        clock = use_one_clock(programs)
        try:
            race = racing.run_race(samplers, terms, protected=_protected(len(samplers)), after=bar.show)
        except StopRace:
            raise interrupted[0] from None
    return _RaceResult(candidates, names, msgspec.structs.replace(race, clock=clock), bool(interrupted))


class _ProgressBar:
    """A progress bar on a terminal, drawn between rounds so that drawing is not timed."""

    def __init__(self, terms: RaceOptions) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where someone races
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._options, self._since, self._drawn = terms, 0.0, 0.0
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

    def __enter__(self) -> _ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, text: str, share: float = 0.0) -> None:
        """Draws the bar with some text beside it."""
        self._progress.update(self._task, completed=share, description=text, refresh=True)

    def show(self, number: int, left: int) -> None:
        """Shows the round, and how many candidates are left."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._drawn > 0.1:
            self._drawn, spent, limit = now, now - self._since, self._options.seconds
            share = min(1.0, max(spent / limit, number / self._options.rounds))
            rest = formatting.clock(max(0.0, limit - spent))
            self.update(f"round {number} · {left} in the race · at most {rest} to go", share)


def _race_configs(candidates: Sequence[str], target: str, terms: RaceOptions, options: dict[str, Any]) -> _RaceResult:
    """Races configs of a kernel in one worker, after each was verified."""
    kernel = load_kernel(target)
    use_dtype(kernel, options["dtype"])
    session = make_session(kernel, {"store": options["store"]})
    sizes, *others = resolve_sizes(kernel, options["shapes"])
    shape = ",".join(f"{name}={size}" for name, size in sizes.items())
    if others:
        raise click.UsageError(f"a race needs one size, and {kernel.name} has {1 + len(others)}; say --shape {shape}")
    args = kernel.example(sizes)
    problem = kernel.problem(args)
    configs = []
    for typed in candidates:
        stored = session.find_decision(problem) if typed == "decided" else None
        if typed == "decided" and stored is None:
            remedy = f"tunewright tune {target}" + (f" --shape {shape}" if shape else "")
            raise NoDecision(f"nothing is decided for {kernel.name} {problem.key.signature}; tune it with: {remedy}")
        configs.append(
            stored.config if stored else problem.default if typed == "default" else parse_config(kernel, typed)
        )
    attempt = kernel.attempt(kernel.cases_like(args))
    with _waiting(f"racing {len(configs)} configs of {kernel.name} in a worker"):
        require_working(dict(zip(configs, candidates, strict=True)), attempt, session)
        terms = msgspec.structs.replace(terms, span=terms.seconds / 5)
        race = attempt.race(configs, terms, list(_protected(len(configs)))) if hasattr(attempt, "race") else None
    if race is None:
        raise click.ClickException("the race did not finish; race fewer configs, or a smaller --shape")
    if race.failures:
        number, failure = next(iter(race.failures.items()))
        raise click.ClickException(f"{candidates[number]} is {failure.kind}: {failure.reason}; race the others")
    labels = [
        f"{typed} ({config})" if "=" not in typed else typed for typed, config in zip(candidates, configs, strict=True)
    ]
    heading = f"{kernel.name}  {problem.key.signature} · {problem.key.device}"
    return _RaceResult(candidates, shorten_names(labels), race, heading=heading, configs=configs)


@contextlib.contextmanager
def _waiting(text: str) -> Iterator[None]:
    """Shows a spinner on a terminal while a race runs in a worker."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only where someone looks

    with Console(stderr=True).status(text):
        yield


def _print_result(result: _RaceResult, terms: RaceOptions) -> None:
    """Prints the standings as a table, then what they mean in a sentence."""
    if result.heading:
        output.echo(result.heading, "bold")
    heads = ("place", "candidate", "time per run", "times the leader's", "rounds")
    output.print_table(heads, (_row(result, place, i) for place, i in enumerate(ranked_order(result.race), start=1)))
    output.echo()
    output.echo(verdict(result.race, result.names), "bold")
    if result.race.clock:
        output.echo(f"by the {CLOCK_NAMES.get(result.race.clock, f'{result.race.clock} clock')}")
    rounds = len(result.race.standings[result.race.leader].samples)
    if result.interrupted:
        output.echo(f"interrupted after {formatting.counted(rounds, 'round')}; these are the standings so far")
    elif not result.race.settled:
        limit, option = (
            (formatting.counted(rounds, "round"), "--rounds")
            if rounds >= terms.rounds
            else (f"{terms.seconds:g} s", "--seconds")
        )
        output.echo(f"the race did not settle within {limit}; give it more {option}", "yellow")


def _row(result: _RaceResult, place: int, number: int) -> list[str]:
    race, standing = result.race, result.race.standings[number]
    shown_place = "1=" if standing.left is None and len(race.ties) > 1 else str(place)
    rounds = str(len(standing.samples)) if standing.left is None else f"left after {standing.left}"
    times = "1x" if number == race.leader else _ratio(standing)
    return [
        shown_place,
        result.names[number],
        formatting.seconds(race_plot.contestant_seconds(race, number)),
        times,
        rounds,
    ]


def _ratio(standing: Standing) -> str:
    """Returns a ratio with its interval, `1.23x (1.20 to 1.26)`, with more digits if the interval is narrow."""
    if not has_interval(standing):
        return f"about {formatting.ratio(standing.ratio)}"
    digits = 3 if standing.high / standing.low < 1.05 else 2
    ratio, low, high = (f"{value:.{digits}f}" for value in (standing.ratio, standing.low, standing.high))
    return f"{ratio}x ({low} to {high})"


def verdict(race: Race, names: Sequence[str]) -> str:
    """Returns what the race showed, in a sentence."""
    leader, *others = ranked_order(race)
    ties = [race.standings[i] for i in race.ties if i != race.leader]
    if not ties:
        ratio, _, interval = _ratio(race.standings[others[0]]).rpartition("x")
        second = names[others[0]] if len(others) == 1 else f"the next, {names[others[0]]}"
        return f"{names[leader]} is {ratio}x as fast as {second}{interval}"
    tied = names[others[0]] if len(ties) == 1 else f"{len(ties)} others"
    if not all(map(has_interval, ties)):
        rounds = formatting.counted(len(race.standings[leader].samples), "round is", "rounds are")
        return f"{names[leader]} leads, but {rounds} too few to tell {tied} from it"
    difference = f"{100 * (max(max(1 / tie.low, tie.high) for tie in ties) - 1):.1f} %"
    if not race.settled:
        return f"{names[leader]} leads, but {tied} cannot be told from it yet: they may differ by {difference}"
    verb = "ties" if len(ties) == 1 else "tie"
    return f"{names[leader]} leads; {tied} {verb} with it: they differ by less than {difference}"


def _to_json(result: _RaceResult) -> dict[str, Any]:
    """Returns the race as JSON, with candidates as they were typed."""
    race, places = result.race, {number: place for place, number in enumerate(ranked_order(result.race), start=1)}
    return {
        "leader": result.typed[race.leader],
        "ties": [result.typed[i] for i in race.ties],
        "settled": race.settled,
        "clock": race.clock,
        "interrupted": result.interrupted,
        "margin": race.margin,
        "contestants": [
            {
                "name": result.typed[i],
                "place": 1 if standing.left is None else places[i],
                "seconds": race_plot.contestant_seconds(race, i),
                "ratio": standing.ratio,
                "low": standing.low if has_interval(standing) else None,
                "high": standing.high if has_interval(standing) else None,
                "left": standing.left,
                "samples": standing.samples,
                **({"config": result.configs[i]} if result.configs else {}),
            }
            for i, standing in enumerate(race.standings)
        ],
    }
