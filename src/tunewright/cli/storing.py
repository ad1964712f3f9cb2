"""Whether a decision that was searched for is stored: checked before the search, and after it."""

from __future__ import annotations

import os

import click

from tunewright.errors import NoDecision, StoreError, TunewrightError
from tunewright.model.decision import Problem
from tunewright.session import Session
from tunewright.stores import locations
from tunewright.stores.capabilities import SupportsLeases

PROBE_SECONDS = 1.0
"""How long the lease is held by which a store is tried."""


def warn_if_unwritable(session: Session) -> None:
    """Says before a search that its result cannot be stored. The search goes on: its result is printed."""
    try:
        store = locations.open_authoritative(session.settings.store_location)
        if isinstance(store, SupportsLeases):
            store.claim("writable", owner := os.urandom(8).hex(), PROBE_SECONDS)
            store.release("writable", owner)
    except StoreError as error:
        click.echo(f"the result will be printed, but not stored: {error}", err=True)


def storing_problem(session: Session, problem: Problem, *, noisy: bool) -> TunewrightError | None:
    """Returns why only this process knows a decision; None if it is stored."""
    if noisy:
        return NoDecision(
            f"nothing was kept: this machine cannot tell {100 * session.settings.resolution:g} % apart now. "
            "`tunewright noise` says what disturbs it. The trials are kept, so the same command only races again; "
            "or raise the setting `resolution`."
        )
    if Session(session.settings).store.get(problem.key) is not None:
        return None
    return StoreError(f"the decision was not kept in {session.settings.store_name}; give another --store")
