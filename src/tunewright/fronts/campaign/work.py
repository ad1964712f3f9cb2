"""Work: one portion of one item, done in the process whose machine has the device."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import BackendError, NothingWorked, TunewrightError
from tunewright.fronts.campaign.plan import Item
from tunewright.fronts.tuned import Tuned
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.trial import Entry
from tunewright.pools.isolate import Isolated
from tunewright.pools.loading import find
from tunewright.remarks import Remarks
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.sharing.flight import Flight

log = Remarks(__name__)

PACES = 3
"""How often the default is timed to learn a device's pace; the best of them is least disturbed."""


class Order(msgspec.Struct, frozen=True):
    """An item, how many more trials and seconds it is given, and the settings it is tuned under."""

    item: Item
    trials: int
    seconds: float | None
    settings: dict[str, Any]
    path: list[str] = []


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a portion came to.

    `tried` counts its own trials, `replayed` those of earlier portions and runs. `remains` is how much faster the
    strategy thinks a config may still be found; it is `ended` when there is nothing more to try, or not worth it.
    """

    where: str = ""
    key: Key | None = None
    tried: int = 0
    replayed: int = 0
    seconds: float = 0.0
    gain: float | None = None
    default_seconds: float | None = None
    remains: float | None = None
    ended: bool = False
    failed: str = ""
    notes: tuple[str, ...] = ()


def here() -> str:
    """This machine and process, in words."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _opened(order: Order) -> tuple[Tuned, list[Any], Session]:
    sys.path.extend(entry for entry in order.path if entry not in sys.path)
    kernel = find(order.item.target)
    if not isinstance(kernel, Tuned):
        raise BackendError(f"{order.item.target} is no tuned kernel on {here()}; are the sources there the same?")
    session = Session(**{**order.settings, "mode": Mode.TUNE})
    kernel.using(session)
    return kernel, kernel.example(order.item.sizes), session


def worked(order: Order) -> Outcome:
    """Search an item on for a portion. What it lacks is an outcome; only what is wrong with all items raises."""
    began = time.monotonic()
    try:
        kernel, args, session = _opened(order)
        problem = kernel.problem(args)
    except TunewrightError as error:
        return Outcome(here(), failed=str(error))

    def search() -> Decision:
        known = {trial.config for trial in session.store.trials(problem.key) if trial.config in problem.space}
        return kernel.tune(*args, budget=Budget(len(known) + order.trials, order.seconds))

    try:
        decision = _alone(session, problem, search)
    except (BackendError, NothingWorked) as error:
        tried = session.counts["measurements"]
        return Outcome(here(), problem.key, tried, seconds=time.monotonic() - began, failed=str(error))
    return _told(problem, decision, session, order, time.monotonic() - began)


def _alone(session: Session, problem: Problem, search: Callable[[], Decision]) -> Decision:
    """What `search` decides, while nobody else searches the same: what stands already is no reason not to go on."""
    flight = Flight(session.store, f"tune {problem.key.digest}", patience=session.settings.wait)
    decision = flight.join(search, lambda: None)
    return session.known(problem) if decision is None else decision


def _told(problem: Problem, decision: Decision, session: Session, order: Order, seconds: float) -> Outcome:
    tried, replayed, evidence = session.counts["measurements"], session.counts["replayed"], decision.evidence
    # Fewer than it was given, with time left: the strategy had nothing more, or thought it not worth it.
    hurried = order.seconds is not None and seconds >= order.seconds
    return Outcome(
        here(),
        problem.key,
        tried,
        replayed,
        seconds,
        evidence.gain if evidence else None,
        evidence.default_seconds if evidence else None,
        evidence.remains if evidence else None,
        ended=tried < order.trials and not hurried,
        notes=evidence.notes if evidence else (),
    )


def pace(order: Order) -> float | None:
    """Seconds that the item's default takes here: the same work on every device of a kind; None if it fails."""
    try:
        kernel, args, session = _opened(order)
        attempt = kernel.attempt(kernel.cases_like(args))
        entry = Entry(kernel.default)
        trials = [attempt(entry) for _ in range(PACES)]
    except TunewrightError as error:
        log.warning("the pace of %s is not known: %s", here(), error)
        return None
    assert isinstance(attempt, Isolated) or session.settings.pool_name == "serial"
    return min((trial.seconds for trial in trials if trial.works), default=None)
