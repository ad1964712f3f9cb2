"""Campaign: many kernels, shapes and devices tuned within one budget, planned, run, gone on with and reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.board import Board
from tunewright.cli.targets import json_option, kernel_at, sizes_of
from tunewright.errors import NoDecision, StoreError
from tunewright.fronts.campaign import plan as plans
from tunewright.fronts.campaign.driver import Driver, Here, Seats
from tunewright.fronts.campaign.ledger import Ledger, Standing
from tunewright.fronts.campaign.metrics import exposition
from tunewright.fronts.campaign.plan import HERE, Plan
from tunewright.fronts.campaign.worth import Worth
from tunewright.ports import plugins
from tunewright.report import words
from tunewright.settings import Settings
from tunewright.sharing import files
from tunewright.sharing.leases import Lease
from tunewright.sharing.offers import Leases
from tunewright.stores import places

LEASE_SECONDS = 10.0
"""How long a campaign whose driver was killed waits for the next."""

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def campaign() -> None:
    """Tune many kernels, shapes and devices within one budget.

    FILE is a TOML file that names them. Everything is kept in the store as it is found: whatever is killed,
    `resume` goes on, and repeats nothing.
    """


def _opened(file: Path) -> tuple[Plan, Ledger]:
    plan = plans.read(file, kernel_at, sizes_of)
    settings = Settings.read(**plan.settings)
    if settings.store:
        plan.settings["store"] = settings.store_location
    return plan, Ledger(places.truth(settings.store_location), plan)


@campaign.command()
@file_argument
@json_option
def plan(file: Path, as_json: bool) -> None:
    """What FILE would have tuned, most expected savings first.

    Nothing is run.
    """
    made, ledger = _opened(file)
    worth = Worth(ledger.standings.values(), ledger.stakes())
    order = sorted(ledger.standings.values(), key=worth.of, reverse=True)
    if as_json:
        items = [{**output.plain(one.item), "stake": worth.stake(one), "expected": worth.of(one)} for one in order]
        output.as_json({"name": made.name, "budget": made.budget, "items": items})
        return
    output.say(f"{made.name}: {words.counted(len(order), 'item')}, budget {made.budget}, portions of {made.portion}")
    rows = [
        (one.item.name, one.state, f"{one.item.calls:g}", words.seconds(worth.stake(one)), words.seconds(worth.of(one)))
        for one in order
    ]
    output.table(("item", "state", "calls", "at stake", "expected to save"), rows)


metrics_option = click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep where the campaign stands in this file, in Prometheus' text format, as its node exporter collects it.",
)


@campaign.command()
@file_argument
@metrics_option
@json_option
def run(file: Path, metrics: Path | None, as_json: bool) -> None:
    """Tune as FILE says, until the budget is spent.

    Or until nothing is worth more. What is finished is passed over.
    """
    _run(file, metrics, as_json)


@campaign.command()
@file_argument
@metrics_option
@json_option
def resume(file: Path, metrics: Path | None, as_json: bool) -> None:
    """Go on with the campaign of FILE after it was interrupted or killed.

    Here or elsewhere: everything is in the store. No trial that was recorded is repeated.
    """
    _, ledger = _opened(file)
    if not any(standing.portions or standing.begun for standing in ledger.standings.values()):
        raise NoDecision(f"{file.name} was never begun in this store; say: tunewright campaign run {file.name}")
    _run(file, metrics, as_json)


def _run(file: Path, metrics: Path | None, as_json: bool) -> None:
    made, ledger = _opened(file)
    with _alone(made, ledger):
        made, ledger = _opened(file)  # what stood while another was still at it has changed
        if found := ledger.recover():
            click.echo(f"{words.counted(found, 'trial')} of an earlier run counted in", err=True)
        began = time.monotonic()
        seats = _seats(made)
        board = Board(ledger, lambda: _expose(ledger, metrics))
        try:
            Driver(made, ledger, seats, board).run()
        except KeyboardInterrupt:
            click.echo(f"interrupted; to go on: tunewright campaign resume {file}", err=True)
            raise
        finally:
            board.close()
            _expose(ledger, metrics)
    _report(made, ledger, as_json, wall=time.monotonic() - began)


def _expose(ledger: Ledger, metrics: Path | None) -> None:
    if metrics is not None:
        files.put(metrics, exposition(ledger).encode())


@contextmanager
def _alone(made: Plan, ledger: Ledger) -> Iterator[None]:
    """The right to drive the campaign, of which there is one."""
    if not isinstance(ledger.store, Leases):
        yield
        return
    lease = Lease(ledger.store, f"campaign {made.name}", LEASE_SECONDS)
    until = time.monotonic() + 3 * LEASE_SECONDS
    while not lease.claim():
        if time.monotonic() > until:
            raise StoreError(f"{made.name} is being run by another process; wait for it, or end it")
        time.sleep(0.5)
    lease.keep_alive()
    try:
        yield
    finally:
        lease.give_back()


def _seats(made: Plan) -> Seats:
    if made.devices == [HERE]:
        return Here()
    try:
        from tunewright.fronts.campaign.fleet import Fleet  # noqa: PLC0415 - only where there is more than this machine
    except ImportError as error:
        raise plugins.missing("pools", "ray", error) from error
    return Fleet(made)


@campaign.command()
@file_argument
@click.option("--prometheus", is_flag=True, help="Say it in Prometheus' text format.")
@json_option
def status(file: Path, prometheus: bool, as_json: bool) -> None:
    """Where the campaign of FILE stands; it may be running elsewhere."""
    made, ledger = _opened(file)
    if prometheus:
        click.echo(exposition(ledger), nl=False)
        return
    _report(made, ledger, as_json)


@campaign.command()
@file_argument
@json_option
def report(file: Path, as_json: bool) -> None:
    """What the campaign of FILE has gained: per item, and over all calls."""
    made, ledger = _opened(file)
    _report(made, ledger, as_json, gains=True)


def _report(made: Plan, ledger: Ledger, as_json: bool, *, wall: float | None = None, gains: bool = False) -> None:
    standings = sorted(ledger.standings.values(), key=lambda standing: -standing.saved)
    states = [standing.state for standing in standings]
    totals: dict[str, Any] = {
        "items": len(standings),
        **{state: states.count(state) for state in Standing.STATES},
        "trials": ledger.tried,
        "device_seconds": ledger.seconds,
        "saved_seconds": sum(standing.saved for standing in standings),
        "lost": sum(standing.lost for standing in standings),
    }
    if wall is not None:
        totals["wall_seconds"] = wall
    if as_json:
        listed = [
            {**output.plain(standing), "state": standing.state, "saved": standing.saved} for standing in standings
        ]
        slow = [output.plain(one) for one in ledger.quarantined]
        output.as_json({"name": made.name, **totals, "standings": listed, "quarantined": slow})
        return
    rows = [
        (
            standing.item.name,
            standing.state,
            standing.tried,
            words.clock(standing.seconds),
            words.ratio(standing.gain) if standing.gain else "",
            words.seconds(standing.saved) if standing.saved else "",
            *([standing.failed or standing.where] if gains else []),
        )
        for standing in standings
    ]
    output.table(("item", "state", "trials", "time", "gain", "saved", *(["where"] if gains else [])), rows)
    done = ", ".join(f"{totals[state]} {state}" for state in Standing.STATES if totals[state])
    spent = f"{words.counted(ledger.tried, 'trial')}, {words.clock(ledger.seconds)} on devices"
    output.say(f"{made.name}: {done}; {spent}, of {made.budget}; saves {words.seconds(totals['saved_seconds'])}")
    for one in ledger.quarantined:
        output.say(f"quarantined: {one.said}")
