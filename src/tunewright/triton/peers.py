"""Kernels that talk to other ranks while they run: all ranks tune them in step, or none does.

If one rank tried a config alone, it would wait for its peers for ever. So all ranks try the same configs in the same
order, each beginning when all are ready. What they agree by is the key-value store of torch.distributed, without
collective calls: nobody waits longer for another rank than `RANK_SECONDS`, and there is no leader.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from math import inf, isfinite
from typing import Any, NamedTuple, Protocol

from tunewright.errors import DeviceLost, StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Evidence, Problem
from tunewright.model.trial import median
from tunewright.spaces.config import Config
from tunewright.triton import adapter
from tunewright.triton.configs import ConfigSpace
from tunewright.triton.launching import BoundLaunchCall, HasHooks, LaunchCall
from tunewright.triton.mutated_args import tensors_to_restore
from tunewright.triton.snapshot import Snapshot

log = LazyLogger(__name__)

RANK_SECONDS = 60.0
"""How long a rank waits for others: well below the ten minutes after which NCCL's watchdog ends a job."""

MAX_CONFIGS = 64
"""Configs that ranks try in step; of more, none is tried."""

LAUNCHES = 7
_GO, _STOP = "go", "stop"


class KeyValueStore(Protocol):
    """What is used of a store of torch.distributed."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes: ...


class PeersMissing(StoreError):
    """Raised when another rank does not answer in time, or asks for something else."""


class RankGroup:
    """All ranks of a job, which exchange texts step by step; each step has its number."""

    def __init__(self, store: KeyValueStore, rank: int, size: int, seconds: float = RANK_SECONDS) -> None:
        self._store, self.rank, self.size, self._seconds = store, rank, size, seconds
        self._step = 0
        self._topic = ""

    def begin(self, topic: str, call: int) -> None:
        """Begins to talk about one topic, for the given time."""
        self._topic, self._step = f"tunewright peers {topic} {call}", 0

    def exchange(self, text: str) -> list[str]:
        """Returns what all ranks say in this step, in their order; waits for them for a limited time."""
        step = f"{self._topic} {self._step}"
        self._step += 1
        names = [f"{step} {rank}" for rank in range(self.size)]
        try:
            self._store.set(names[self.rank], text)
            verdict = self._settle(f"{step} verdict", names)
            if verdict == _GO:
                return [self._store.get(name).decode() for name in names]
        except RuntimeError as error:  # the base of torch's errors
            raise PeersMissing(f"the store of torch.distributed fails: {str(error).splitlines()[0]}") from error
        raise PeersMissing(f"another rank did not answer within {self._seconds:g} s")

    def _settle(self, name: str, names: list[str]) -> str:
        """Returns whether all ranks take this step: the first that knows says so for all, so that none goes alone."""
        try:
            self._store.wait(names, timedelta(seconds=self._seconds))
            proposed = _GO
        except RuntimeError:
            proposed = _STOP
        return self._store.compare_set(name, "", proposed).decode()


def current_group() -> RankGroup | None:
    """Returns the ranks of this job; None outside of torch.distributed, and for a single rank."""
    if (distributed := _distributed()) is None:
        return None
    from torch.distributed.distributed_c10d import _get_default_store  # noqa: PLC0415 - there is no public way

    store = _get_default_store()
    own = store.clone() if hasattr(store, "clone") else store
    return RankGroup(own, distributed.get_rank(), distributed.get_world_size())


def _distributed() -> Any:
    """Returns torch.distributed, if this process is one of several ranks."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized() or module.get_world_size() < 2:
        return None
    return module


def limit_wait(seconds: float) -> float:
    """Returns how long a process may wait for another that tunes: a rank must not keep its peers waiting."""
    return seconds if _distributed() is None else min(seconds, RANK_SECONDS)


class StepResult(NamedTuple):
    """A config and the seconds of the slowest rank; infinite if it failed on any."""

    config: Config
    seconds: float


_calls: dict[str, int] = {}
"""How often each key was tuned in step by this process; equal on all ranks that make the same calls."""


def tune_in_step(
    group: RankGroup, problem: Problem, configs: ConfigSpace, tuner: HasHooks, call: LaunchCall
) -> Decision:
    """Tries all configs on all ranks at once, and returns the decision, which is the same on all.

    Raises PeersMissing if ranks do not do the same in time; then none of them has a decision. Results are not compared:
    they depend on what peers send.
    """
    digest = problem.key.digest
    number = _calls[digest] = _calls.get(digest, 0) + 1
    candidates = list(_candidates(configs))
    group.begin(digest, number)
    names = " ".join(str(config) for config in candidates)
    if len(set(group.exchange(names))) > 1:
        raise PeersMissing("ranks would try different configs")
    snapshot = Snapshot(tensors_to_restore(tuner.fn, call.all_named))
    results = []
    for config in candidates:
        launch = BoundLaunchCall(tuner, call, configs.to_triton(config))
        results.append(StepResult(config, _try_in_step(group, launch, snapshot)))
    best = min(results, key=lambda result: result.seconds)
    if not isfinite(best.seconds):
        raise PeersMissing("no config works on all ranks")
    return _decision(problem, best, results, group.size)


def _candidates(configs: ConfigSpace) -> Iterator[Config]:
    if configs.space.size > MAX_CONFIGS:
        raise PeersMissing(
            f"{configs.space.size:,} configs are too many to be tried in step; declare at most {MAX_CONFIGS}"
        )
    yield configs.default
    yield from (config for config in configs.space if config != configs.default)


def _try_in_step(group: RankGroup, launch: BoundLaunchCall, snapshot: Snapshot) -> float:
    """Returns the seconds of a config on the slowest rank; a config that does not compile is launched on none."""
    compiled = _outcome(launch.compile)
    if any(group.exchange(compiled)):
        return inf
    times: list[float] = []
    outcome = _outcome(lambda: times.extend(_time(launch)))
    snapshot.restore()
    answers = group.exchange(outcome or str(median(times)))
    try:
        return max(map(float, answers))
    except ValueError:  # the failure of a rank
        return inf


def _time(launch: BoundLaunchCall) -> Sequence[float]:
    """Returns the seconds of some launches; all ranks make as many, since each waits for the others."""
    interface = adapter.device_interface()
    times = []
    for _ in range(LAUNCHES):
        start, end = interface.Event(enable_timing=True), interface.Event(enable_timing=True)
        launch.before()
        start.record()
        launch.run()
        end.record()
        launch.after()
        adapter.wait_for_device()
        times.append(start.elapsed_time(end) * 1e-3)
    return times[1:]


def _outcome(work: Callable[[], Any]) -> str:
    """Does some work, and returns what went wrong; empty if nothing did."""
    try:
        work()
    except DeviceLost:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _decision(problem: Problem, best: StepResult, results: Sequence[StepResult], size: int) -> Decision:
    default = next(result.seconds for result in results if result.config == problem.default)
    evidence = Evidence(
        best.seconds,
        best.seconds,
        best.seconds,
        default_seconds=default if isfinite(default) else None,
        trials=len(results),
        failures=sum(not isfinite(result.seconds) for result in results),
        clock=adapter.EventClock.name,
        when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        notes=(f"tuned by {size} ranks in step, by the slowest of them; results were not compared",),
    )
    return Decision(problem.key, best.config, evidence)
