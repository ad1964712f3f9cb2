"""Bench: implementations of operators compared; what became faster or slower since."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.bench import comparing, metrics, page, pictures
from tunewright.bench.bouts import Terms
from tunewright.bench.calls import Call, wanted
from tunewright.bench.driving import Offers, Plan, Progress, chosen, driven, surveyed
from tunewright.bench.live import versus
from tunewright.bench.run import TABLE, Run, load, save, write_csv
from tunewright.bench.seat import Build
from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.errors import NothingWorked
from tunewright.measure.attempt import Limits
from tunewright.report import words

COMPARE, RUN = "compare", "run"


class _Anywhere(click.Group):
    """Runs a bench unless the word `compare` stands among the arguments, wherever it stands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The command first, whatever the order was."""
        name = COMPARE if COMPARE in args else RUN
        rest = list(args)
        if name == COMPARE:
            rest.remove(COMPARE)
        return super().parse_args(ctx, [name, *rest])


def _several(context: click.Context, parameter: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Words given one by one or joined by commas."""
    return tuple(word.strip() for text in typed for word in text.split(",") if word.strip())


_POSITIVE = click.FloatRange(min=0, min_open=True)
_SHARED = (
    click.option("--op", "operators", multiple=True, callback=_several, help="Operators: gemm,reduce; all by default."),
    click.option("--impl", "names", multiple=True, callback=_several, help="Implementations: numpy,c; all by default."),
    click.option("--shapes", multiple=True, help="A suite (gpt2, llama-7b, resnet-50, moe, small), a TOML file, "
                 "or sizes: M=512,K=512,N=512; small by default."),
    click.option("--dtype", "dtypes", multiple=True, callback=_several, help="float32,bf16; else as the shapes say."),
    click.option("--with", "providers", multiple=True, metavar="TARGET", help="What gives more implementations."),
    click.option("--isolate", is_flag=True, help="Each operator x implementation in a process of its own."),
    click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="On how many all run."),
    click.option("--sittings", type=click.IntRange(1), help="How often all is run again, in new processes."),
    click.option("--rounds", type=click.IntRange(1), default=40, show_default=True, help="Of each sitting."),
    click.option("--seconds", type=_POSITIVE, default=10.0, show_default=True, help="For the rounds of a call, about."),
    click.option("--deadline", type=_POSITIVE, default=60.0, show_default=True, help="Seconds for one turn."),
    click.option("--memory", type=click.IntRange(16), default=4096, show_default=True, help="MiB for each."),
    json_option,
)  # fmt: skip


def _shared(function: Any) -> Any:
    """Options of whoever measures."""
    for option in reversed(_SHARED):
        function = option(function)
    return function


def _plan(options: dict[str, Any], sittings: int) -> Plan:
    limits = Limits(run=options["deadline"], memory=options["memory"] << 20)
    terms = Terms(options["rounds"], options["seconds"], options["threads"])
    build = Build(providers=_absolute(options["providers"]))
    return Plan(limits, terms, options["sittings"] or sittings, options["isolate"], build, options.get("budget"))


def _absolute(providers: Sequence[str]) -> tuple[str, ...]:
    """Files by their whole path: a seat may stand elsewhere."""
    parts = [text.rpartition(":") for text in providers]
    return tuple(f"{Path(file).resolve() if file.endswith('.py') else file}:{name}" for file, _, name in parts)


def _calls(options: dict[str, Any], offered: Offers) -> list[Call]:
    """What is to be called, among what a build offers."""
    offers = offered.offers
    named = options["operators"] or tuple(offers)
    if strange := [name for name in named if name not in offers and name != "all"]:
        raise click.UsageError(f"no operator {strange[0]!r}; there are: {', '.join(offers)}")
    sizes = {name: offers[name].sizes for name in (offers if "all" in named else named)}
    return wanted(options["shapes"] or ("small",), sizes, options["dtypes"])


@contextmanager
def _progress() -> Iterator[Progress]:
    """Says what is done on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda said: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where someone looks

    with Console(stderr=True).status("") as status:
        yield lambda said: status.update(output.harmless(said))


@click.group(cls=_Anywhere)
def bench() -> None:
    """Compare implementations of operators."""


@bench.command(RUN)
@click.argument("more", nargs=-1, metavar="[OPERATOR ...]")
@_shared
@click.option("--metrics", "shown", multiple=True, callback=_several, help=f"Of {', '.join(metrics.METRICS)}.")
@click.option("--baseline", help="Whom speed-ups are told against (default: numpy, else the first).")
@click.option("--budget", help="Search the knobs of templates first: 100, 60s.")
@click.option(
    "--save", "folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the run, to compare with."
)
@click.option("--csv", "sheet", type=click.Path(dir_okay=False, path_type=Path), help="Write the cells as CSV.")
@click.option(
    "--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write one page with everything."
)
@click.option(
    "--plot", type=click.Path(file_okay=False, path_type=Path), help="Draw latency, roofline and heat map there."
)
def run(more: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Compare implementations of operators: who is fastest at which call, by how much, and is it right?

    OPERATOR is one more way to say --op. All implementations of a call run in turn, round by round, so that a
    comparison is between neighbours in time; all of that is repeated in several sittings, in new processes. Options may
    come in any order.

    \b
      tunewright bench --op gemm --impl all --shapes llama-7b --dtype bf16 --baseline numpy --isolate --save runs/a
      tunewright bench compare runs/a runs/b
      tunewright bench compare --live old new --op gemm --shapes gpt2

    With --isolate a crash, a hang, a leak or a lack of memory costs one cell, which says so.
    """
    if strange := [name for name in options["shown"] if name not in metrics.METRICS]:
        raise click.UsageError(f"no metric {strange[0]!r}; there are: {', '.join(metrics.METRICS)}")
    options["operators"] += more
    if options["plot"]:
        pictures.require()
    plan = _plan(options, sittings=3)
    offered = surveyed(plan.build, plan.limits)
    with _progress() as say:
        found = driven(plan, offered, _calls(options, offered), options["names"] or ("all",), say)
    baseline = options["baseline"] or _first(found)
    _kept(found, baseline, options)
    if as_json:
        output.as_json({"cells": metrics.flat(found, baseline), "baseline": baseline, **_about(found)})
    else:
        _shown(found, baseline, options["shown"] or metrics.DEFAULT)
        for name in ("folder", "sheet", "page_at", "plot"):
            if options[name]:
                output.say(f"written: {options[name]}")
    if not any(cell.samples for _, cell in found.cells()):
        raise NothingWorked("no cell could be measured; the table says why")


def _first(found: Run) -> str:
    names = list(dict.fromkeys(cell.implementation for _, cell in found.cells()))
    return "numpy" if "numpy" in names else names[0]


def _kept(found: Run, baseline: str, options: dict[str, Any]) -> None:
    """Whatever was asked to be written."""
    if options["folder"]:
        save(found, options["folder"])
    for path in filter(None, (options["sheet"], options["folder"] and options["folder"] / TABLE)):
        with path.open("w", newline="") as file:
            write_csv(file, metrics.flat(found, baseline))
    if options["page_at"]:
        options["page_at"].write_text(page.page(found, baseline))
    if options["plot"]:
        pictures.draw(found, baseline, options["plot"])


def _about(found: Run) -> dict[str, Any]:
    return {
        "machine": found.machine,
        "threads": found.threads,
        "isolated": found.isolated,
        "roof": msgspec.structs.asdict(found.roof),
        "complaints": list(found.complaints),
        "toolchain": found.toolchain,
    }


def _shown(found: Run, baseline: str, shown: tuple[str, ...]) -> None:
    rows = metrics.rows(found, shown, baseline)
    fine = not any(row[-1] for row in rows)
    heads = ["operator", "call", "implementation", *shown, "mishap"]
    output.table(heads[:-1] if fine else heads, (row[:-1] if fine else row for row in rows))
    output.say()
    output.say(f"{found.machine} · {words.counted(found.threads, 'thread')} · {page.roof(found)}")
    for complaint in found.complaints:
        output.say(f"- {complaint}", "yellow")


@bench.command(COMPARE)
@click.argument("before")
@click.argument("after")
@click.option("--live", is_flag=True, help="BEFORE and AFTER are builds, raced here and now.")
@click.option("--margin", type=click.FloatRange(0, 1), default=comparing.MARGIN, show_default=True,
              help="A change too small to be told, as a share.")  # fmt: skip
@_shared
def compare(before: str, after: str, live: bool, margin: float, as_json: bool, **options: Any) -> None:
    """Say what became faster or slower beyond the noise, and by how much.

    BEFORE and AFTER are runs that --save kept. Two sessions of one machine differ: each cell is compared by its time
    over that of an anchor, work that never changes, in the same rounds.

    With --live they are builds: checkouts, environments, or interpreters. Both are raced in turn in one session; this
    finds smaller changes. The chance of any false alarm in a comparison is at most 5 %.

    Exit status: 0 nothing is slower, 1 something is slower or broken, 2 wrong use.
    """
    found = (
        _live(before, after, margin, options) if live else comparing.runs(load(Path(before)), load(Path(after)), margin)
    )
    if as_json:
        output.as_json({"regressed": found.regressed, "resolution": found.resolution, "margin": margin,
                        "changes": [msgspec.structs.asdict(one) for one in found.changes],
                        "notes": list(found.notes)})  # fmt: skip
    else:
        for line in comparing.told(found):
            output.say(line)
        for note in found.notes:
            output.say(f"- {note}", "yellow")
    if found.regressed:
        sys.exit(1)


def _live(before: str, after: str, margin: float, options: dict[str, Any]) -> comparing.Comparison:
    plan = _plan(options, sittings=8)
    builds = Build.at(before, plan.build.providers), Build.at(after, plan.build.providers)
    old, new = (surveyed(build, plan.limits) for build in builds)
    calls = [call for call in _calls(options, old) if call.operator in new.offers]
    cells = [(call, name) for call in calls for name in _both(old, new, call, options["names"] or ("all",))]
    if not cells:
        raise click.UsageError("the two builds have no implementation in common at these calls; see --impl and --with")
    with _progress() as say:
        return versus(plan, builds, cells, say, margin)


def _both(old: Offers, new: Offers, call: Call, names: Sequence[str]) -> list[str]:
    """The implementations that both builds have."""
    return [name for name in chosen(old, call, names) if name in chosen(new, call, names)]
