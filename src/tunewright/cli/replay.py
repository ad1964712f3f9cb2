"""`tunewright replay`: search strategies compared on recorded spaces, without a device."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.lazy_group import CommandEntry, LazyGroup
from tunewright.cli.targets import json_option
from tunewright.replay.ledger import TraceLog
from tunewright.replay.registry import ReplayedStrategy
from tunewright.replay.runs import ReplayOptions, Trace, make_jobs
from tunewright.replay.scores import (
    TraceScore,
    checkpoints,
    group_scores,
    regret_by_evaluations,
    regret_by_seconds,
    summarize,
)
from tunewright.replay.tables import TableSource, list_journals, list_recordings
from tunewright.replay.workers import collect_traces
from tunewright.report import formatting, regret
from tunewright.report.regret import RegretCurve, RegretPlot
from tunewright.settings import Settings

Summaries = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _Comparison:
    """Traces, scores and curves of each strategy."""

    traces: Mapping[str, Sequence[Trace]]
    scores: Mapping[str, Sequence[TraceScore]]
    curves: Sequence[RegretCurve]
    cost: bool

    @property
    def tables(self) -> list[str]:
        """The names of the spaces."""
        return sorted({score.table for scores in self.scores.values() for score in scores})

    def overall(self) -> Summaries:
        """Returns the summary of each strategy over all spaces."""
        return {name: summarize(scores) for name, scores in self.scores.items()}

    def by_group(self, attribute: str) -> dict[str, Summaries]:
        """Returns the summary of each strategy for each `kernel` or `table`."""
        groups: dict[str, Summaries] = {}
        for name, scores in self.scores.items():
            for group, own in group_scores(scores, lambda score: str(getattr(score, attribute))).items():
                groups.setdefault(group, {})[name] = summarize(own)
        return groups

    def headline(self) -> str:
        """Returns what was compared, in a line."""
        runs = [len(scores) for scores in self.scores.values()]
        seeds = formatting.counted(runs[0] // len(self.tables), "seed")
        return f"{formatting.counted(len(self.tables), 'space')}, {seeds} each"


IMPORT = CommandEntry(
    "tunewright.cli.replay_import", "import_", "Convert recordings of other tools into ours.", extension="interop"
)


@click.group(cls=LazyGroup, entries={"import": IMPORT}, path=("replay",), invoke_without_command=True)
@click.option("--spaces", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Recordings: a folder of NAME.parquet with NAME.json, or one such file. Repeatable.")  # fmt: skip
@click.option("--store", "location", metavar="LOCATION", help="Also or instead: the trials in this store.")
@click.option("--strategies", metavar="A,B", help="Names of plugins, FILE.py:NAME or module:NAME, separated by commas.")
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, help="Runs of each on each space.")
@click.option("--budget", type=click.IntRange(min=1), default=200, show_default=True, help="Evaluations of a run.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True,
              help="Configs asked for at once, as with so many workers.")  # fmt: skip
@click.option("--cost", is_flag=True, help="Also judge by seconds of compiling and running; the plot's axis then.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: .png, .svg or .html.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Where finished runs are kept (default: replays in the cache).")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default="cores",
              help="Processes; 1: this one.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Repeat what earlier runs have done.")
@click.option("--markdown", is_flag=True, help="Tables in Markdown.")
@json_option
@click.pass_context
def replay(context: click.Context, /, **options: Any) -> None:
    """Compare search strategies on recorded spaces.

    How close each gets to the best config, in how few evaluations.

    r25, r50, ...: the best time over the best so far after so many evaluations, mean over runs (1 is perfect).
    e5, e1: evaluations until within 5 % and 1 % of the best, median (-: not reached); s5, s1: seconds until then.

    Finished runs are kept: after Ctrl-C the same command continues.
    """
    if context.invoked_subcommand is not None:
        return
    if options["plot"] is not None:
        regret.require(options["plot"])
    sources = _list_sources(options["spaces"], options["location"])
    strategies = _load_strategies(options["strategies"])
    comparison = _compare(sources, strategies, options)
    if options["as_json"]:
        output.print_json(_to_json(comparison, options))
    else:
        _print_tables(comparison, options)
    if options["plot"] is not None:
        axis = "seconds of compiling and running" if options["cost"] else "evaluations"
        title = f"{_join_names(list(comparison.scores))}: {comparison.headline()}"
        over = formatting.counted(len(comparison.tables), "space")
        regret.draw(options["plot"], RegretPlot(comparison.curves, title, axis, over, options["cost"]))
        click.echo(f"drawn: {options['plot']}", err=True)


def _list_sources(places: Sequence[Path], location: str | None) -> list[TableSource]:
    if not places and location is None:
        raise click.UsageError(
            "say what to search: --spaces DIR (recordings), or --store LOCATION (trials of kernels you tuned; yours "
            f"is {Settings.read().store_name})"
        )
    return [*list_recordings(places), *(list_journals(location) if location is not None else [])]


def _load_strategies(text: str | None) -> list[ReplayedStrategy]:
    """Returns the strategies typed; raises if one cannot be loaded."""
    names = list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if not names:
        from importlib.metadata import entry_points  # noqa: PLC0415 - only for mistakes

        installed = ", ".join(sorted(entry_points(group="tunewright.strategies").names))
        raise click.UsageError(f"say which strategies: --strategies A,B; installed: {installed}; or FILE.py:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")
    strategies = [ReplayedStrategy(name) for name in names]
    for strategy in strategies:
        strategy.load()
    return strategies


def _compare(
    sources: Sequence[TableSource], strategies: Sequence[ReplayedStrategy], options: dict[str, Any]
) -> _Comparison:
    run_options = ReplayOptions(options["budget"], options["batch"])
    jobs = make_jobs(sources, strategies, range(options["seeds"]), run_options)
    with TraceLog(options["out"] or Settings.read().cache_path / "replays") as log, _ProgressBar(len(jobs)) as bar:
        try:
            traces = collect_traces(jobs, log, workers=options["workers"], fresh=options["fresh"], after=bar.show)
        except KeyboardInterrupt:
            bar.stop()
            again = "the same command" + (" without --fresh" if options["fresh"] else "")
            click.echo(f"interrupted; {bar.done} of {len(jobs)} runs are kept in {log.path}. "
                       f"Run {again} to continue.", err=True)  # fmt: skip
            raise
    labels = _shorten_names([strategy.name for strategy in strategies])
    by_label: dict[str, list[Trace]] = {label: [] for label in labels.values()}
    for trace in traces:
        by_label[labels[trace.key.strategy]].append(trace)
    scores = {
        label: [TraceScore.of(trace, checkpoints(run_options.budget)) for trace in own]
        for label, own in by_label.items()
    }
    curves = regret_by_seconds(by_label) if options["cost"] else regret_by_evaluations(by_label)
    return _Comparison(by_label, scores, curves, options["cost"])


def _print_tables(comparison: _Comparison, options: dict[str, Any]) -> None:
    """Prints a table over all spaces, then one for each kernel if there are several."""
    batches = f" in batches of {options['batch']}" if options["batch"] > 1 else ""
    evaluations = f"{formatting.counted(options['budget'], 'evaluation')}{batches}"
    tables = {f"{comparison.headline()}, {evaluations}": comparison.overall()}
    if len(kernels := comparison.by_group("kernel")) > 1:
        tables |= kernels
    for number, (title, summaries) in enumerate(tables.items()):
        heads, body = regret.summary_table(summaries, cost=comparison.cost)
        if options["markdown"]:
            click.echo(("\n" if number else "") + f"**{title}**\n\n" + regret.markdown_table(heads, body))
        else:
            output.echo(("\n" if number else "") + title, "bold")
            output.print_table(heads, body)


def _to_json(comparison: _Comparison, options: dict[str, Any]) -> dict[str, Any]:
    """Returns everything as JSON; null where a bound was not reached."""
    return {
        **{name: options[name] for name in ("seeds", "budget", "batch")},
        "spaces": comparison.tables,
        "strategies": comparison.overall(),
        "by_kernel": comparison.by_group("kernel"),
        "by_space": comparison.by_group("table"),
        "curves": {
            "axis": "seconds" if comparison.cost else "evaluations",
            **{
                curve.name: {"x": curve.xs, "regret": curve.middle, "low": curve.low, "high": curve.high}
                for curve in comparison.curves
            },
        },
    }


def _shorten_names(names: Sequence[str]) -> dict[str, str]:
    """Returns the label of each strategy: a file's name without its folder, if the labels still differ."""
    short = {name: Path(name).name if ":" in name else name for name in names}
    return short if len(set(short.values())) == len(names) else {name: name for name in names}


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class _ProgressBar:
    """A progress bar on a terminal: how many runs are done, and how long the rest may take."""

    def __init__(self, total: int) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where someone waits
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._since, self.done, self._total = time.monotonic(), 0, total
        self._progress = Progress(
            BarColumn(30),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("loading", total=total)

    def __enter__(self) -> _ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Restores the terminal."""
        self._progress.stop()

    def show(self, done: int, known: int) -> None:
        """Shows how many runs are done."""
        self.done, fresh = done, done - known
        text = f"{done:,} of {self._total:,} runs"
        if known:
            text += f" ({known:,} of them known before)"
        if fresh:
            left = (time.monotonic() - self._since) / fresh * (self._total - done)
            text += f" · {formatting.clock(left)} left"
        self._progress.update(self._task, completed=done, description=text)
