"""Replay: strategies compared on recorded spaces, without a device."""

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
from tunewright.cli.targets import json_option
from tunewright.laboratory.contenders import Contender
from tunewright.laboratory.crew import traces
from tunewright.laboratory.ledger import Ledger
from tunewright.laboratory.replays import Terms, Trace, jobs
from tunewright.laboratory.scores import Score, grouped, marks, over_evaluations, over_seconds, summary
from tunewright.laboratory.tables import Origin, in_store, on_disk
from tunewright.report import regret, words
from tunewright.report.regret import Curve, Picture
from tunewright.settings import Settings

Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _Compared:
    """What came of it: traces and scores of each strategy, and the curves if they are wanted."""

    traces: Mapping[str, Sequence[Trace]]
    scores: Mapping[str, Sequence[Score]]
    curves: Sequence[Curve]
    cost: bool

    @property
    def tables(self) -> list[str]:
        """Names of the spaces."""
        return sorted({score.table for some in self.scores.values() for score in some})

    def figures(self) -> Figures:
        """Over all spaces."""
        return {name: summary(some) for name, some in self.scores.items()}

    def figures_by(self, what: str) -> dict[str, Figures]:
        """For each kernel, or for each table."""
        found: dict[str, Figures] = {}
        for name, some in self.scores.items():
            for group, own in grouped(some, lambda score: str(getattr(score, what))).items():
                found.setdefault(group, {})[name] = summary(own)
        return found

    def headline(self) -> str:
        """What was compared, in a line."""
        runs = [len(some) for some in self.scores.values()]
        seeds = words.counted(runs[0] // len(self.tables), "seed")
        return f"{words.counted(len(self.tables), 'space')}, {seeds} each"


@click.group(invoke_without_command=True)
@click.option("--spaces", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Recordings: a folder of NAME.parquet with NAME.json, or one such file. Repeatable.")  # fmt: skip
@click.option("--store", "location", metavar="LOCATION", help="Also, or instead: the journals of this store.")
@click.option("--strategies", metavar="A,B", help="Names of plugins, FILE.py:NAME or module:NAME, separated by commas.")
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, help="Runs of each on each space.")
@click.option("--budget", type=click.IntRange(min=1), default=200, show_default=True, help="Evaluations of a run.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True,
              help="Configs asked for before the first is told, as by so many workers.")  # fmt: skip
@click.option("--cost", is_flag=True, help="Judge by seconds of compiling and running, too; the plot's axis then.")
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

    How near to the best, in how few evaluations.

    r25, r50, ...: the best time over the best so far after so many evaluations, mean over runs (1 is perfect).
    e5, e1: evaluations until within 5 % and 1 % of the best, median (-: not reached); s5, s1: seconds until then.

    Finished runs are kept: Ctrl-C loses nothing, and the same command goes on.
    """
    if context.invoked_subcommand is not None:
        return
    if options["plot"] is not None:
        regret.require(options["plot"])
    origins = _origins(options["spaces"], options["location"])
    contenders = _contenders(options["strategies"])
    compared = _compared(origins, contenders, options)
    if options["as_json"]:
        output.as_json(_plain(compared, options))
    else:
        _tell(compared, options)
    if options["plot"] is not None:
        axis = "seconds of compiling and running" if options["cost"] else "evaluations"
        title = f"{_joined(list(compared.scores))}: {compared.headline()}"
        over = words.counted(len(compared.tables), "space")
        regret.draw(options["plot"], Picture(compared.curves, title, axis, over, options["cost"]))
        click.echo(f"drawn: {options['plot']}", err=True)


def _origins(places: Sequence[Path], location: str | None) -> list[Origin]:
    if not places and location is None:
        raise click.UsageError(
            "say what to search: --spaces DIR (recordings), or --store LOCATION (journals of kernels you tuned; yours "
            f"is {Settings.read().store_name})"
        )
    return [*on_disk(places), *(in_store(location) if location is not None else [])]


def _contenders(text: str | None) -> list[Contender]:
    """The strategies typed, each proven to load."""
    names = list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if not names:
        from importlib.metadata import entry_points  # noqa: PLC0415 - only for mistakes

        installed = ", ".join(sorted(entry_points(group="tunewright.strategies").names))
        raise click.UsageError(f"say which strategies: --strategies A,B; installed: {installed}; or FILE.py:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")
    contenders = [Contender(name) for name in names]
    for contender in contenders:
        contender.load()
    return contenders


def _compared(origins: Sequence[Origin], contenders: Sequence[Contender], options: dict[str, Any]) -> _Compared:
    terms = Terms(options["budget"], options["batch"])
    wanted = jobs(origins, contenders, range(options["seeds"]), terms)
    with Ledger(options["out"] or Settings.read().cache_path / "replays") as ledger, _Bar(len(wanted)) as bar:
        try:
            found = traces(wanted, ledger, workers=options["workers"], fresh=options["fresh"], after=bar.show)
        except KeyboardInterrupt:
            bar.stop()
            again = "the same command" + (" without --fresh" if options["fresh"] else "")
            click.echo(f"interrupted; {bar.done} of {len(wanted)} runs are kept in {ledger.path}. "
                       f"Run {again} to go on.", err=True)  # fmt: skip
            raise
    shown = _shown([contender.name for contender in contenders])
    by_name: dict[str, list[Trace]] = {name: [] for name in shown.values()}
    for trace in found:
        by_name[shown[trace.stamp.strategy]].append(trace)
    scores = {name: [Score.of(trace, marks(terms.budget)) for trace in some] for name, some in by_name.items()}
    curves = over_seconds(by_name) if options["cost"] else over_evaluations(by_name)
    return _Compared(by_name, scores, curves, options["cost"])


def _tell(compared: _Compared, options: dict[str, Any]) -> None:
    """The table of all, then one for each kernel if there are several."""
    batches = f" in batches of {options['batch']}" if options["batch"] > 1 else ""
    evaluations = f"{words.counted(options['budget'], 'evaluation')}{batches}"
    parts = {f"{compared.headline()}, {evaluations}": compared.figures()}
    if len(kernels := compared.figures_by("kernel")) > 1:
        parts |= kernels
    for number, (title, figures) in enumerate(parts.items()):
        heads, body = regret.rows(figures, cost=compared.cost)
        if options["markdown"]:
            click.echo(("\n" if number else "") + f"**{title}**\n\n" + regret.markdown(heads, body))
        else:
            output.say(("\n" if number else "") + title, "bold")
            output.table(heads, body)


def _plain(compared: _Compared, options: dict[str, Any]) -> dict[str, Any]:
    """Everything, for machines; null where a bound was not reached."""
    return {
        **{name: options[name] for name in ("seeds", "budget", "batch")},
        "spaces": compared.tables,
        "strategies": compared.figures(),
        "by_kernel": compared.figures_by("kernel"),
        "by_space": compared.figures_by("table"),
        "curves": {
            "axis": "seconds" if compared.cost else "evaluations",
            **{c.name: {"x": c.xs, "regret": c.middle, "low": c.low, "high": c.high} for c in compared.curves},
        },
    }


def _shown(names: Sequence[str]) -> dict[str, str]:
    """What each strategy is called: a file's without its folder, if that still tells them apart."""
    short = {name: Path(name).name if ":" in name else name for name in names}
    return short if len(set(short.values())) == len(names) else {name: name for name in names}


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class _Bar:
    """A line on a terminal while replays run: how many are done, and how long the rest may take."""

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

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def show(self, done: int, known: int) -> None:
        """Say how far it is."""
        self.done, fresh = done, done - known
        text = f"{done:,} of {self._total:,} runs"
        if known:
            text += f" ({known:,} of them known before)"
        if fresh:
            left = (time.monotonic() - self._since) / fresh * (self._total - done)
            text += f" · {words.clock(left)} left"
        self._progress.update(self._task, completed=done, description=text)
