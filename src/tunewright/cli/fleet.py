"""`tunewright fleet`: tuning campaigns over many kernels, shapes and devices within one budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.fleet_progress import CampaignProgress
from tunewright.cli.targets import json_option, load_kernel, resolve_sizes
from tunewright.errors import NoDecision, StoreError
from tunewright.fleet.campaign import plan as plans
from tunewright.fleet.campaign.expected_gain import ExpectedGain
from tunewright.fleet.campaign.ledger import CampaignLedger, ItemState
from tunewright.fleet.campaign.metrics import exposition
from tunewright.fleet.campaign.plan import HERE, CampaignPlan
from tunewright.fleet.campaign.scheduler import CampaignScheduler, DevicePool, LocalDevice
from tunewright.ports import plugins
from tunewright.report import formatting
from tunewright.settings import Settings, require_bound_token
from tunewright.stores import files, locations
from tunewright.stores.capabilities import SupportsLeases
from tunewright.stores.leases import Lease

LEASE_SECONDS = 10.0
"""How long a campaign whose process was killed keeps others from resuming it."""

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def fleet() -> None:
    """Tune many kernels, shapes and devices within one budget.

    FILE is a TOML file that names them. Every result is stored at once: after a crash or an interruption `resume`
    continues, and repeats nothing.
    """


def _open(file: Path) -> tuple[CampaignPlan, CampaignLedger]:
    """Returns the plan in a file, and what the store says of its items."""
    plan = plans.read_plan(file, load_kernel, resolve_sizes)
    require_bound_token(str(plan.settings.get("store", "")), str(file))
    settings = Settings.read(**plan.settings)
    if settings.store:
        plan.settings["store"] = settings.store_location
    return plan, CampaignLedger(locations.open_authoritative(settings.store_location), plan)


@fleet.command()
@file_argument
@json_option
def plan(file: Path, as_json: bool) -> None:
    """List what FILE would tune, most expected savings first.

    Nothing is run.
    """
    campaign, ledger = _open(file)
    gain = ExpectedGain(ledger.states.values(), ledger.recorded_seconds())
    order = sorted(ledger.states.values(), key=gain.seconds, reverse=True)
    if as_json:
        items = [
            {**output.to_builtins(state.item), "stake": gain.seconds_at_stake(state), "expected": gain.seconds(state)}
            for state in order
        ]
        output.print_json({"name": campaign.name, "budget": campaign.budget, "items": items})
        return
    output.echo(
        f"{campaign.name}: {formatting.counted(len(order), 'item')}, budget {campaign.budget}, "
        f"portions of {campaign.portion}"
    )
    rows = [
        (
            state.item.name,
            state.status,
            f"{state.item.calls:g}",
            formatting.seconds(gain.seconds_at_stake(state)),
            formatting.seconds(gain.seconds(state)),
        )
        for state in order
    ]
    output.print_table(("item", "state", "calls", "at stake", "expected to save"), rows)


metrics_option = click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the state of the campaign to this file, in Prometheus' text format, for its node exporter.",
)


@fleet.command()
@file_argument
@metrics_option
@json_option
def run(file: Path, metrics: Path | None, as_json: bool) -> None:
    """Tune as FILE says, until the budget is spent.

    Or until no item is expected to gain enough. Finished items are skipped.
    """
    _run(file, metrics, as_json)


@fleet.command()
@file_argument
@metrics_option
@json_option
def resume(file: Path, metrics: Path | None, as_json: bool) -> None:
    """Continue the campaign of FILE after it was interrupted or killed.

    Here or elsewhere: everything is in the store. No trial that was recorded is repeated.
    """
    _, ledger = _open(file)
    if not any(state.portions or state.started_at for state in ledger.states.values()):
        raise NoDecision(
            f"{file.name} was never started in this store; start it with: tunewright fleet run {file.name}"
        )
    _run(file, metrics, as_json)


def _run(file: Path, metrics: Path | None, as_json: bool) -> None:
    campaign, ledger = _open(file)
    with _exclusive(campaign, ledger):
        campaign, ledger = _open(file)  # another process may have changed the state while this one waited
        if recovered := ledger.recover():
            click.echo(f"{formatting.counted(recovered, 'trial')} of an earlier run counted", err=True)
        began = time.monotonic()
        devices = _device_pool(campaign)
        progress = CampaignProgress(ledger, lambda: _write_metrics(ledger, metrics))
        try:
            CampaignScheduler(campaign, ledger, devices, progress).run()
        except KeyboardInterrupt:
            click.echo(f"interrupted; to continue: tunewright fleet resume {file}", err=True)
            raise
        finally:
            progress.close()
            _write_metrics(ledger, metrics)
    _print_report(campaign, ledger, as_json, wall=time.monotonic() - began)


def _write_metrics(ledger: CampaignLedger, metrics: Path | None) -> None:
    if metrics is not None:
        files.write_atomic(metrics, exposition(ledger).encode())


@contextmanager
def _exclusive(campaign: CampaignPlan, ledger: CampaignLedger) -> Iterator[None]:
    """Holds the lease of a campaign, which one process may run at a time."""
    if not isinstance(ledger.store, SupportsLeases):
        yield
        return
    lease = Lease(ledger.store, f"campaign {campaign.name}", LEASE_SECONDS)
    deadline = time.monotonic() + 3 * LEASE_SECONDS
    while not lease.claim():
        if time.monotonic() > deadline:
            raise StoreError(f"{campaign.name} is run by another process; wait for it, or stop it")
        time.sleep(0.5)
    lease.keep_alive()
    try:
        yield
    finally:
        lease.release()


def _device_pool(campaign: CampaignPlan) -> DevicePool:
    if campaign.devices == [HERE]:
        return LocalDevice()
    try:
        from tunewright.fleet.campaign.device_actors import RayDevicePool  # noqa: PLC0415 - needs ray
    except ImportError as error:
        raise plugins.missing("pools", "ray", error) from error
    return RayDevicePool(campaign)


@fleet.command()
@file_argument
@click.option("--prometheus", is_flag=True, help="Print it in Prometheus' text format.")
@json_option
def status(file: Path, prometheus: bool, as_json: bool) -> None:
    """Print the state of the campaign of FILE, which may be running elsewhere."""
    campaign, ledger = _open(file)
    if prometheus:
        click.echo(exposition(ledger), nl=False)
        return
    _print_report(campaign, ledger, as_json)


@fleet.command()
@file_argument
@json_option
def report(file: Path, as_json: bool) -> None:
    """Print what the campaign of FILE has gained: per item, and over all calls."""
    campaign, ledger = _open(file)
    _print_report(campaign, ledger, as_json, gains=True)


def _print_report(
    campaign: CampaignPlan, ledger: CampaignLedger, as_json: bool, *, wall: float | None = None, gains: bool = False
) -> None:
    states = sorted(ledger.states.values(), key=lambda state: -state.saved_seconds)
    statuses = [state.status for state in states]
    totals: dict[str, Any] = {
        "items": len(states),
        **{status: statuses.count(status) for status in ItemState.STATUSES},
        "trials": ledger.tried,
        "device_seconds": ledger.seconds,
        "saved_seconds": sum(state.saved_seconds for state in states),
        "lost": sum(state.lost for state in states),
    }
    if wall is not None:
        totals["wall_seconds"] = wall
    if as_json:
        items = [{**output.to_builtins(state), "state": state.status, "saved": state.saved_seconds} for state in states]
        slow = [output.to_builtins(device) for device in ledger.quarantined]
        output.print_json({"name": campaign.name, **totals, "standings": items, "quarantined": slow})
        return
    rows = [
        (
            state.item.name,
            state.status,
            state.tried,
            formatting.clock(state.seconds),
            formatting.ratio(state.gain) if state.gain else "",
            formatting.seconds(state.saved_seconds) if state.saved_seconds else "",
            *([state.failed or state.where] if gains else []),
        )
        for state in states
    ]
    output.print_table(("item", "state", "trials", "time", "gain", "saved", *(["where"] if gains else [])), rows)
    counts = ", ".join(f"{totals[status]} {status}" for status in ItemState.STATUSES if totals[status])
    spent = f"{formatting.counted(ledger.tried, 'trial')}, {formatting.clock(ledger.seconds)} on devices"
    output.echo(
        f"{campaign.name}: {counts}; {spent}, of {campaign.budget}; saves {formatting.seconds(totals['saved_seconds'])}"
    )
    for device in ledger.quarantined:
        output.echo(f"quarantined: {device}")
