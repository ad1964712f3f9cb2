"""Page: a run as one HTML file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from html import escape

from tunewright.bench import pictures
from tunewright.bench.metrics import METRICS, figures, rows
from tunewright.bench.run import Run
from tunewright.model.trial import Kind
from tunewright.report import document, words

TITLES = {"latency": "Latency by size", "roofline": "Under the roof of this machine", "heat": "Who is faster where"}


def roof(run: Run) -> str:
    """What this machine reached, in words."""
    peaks = [f"{dtype} {peak / 1e9:.0f} GFLOP/s" for dtype, peak in run.roof.peaks.items()]
    return ", ".join([f"{run.roof.bandwidth / 1e9:.1f} GB/s", *peaks])


def page(run: Run, baseline: str) -> str:
    """The run: what was best, pictures if they can be drawn, every cell, and under which conditions."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.at))
    apart = "each implementation in a process of its own" if run.isolated else "one process for all"
    head = f"{run.machine} · {words.counted(run.threads, 'thread')} · {roof(run)} · {apart} · {when} UTC"
    body = f'<p class="place">{escape(head)}</p>'
    body += "".join(f'<p class="bad">{escape(said)}</p>' for said in run.complaints)
    body += _mishaps(run)
    if pictures.available():
        for name, svg in pictures.drawn(run, baseline).items():
            body += f"<h2>{TITLES[name]}</h2>{svg}"
    body += f"<h2>Every cell, speed-ups over {escape(baseline)}</h2>"
    body += document.table(["operator", "call", "implementation", *METRICS, ""], _lines(run, baseline))
    return document.whole("tunewright bench", body)


def _lines(run: Run, baseline: str) -> Iterator[tuple[str, list[str]]]:
    """Every cell: how it is drawn, and what is said; the reason of a mishap is told above."""
    best = _best(run)
    for (bout, cell), row in zip(run.cells(), rows(run, tuple(METRICS), baseline), strict=True):
        fastest = "best" if (str(bout.call), cell.implementation) in best else ""
        kind = fastest if cell.mishap is None else "place" if cell.mishap.kind == Kind.REFUSED else "bad"
        whole = [said.replace(" ", "\u00a0") for said in row[:-2]]  # in one line, but for the config
        yield kind, [*whole, row[-2], cell.mishap.kind if cell.mishap else ""]


def _best(run: Run) -> set[tuple[str, str]]:
    """The fastest cell of each call."""
    found = set()
    for bout in run.bouts:
        times = {c.implementation: figures(run, bout, c, "").latency for c in bout.cells if c.samples}
        if times:
            found.add((str(bout.call), min(times, key=lambda name: times[name] or 0.0)))
    return found


def _mishaps(run: Run) -> str:
    """What went wrong, each by itself; who only does not take such arguments, in a line."""
    lost = [(f"{bout.call}  {cell.implementation}", cell.mishap) for bout, cell in run.cells() if cell.mishap]
    told = [(where, mishap) for where, mishap in lost if mishap.kind != Kind.REFUSED]
    body = "<h2>Mishaps</h2>" if told else ""
    body += "".join(f"<article><b>{escape(where)}</b><p>{escape(str(mishap))}</p></article>" for where, mishap in told)
    refused = [f"{where}: {mishap.reason}" for where, mishap in lost if mishap.kind == Kind.REFUSED]
    return body + "".join(f'<p class="place">not raced: {escape(said)}</p>' for said in refused)
