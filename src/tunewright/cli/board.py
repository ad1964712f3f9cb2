"""Board: a campaign while it runs: each device with what it works on, what was found, how much is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from tunewright.fronts.campaign.driver import Lost, Seat
from tunewright.fronts.campaign.ledger import Ledger, Standing
from tunewright.fronts.campaign.work import Order, Outcome
from tunewright.report import words

MOST_ROWS = 24
"""Devices that are shown at once: those that work longest, since these may hang."""


class Board:
    """A live table on a terminal; elsewhere a line for each portion."""

    def __init__(self, ledger: Ledger, changed: Callable[[], None]) -> None:
        self._ledger, self._changed, self._live = ledger, changed, None
        self._since, self._tried = time.monotonic(), ledger.tried
        self._working: dict[str, tuple[Seat, Order, float]] = {}
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where someone looks
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), refresh_per_second=2, get_renderable=self._drawing)
            self._live.start()

    def gave(self, seat: Seat, order: Order) -> None:
        """Show what a device works on."""
        self._working[order.item.name] = (seat, order, time.monotonic())

    def took(self, standing: Standing, outcome: Outcome | Lost) -> None:
        """Say what a portion came to."""
        self._working.pop(standing.item.name, None)
        self._changed()
        line = said(standing, outcome)
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
        else:
            click.echo(line, err=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def _line(self) -> str:
        """Trials, what is spent of the budget, the greatest gain, time left."""
        ledger, most = self._ledger, self._ledger.plan.most
        now = time.monotonic()
        parts = [words.counted(ledger.tried, "trial"), f"{words.clock(ledger.seconds)} on devices"]
        best = max(ledger.standings.values(), key=lambda one: one.gain or 0.0)
        if best.gain:
            parts.append(f"best {words.ratio(best.gain)} ({best.item.name})")
        done = ledger.tried - self._tried
        if most.trials is not None and done:
            parts.append(f"at most {words.clock((most.trials - ledger.tried) * (now - self._since) / done)} left")
        return " · ".join(parts)

    def _drawing(self) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only where someone looks
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table("device", "kind", "item", "trials", "for", box=None, padding=(0, 2), header_style="dim")
        now = time.monotonic()
        working = sorted(self._working.values(), key=lambda one: one[2])
        for seat, order, since in working[:MOST_ROWS]:
            cells = (seat.name, seat.device, order.item.name, str(order.trials), words.clock(now - since))
            table.add_row(*map(Text, cells))
        more = len(working) - MOST_ROWS
        rest = [Text(f"  and {words.counted(more, 'device')} more", style="dim")] if more > 0 else []
        return Group(table, *rest, Text(self._line(), style="bold"))


def said(standing: Standing, outcome: Outcome | Lost) -> str:
    """A portion's end in a line."""
    if isinstance(outcome, Lost):
        return f"{standing.item.name}: its machine was lost, another goes on ({outcome.reason})"
    if outcome.failed:
        return f"{standing.item.name}: failed at {outcome.where}: {outcome.failed}"
    gain = f"{words.ratio(standing.gain)} as fast as the default" if standing.gain else "no gain known"
    told = words.counted(outcome.tried, "trial")
    return f"{standing.item.name}: {told} in {words.clock(outcome.seconds)} at {outcome.where}, {gain}"
