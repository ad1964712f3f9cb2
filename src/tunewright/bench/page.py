"""A run as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape

from tunewright.bench import plots
from tunewright.bench.metrics import METRICS, cell_metrics, metric_rows
from tunewright.bench.results import BenchRun
from tunewright.model.trial import Kind
from tunewright.report import formatting, html_page

TITLES = {"latency": "Latency by size", "roofline": "Roofline of this machine", "heat": "Speed-ups by call"}


def describe_roofline(run: BenchRun) -> str:
    """Returns what this machine reached, as text."""
    peaks = [f"{dtype} {peak / 1e9:.0f} GFLOP/s" for dtype, peak in run.roof.peaks.items()]
    return ", ".join([f"{run.roof.bandwidth / 1e9:.1f} GB/s", *peaks])


def render_page(run: BenchRun, baseline: str) -> str:
    """Returns the page: the conditions, failures, plots if matplotlib is installed, and every cell."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.at))
    isolation = "each implementation in a process of its own" if run.isolated else "one process for all"
    threads = formatting.counted(run.threads, "thread")
    head = f"{run.machine} · {threads} · {describe_roofline(run)} · {isolation} · {when} UTC"
    body = f'<p class="place">{escape(head)}</p>'
    body += "".join(f'<p class="bad">{escape(complaint)}</p>' for complaint in run.complaints)
    body += _failures(run)
    if plots.available():
        for name, svg in plots.render_svgs(run, baseline).items():
            body += f"<h2>{TITLES[name]}</h2>{svg}"
    body += f"<h2>All cells, speed-ups over {escape(baseline)}</h2>"
    body += html_page.table(["operator", "call", "implementation", *METRICS, ""], _table_rows(run, baseline))
    return html_page.render_page("tunewright bench", body)


def _table_rows(run: BenchRun, baseline: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the CSS class and the texts of every cell; the reason of a failure stands above the table."""
    best = _fastest_cells(run)
    for (comparison, cell), row in zip(run.cells(), metric_rows(run, tuple(METRICS), baseline), strict=True):
        fastest = "best" if (str(comparison.call), cell.implementation) in best else ""
        kind = fastest if cell.failure is None else "place" if cell.failure.kind == Kind.REFUSED else "bad"
        unbroken = [text.replace(" ", "\u00a0") for text in row[:-2]]  # in one line, but for the config
        yield kind, [*unbroken, row[-2], cell.failure.kind if cell.failure else ""]


def _fastest_cells(run: BenchRun) -> set[tuple[str, str]]:
    """Returns call and implementation of the fastest cell of each call."""
    fastest = set()
    for comparison in run.comparisons:
        latencies = {
            cell.implementation: cell_metrics(run, comparison, cell, "").latency
            for cell in comparison.cells
            if cell.samples
        }
        if latencies:
            fastest.add((str(comparison.call), min(latencies, key=lambda name: latencies[name] or 0.0)))
    return fastest


def _failures(run: BenchRun) -> str:
    """Returns failures, one by one, and refused calls in a line each."""
    failures = [
        (f"{comparison.call}  {cell.implementation}", cell.failure) for comparison, cell in run.cells() if cell.failure
    ]
    real = [(cell, failure) for cell, failure in failures if failure.kind != Kind.REFUSED]
    body = "<h2>Failures</h2>" if real else ""
    body += "".join(f"<article><b>{escape(cell)}</b><p>{escape(str(failure))}</p></article>" for cell, failure in real)
    refused = [f"{cell}: {failure.reason}" for cell, failure in failures if failure.kind == Kind.REFUSED]
    return body + "".join(f'<p class="place">not run: {escape(text)}</p>' for text in refused)
