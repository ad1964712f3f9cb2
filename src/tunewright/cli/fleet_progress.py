"""Live progress of a campaign: what each device works on, what was found, how much is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from tunewright.fleet.campaign.ledger import CampaignLedger, ItemState
from tunewright.fleet.campaign.portion import PortionRequest, PortionResult
from tunewright.fleet.campaign.scheduler import CampaignDevice, MachineLost
from tunewright.report import formatting

MAX_ROWS = 24
"""How many devices are shown: those that have worked longest, since they may hang."""


class CampaignProgress:
    """A live table on a terminal; elsewhere a line for each portion."""

    def __init__(self, ledger: CampaignLedger, changed: Callable[[], None]) -> None:
        self._ledger, self._changed, self._live = ledger, changed, None
        self._since, self._tried = time.monotonic(), ledger.tried
        self._working: dict[str, tuple[CampaignDevice, PortionRequest, float]] = {}
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only where someone looks
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), refresh_per_second=2, get_renderable=self._render)
            self._live.start()

    def portion_started(self, device: CampaignDevice, request: PortionRequest) -> None:
        """Shows what a device works on."""
        self._working[request.item.name] = (device, request, time.monotonic())

    def portion_finished(self, state: ItemState, result: PortionResult | MachineLost) -> None:
        """Prints the result of a portion."""
        self._working.pop(state.item.name, None)
        self._changed()
        line = _describe(state, result)
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
        else:
            click.echo(line, err=True)

    def close(self) -> None:
        """Restores the terminal."""
        if self._live is not None:
            self._live.stop()

    def _summary(self) -> str:
        """Returns trials, time spent, the largest gain, and the time left."""
        ledger, limit = self._ledger, self._ledger.plan.max_budget
        now = time.monotonic()
        parts = [formatting.counted(ledger.tried, "trial"), f"{formatting.clock(ledger.seconds)} on devices"]
        best = max(ledger.states.values(), key=lambda state: state.gain or 0.0)
        if best.gain:
            parts.append(f"best {formatting.ratio(best.gain)} ({best.item.name})")
        done = ledger.tried - self._tried
        if limit.trials is not None and done:
            parts.append(f"at most {formatting.clock((limit.trials - ledger.tried) * (now - self._since) / done)} left")
        return " · ".join(parts)

    def _render(self) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only where someone looks
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table("device", "kind", "item", "trials", "for", box=None, padding=(0, 2), header_style="dim")
        now = time.monotonic()
        working = sorted(self._working.values(), key=lambda entry: entry[2])
        for device, request, since in working[:MAX_ROWS]:
            cells = (device.name, device.device, request.item.name, str(request.trials), formatting.clock(now - since))
            table.add_row(*map(Text, cells))
        hidden = len(working) - MAX_ROWS
        rest = [Text(f"  and {formatting.counted(hidden, 'device')} more", style="dim")] if hidden > 0 else []
        return Group(table, *rest, Text(self._summary(), style="bold"))


def _describe(state: ItemState, result: PortionResult | MachineLost) -> str:
    """Returns the result of a portion as one line."""
    if isinstance(result, MachineLost):
        return f"{state.item.name}: its machine was lost, another continues ({result.reason})"
    if result.failed:
        return f"{state.item.name}: failed at {result.where}: {result.failed}"
    gain = f"{formatting.ratio(state.gain)} as fast as the default" if state.gain else "no gain known"
    trials = formatting.counted(result.tried, "trial")
    return f"{state.item.name}: {trials} in {formatting.clock(result.seconds)} at {result.where}, {gain}"
