"""Searches the configs of a call: the workload, its evaluator and the budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import BackendError, NothingWorked
from tunewright.kernel.seeds import load_seeds
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem
from tunewright.session import Session
from tunewright.stores.network_files import host_path
from tunewright.triton import adapter
from tunewright.triton.configs import ConfigSpace
from tunewright.triton.launching import HasHooks, LaunchCall, refuse_conflicts
from tunewright.triton.observed_evaluator import ObservedEvaluator, Unraced
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.sent_arguments import CannotSend
from tunewright.triton.worker_attempt import WorkerAttempt, start_attempt
from tunewright.triton.workload import TritonWorkload, WorkloadOptions

log = LazyLogger(__name__)


class CanBeSearched(HasHooks, Protocol):
    """What a search needs of a tuned kernel."""

    options: AutotuneOptions
    do_bench: Any
    _do_bench: Callable[..., Any] | None

    def target(self) -> str | None: ...


class SearchRequest(NamedTuple):
    """What is searched: the problem, its configs and the call to try them on; `fresh` repeats earlier trials."""

    problem: Problem
    configs: ConfigSpace
    call: LaunchCall
    fresh: bool = False
    replace: bool = False


class SearchResult(NamedTuple):
    """What a search found, what it measured, and how long it took."""

    decision: Decision
    timings: Mapping[Any, Any]
    seconds: float


def search_call(tuner: CanBeSearched, session: Session, request: SearchRequest) -> SearchResult:
    """Searches now, and restores the arguments."""
    problem, configs, call = request.problem, request.configs, request.call
    refuse_conflicts([configs.to_triton(configs.default)], call.kwargs)
    started, options = time.time(), tuner.options
    evaluator = _make_evaluator(tuner, session, request)
    if options.space is not None:
        seeds = load_seeds(options.seeds, problem.space, problem.key.signature.dims)
        problem = msgspec.structs.replace(problem, seeds=seeds)
    try:
        attempt = evaluator if isinstance(evaluator, WorkerAttempt) or evaluator.workload.races else Unraced(evaluator)
        budget = _budget(options, session, configs)
        decision = session.tune(problem, attempt, budget=budget, fresh=request.fresh, replace=request.replace)
    except NothingWorked as error:
        raise NothingWorked(str(error)) from evaluator.first_error
    finally:
        evaluator.close()
    chosen = configs.to_triton(decision.config).all_kwargs()
    tuner.pre_hook({**call.named, **call.kwargs, **chosen}, reset_only=True)
    return SearchResult(decision, evaluator.timings, time.time() - started)


def _make_evaluator(
    tuner: CanBeSearched, session: Session, request: SearchRequest
) -> ObservedEvaluator | WorkerAttempt:
    """Returns what tries configs: in a worker if that is wanted and possible, else in this process, which is said."""
    options = workload_options(tuner, session, request.configs)
    if tuner.options.worker:
        try:
            return start_attempt(tuner, request, options, session.limits)
        except (CannotSend, BackendError) as error:
            _say_once(tuner, str(error))
    workload = TritonWorkload(tuner, request.call, request.configs.to_triton, options)
    return ObservedEvaluator(workload, verbose=adapter.is_verbose())


_said: WeakKeyDictionary[CanBeSearched, set[str]] = WeakKeyDictionary()
"""Why kernels were tuned in this process."""


def _say_once(tuner: CanBeSearched, reason: str) -> None:
    """Says why a kernel is not tuned in a worker, once for each reason."""
    if reason not in _said.setdefault(tuner, set()):
        _said[tuner].add(reason)
        log.warning("%s is tuned in this process, not in a worker: %s", tuner.base_fn.__name__, reason)


def workload_options(tuner: CanBeSearched, session: Session, configs: ConfigSpace) -> WorkloadOptions:
    """Returns how configs are evaluated: raced, unless there is a benchmark by the user or no clock."""
    races = tuner._do_bench is None and adapter.EventClock.is_available()
    name = "cpu" if adapter.is_interpreted(tuner.fn) else adapter.device_name()
    return WorkloadOptions(
        configs.default,
        tuner.options,
        bench=None if races else tuner.do_bench,
        lock=host_path(session.settings.cache_path / "leases" / f"{name}.lock"),
        judged=adapter.has_results(),
        fingerprints=session.settings.deterministic,
    )


def _budget(options: AutotuneOptions, session: Session, configs: ConfigSpace) -> Budget:
    """Returns the declared budget; else all of a list, or for a space the budget of the settings."""
    if options.budget:
        return Budget.parse(options.budget)
    if options.space is not None:
        return session.budget()
    return Budget(configs.space.size + 1, session.settings.seconds or None)
