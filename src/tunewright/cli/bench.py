"""`tunewright bench`: implementations of operators, saved runs and builds compared."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.bench import compare as comparing
from tunewright.bench import metrics, page, plots
from tunewright.bench.ab import compare_builds
from tunewright.bench.calls import OperatorCall, select_calls
from tunewright.bench.results import TABLE, BenchRun, load_run, save_run, write_csv
from tunewright.bench.rounds import RoundOptions
from tunewright.bench.runner import (
    AvailableOperators,
    BenchPlan,
    ProgressCallback,
    list_operators,
    run_benchmark,
    select_implementations,
)
from tunewright.bench.worker import Build
from tunewright.cli import output
from tunewright.cli.bench_record import record
from tunewright.cli.commands import REMOVED_IN
from tunewright.cli.completion import complete_target
from tunewright.cli.targets import json_option
from tunewright.errors import NothingWorked
from tunewright.measure.evaluator import Limits
from tunewright.report import formatting

COMPARE, RUN = "compare", "run"


class _DefaultToRun(click.Group):
    """Runs `bench run` unless another command is named; `compare` may stand anywhere among the arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the command first."""
        if (args and args[0] in (*self.commands, *ctx.help_option_names)) or (not args and ctx.resilient_parsing):
            return super().parse_args(ctx, args)
        name = COMPARE if COMPARE in args else RUN
        rest = list(args)
        if name == COMPARE:
            rest.remove(COMPARE)
        return super().parse_args(ctx, [name, *rest])


def _split_commas(context: click.Context, parameter: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Returns words that were given one by one or joined by commas."""
    return tuple(word.strip() for text in typed for word in text.split(",") if word.strip())


def _warn_renamed(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    """Names the new spelling of `--sittings`."""
    if value is not None:
        click.echo(f"--sittings is deprecated and will be removed in {REMOVED_IN}; use --repeats", err=True)
    return value


_POSITIVE = click.FloatRange(min=0, min_open=True)
_SHARED = (
    click.option("--op", "operators", multiple=True, callback=_split_commas,
                 help="Operators: gemm,reduce (default: all)."),
    click.option("--impl", "names", multiple=True, callback=_split_commas,
                 help="Implementations: numpy,c (default: all)."),
    click.option("--shapes", multiple=True, help="A suite (gpt2, llama-7b, resnet-50, moe, small), a TOML file, "
                 "or sizes: M=512,K=512,N=512; small by default."),
    click.option("--dtype", "dtypes", multiple=True, callback=_split_commas,
                 help="float32,bf16 (default: of the shapes)."),
    click.option("--with", "providers", multiple=True, metavar="TARGET", shell_complete=complete_target,
                 help="A function that returns more implementations."),
    click.option("--isolate", is_flag=True, help="Run each operator x implementation in a process of its own."),
    click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of each."),
    click.option("--repeats", type=click.IntRange(1), help="How often everything is repeated, in new processes."),
    click.option("--sittings", type=click.IntRange(1), hidden=True, callback=_warn_renamed,
                 help="Former name of --repeats."),
    click.option("--rounds", type=click.IntRange(1), default=40, show_default=True, help="Rounds of each repeat."),
    click.option("--seconds", type=_POSITIVE, default=10.0, show_default=True, help="About how long a call is timed."),
    click.option("--deadline", type=_POSITIVE, default=60.0, show_default=True, help="Seconds for one turn."),
    click.option("--memory", type=click.IntRange(16), default=4096, show_default=True, help="MiB for each."),
    json_option,
)  # fmt: skip


def _shared(function: Any) -> Any:
    """Adds the options of the commands that measure."""
    for option in reversed(_SHARED):
        function = option(function)
    return function


def _plan(options: dict[str, Any], repeats: int) -> BenchPlan:
    limits = Limits(run=options["deadline"], memory=options["memory"] << 20)
    rounds = RoundOptions(options["rounds"], options["seconds"], options["threads"])
    build = Build(providers=_absolute(options["providers"]))
    repeats = options["repeats"] or options["sittings"] or repeats
    return BenchPlan(limits, rounds, repeats, options["isolate"], build, options.get("budget"))


def _absolute(providers: Sequence[str]) -> tuple[str, ...]:
    """Returns targets with absolute paths: a worker may run in another folder."""
    parts = [text.rpartition(":") for text in providers]
    return tuple(f"{Path(file).resolve() if file.endswith('.py') else file}:{name}" for file, _, name in parts)


def _select_calls(options: dict[str, Any], available: AvailableOperators) -> list[OperatorCall]:
    """Returns the calls to time, among the operators that a build has."""
    operators = available.operators
    named = options["operators"] or tuple(operators)
    if unknown := [name for name in named if name not in operators and name != "all"]:
        raise click.UsageError(f"no operator {unknown[0]!r}; there are: {', '.join(operators)}")
    sizes = {name: operators[name].sizes for name in (operators if "all" in named else named)}
    return select_calls(options["shapes"] or ("small",), sizes, options["dtypes"])


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Yields a callback that shows a status line on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where someone looks

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(output.escape_control(message))


@click.group(cls=_DefaultToRun)
def bench() -> None:
    """Compare implementations of operators, runs and builds.

    `tunewright bench OPERATOR OPTIONS` is short for `tunewright bench run OPERATOR OPTIONS`.
    """


bench.add_command(record)


@bench.command(RUN)
@click.argument("more", nargs=-1, metavar="[OPERATOR ...]")
@_shared
@click.option("--metrics", "columns", multiple=True, callback=_split_commas, help=f"Of {', '.join(metrics.METRICS)}.")
@click.option("--baseline", help="The implementation that speed-ups are relative to (default: numpy, else the first).")
@click.option("--budget", help="Search the knobs of templates first: 100, 60s.")
@click.option(
    "--save", "folder", type=click.Path(file_okay=False, path_type=Path), help="Save the run, for `bench compare`."
)
@click.option("--csv", "sheet", type=click.Path(dir_okay=False, path_type=Path), help="Write the cells as CSV.")
@click.option(
    "--html", "page_at", type=click.Path(dir_okay=False, path_type=Path), help="Write one page with everything."
)
@click.option(
    "--plot", type=click.Path(file_okay=False, path_type=Path), help="Draw latency, roofline and heat map there."
)
def run(more: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Compare implementations of operators: speed, with intervals, and accuracy.

    OPERATOR is another way to write --op. All implementations of a call run in turn, round by round, so that what is
    compared ran at nearly the same time; everything is repeated several times, in new processes. Options may come in
    any order.

    \b
      tunewright bench --op gemm --impl all --shapes llama-7b --dtype bf16 --baseline numpy --isolate --save runs/a
      tunewright bench compare runs/a runs/b
      tunewright bench compare --live old new --op gemm --shapes gpt2

    With --isolate, a crash, a hang, a leak or a lack of memory costs one cell, which says so.
    """
    if unknown := [name for name in options["columns"] if name not in metrics.METRICS]:
        raise click.UsageError(f"no metric {unknown[0]!r}; there are: {', '.join(metrics.METRICS)}")
    options["operators"] += more
    if options["plot"]:
        plots.require()
    plan = _plan(options, repeats=3)
    available = list_operators(plan.build, plan.limits)
    with _progress() as notify:
        calls = _select_calls(options, available)
        result = run_benchmark(plan, available, calls, options["names"] or ("all",), notify)
    baseline = options["baseline"] or _default_baseline(result)
    _write_files(result, baseline, options)
    if as_json:
        output.print_json({"cells": metrics.flat_rows(result, baseline), "baseline": baseline, **_conditions(result)})
    else:
        _print_run(result, baseline, options["columns"] or metrics.DEFAULT_METRICS)
        for name in ("folder", "sheet", "page_at", "plot"):
            if options[name]:
                output.echo(f"written: {options[name]}")
    if not any(cell.samples for _, cell in result.cells()):
        raise NothingWorked("no cell could be measured; the table says why")


def _default_baseline(result: BenchRun) -> str:
    names = list(dict.fromkeys(cell.implementation for _, cell in result.cells()))
    return "numpy" if "numpy" in names else names[0]


def _write_files(result: BenchRun, baseline: str, options: dict[str, Any]) -> None:
    """Writes the files that were asked for."""
    if options["folder"]:
        save_run(result, options["folder"])
    for path in filter(None, (options["sheet"], options["folder"] and options["folder"] / TABLE)):
        with path.open("w", newline="") as file:
            write_csv(file, metrics.flat_rows(result, baseline))
    if options["page_at"]:
        options["page_at"].write_text(page.render_page(result, baseline))
    if options["plot"]:
        plots.save_plots(result, baseline, options["plot"])


def _conditions(result: BenchRun) -> dict[str, Any]:
    return {
        "machine": result.machine,
        "threads": result.threads,
        "isolated": result.isolated,
        "roof": msgspec.structs.asdict(result.roof),
        "complaints": list(result.complaints),
        "toolchain": result.toolchain,
    }


def _print_run(result: BenchRun, baseline: str, columns: tuple[str, ...]) -> None:
    rows = metrics.metric_rows(result, columns, baseline)
    has_failures = any(row[-1] for row in rows)
    heads = ["operator", "call", "implementation", *columns, "failure"]
    width = len(heads) if has_failures else len(heads) - 1
    output.print_table(heads[:width], (row[:width] for row in rows))
    output.echo()
    output.echo(f"{result.machine} · {formatting.counted(result.threads, 'thread')} · {page.describe_roofline(result)}")
    for complaint in result.complaints:
        output.echo(f"- {complaint}", "yellow")


@bench.command(COMPARE)
@click.argument("before")
@click.argument("after")
@click.option("--live", is_flag=True, help="BEFORE and AFTER are builds, raced here and now.")
@click.option("--margin", type=click.FloatRange(0, 1), default=comparing.MARGIN, show_default=True,
              help="A change too small to report, as a fraction.")  # fmt: skip
@_shared
def compare(before: str, after: str, live: bool, margin: float, as_json: bool, **options: Any) -> None:
    """List what became faster or slower beyond the noise, and by how much.

    BEFORE and AFTER are runs that --save wrote. Since a machine's speed varies from run to run, each cell is compared
    by its time relative to reference work in the same rounds.

    With --live they are builds: checkouts, environments, or interpreters. Both are raced in turn in one session, which
    finds smaller changes. The chance of any false alarm in a comparison is at most 5 %.

    Exit status: 0 nothing is slower, 1 something is slower or broken, 2 wrong use.
    """
    if live:
        comparison = _compare_builds(before, after, margin, options)
    else:
        comparison = comparing.compare_runs(load_run(Path(before)), load_run(Path(after)), margin)
    if as_json:
        output.print_json(
            {
                "regressed": comparison.regressed,
                "resolution": comparison.resolution,
                "margin": margin,
                "changes": [msgspec.structs.asdict(change) for change in comparison.changes],
                "notes": list(comparison.notes),
            }
        )
    else:
        for line in comparing.describe_changes(comparison):
            output.echo(line)
        for note in comparison.notes:
            output.echo(f"- {note}", "yellow")
    if comparison.regressed:
        sys.exit(1)


def _compare_builds(before: str, after: str, margin: float, options: dict[str, Any]) -> comparing.RunComparison:
    plan = _plan(options, repeats=8)
    builds = Build.from_path(before, plan.build.providers), Build.from_path(after, plan.build.providers)
    old, new = (list_operators(build, plan.limits) for build in builds)
    calls = [call for call in _select_calls(options, old) if call.operator in new.operators]
    cells = [
        (call, name) for call in calls for name in _common_implementations(old, new, call, options["names"] or ("all",))
    ]
    if not cells:
        raise click.UsageError("the two builds have no implementation in common at these calls; see --impl and --with")
    with _progress() as notify:
        return compare_builds(plan, builds, cells, notify, margin)


def _common_implementations(
    old: AvailableOperators, new: AvailableOperators, call: OperatorCall, names: Sequence[str]
) -> list[str]:
    """Returns the implementations that both builds have."""
    available = select_implementations(new, call, names)
    return [name for name in select_implementations(old, call, names) if name in available]
