"""One portion of a campaign item, searched in the process whose machine has the device."""

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
from tunewright.fleet.campaign.plan import CampaignItem
from tunewright.kernel.tuned import Tuned
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.trial import TrialRequest
from tunewright.pools.kernel_loader import load_target
from tunewright.pools.worker import IsolatedAttempt
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.stores.singleflight import SingleFlight

log = LazyLogger(__name__)

DEFAULT_TIMINGS = 3
"""How often the default is timed to compare devices; the best timing is the least disturbed."""


class PortionRequest(msgspec.Struct, frozen=True):
    """An item, the trials and seconds it may take, and the settings it is tuned under."""

    item: CampaignItem
    trials: int
    seconds: float | None
    settings: dict[str, Any]
    path: list[str] = []


class PortionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a portion.

    `tried` counts its own trials, `replayed` those of earlier portions and runs. `remains` is the strategy's estimate
    of how much faster a config may still be found; `ended` says that nothing is left to try, or not worth it. `failed`
    is the reason why the item cannot be tuned.
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


def process_name() -> str:
    """Returns the name of this machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _load_item(request: PortionRequest) -> tuple[Tuned, list[Any], Session]:
    sys.path.extend(entry for entry in request.path if entry not in sys.path)
    kernel = load_target(request.item.target)
    if not isinstance(kernel, Tuned):
        raise BackendError(
            f"{request.item.target} is not a tuned kernel on {process_name()}; are the sources there the same?"
        )
    session = Session(**{**request.settings, "mode": Mode.TUNE})
    kernel.using(session)
    return kernel, kernel.example(request.item.sizes), session


def run_portion(request: PortionRequest) -> PortionResult:
    """Continues the search of an item for one portion. A failure of the item is a result; other errors raise."""
    began = time.monotonic()
    try:
        kernel, args, session = _load_item(request)
        problem = kernel.problem(args)
    except TunewrightError as error:
        return PortionResult(process_name(), failed=str(error))

    def search() -> Decision:
        known = {trial.config for trial in session.store.trials(problem.key) if trial.config in problem.space}
        return kernel.tune(*args, budget=Budget(len(known) + request.trials, request.seconds))

    try:
        decision = _search_alone(session, problem, search)
    except (BackendError, NothingWorked) as error:
        tried = session.counts["measurements"]
        return PortionResult(process_name(), problem.key, tried, seconds=time.monotonic() - began, failed=str(error))
    return _make_result(problem, decision, session, request, time.monotonic() - began)


def _search_alone(session: Session, problem: Problem, search: Callable[[], Decision]) -> Decision:
    """Runs `search` while no other process searches the same key, even if a decision is already stored."""
    single_flight = SingleFlight(
        session.store, f"tune {problem.key.digest}", max_wait=session.settings.tuning_wait_seconds
    )
    decision = single_flight.run(search, lambda: None)
    return session.lookup(problem) if decision is None else decision


def _make_result(
    problem: Problem, decision: Decision, session: Session, request: PortionRequest, seconds: float
) -> PortionResult:
    tried, replayed, evidence = session.counts["measurements"], session.counts["replayed"], decision.evidence
    # Fewer trials than it was given, with time left: the strategy had nothing more, or thought it not worth it.
    out_of_time = request.seconds is not None and seconds >= request.seconds
    return PortionResult(
        process_name(),
        problem.key,
        tried,
        replayed,
        seconds,
        evidence.gain if evidence else None,
        evidence.default_seconds if evidence else None,
        evidence.remains if evidence else None,
        ended=tried < request.trials and not out_of_time,
        notes=evidence.notes if evidence else (),
    )


def time_default(request: PortionRequest) -> float | None:
    """Times the item's default here, as the same work for every device of a kind; None if it fails."""
    try:
        kernel, args, session = _load_item(request)
        attempt = kernel.attempt(kernel.cases_like(args))
        default = TrialRequest(kernel.default)
        trials = [attempt(default) for _ in range(DEFAULT_TIMINGS)]
    except TunewrightError as error:
        log.warning("the speed of %s is unknown: %s", process_name(), error)
        return None
    assert isinstance(attempt, IsolatedAttempt) or session.settings.pool_name == "serial"
    return min((trial.seconds for trial in trials if trial.works), default=None)
