"""The workload of a Triton kernel: configs are run in this process, since a GPU context cannot be forked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BackendError, TunewrightError
from tunewright.lazy_logging import LazyLogger
from tunewright.ports.candidate import WrongResult
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock
from tunewright.triton import adapter
from tunewright.triton.argument_sets import ArgumentSet, make_sets
from tunewright.triton.candidate import BenchmarkedCandidate, RacedCandidate
from tunewright.triton.configs import ToTritonConfig
from tunewright.triton.device_guard import DeviceGuard
from tunewright.triton.judging import TritonJudge, damage, describe_damage, launch_and
from tunewright.triton.launching import BoundLaunchCall, HasHooks, LaunchCall
from tunewright.triton.mutated_args import pointer_use
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.results import StoredResults
from tunewright.triton.tensors import Memories, Room

log = LazyLogger(__name__)


SCALE_DRAWS = 3
"""Draws by which it is found out how large results are."""


class WorkloadOptions(msgspec.Struct, frozen=True):
    """How configs of a call are evaluated: the default config, how results are checked, a benchmark if configs are not
    raced, the lock of the device, whether results are judged, and whether they get fingerprints.
    """

    default: Config
    check: AutotuneOptions = AutotuneOptions()
    bench: Callable[..., Any] | None = None
    lock: Path | None = None
    judged: bool = True
    fingerprints: bool = False


class TritonWorkload:
    """A call of a kernel: its sets of arguments, and what a launch should store in them.

    `error` is the latest error of a config, `avoided` are configs that must not run.
    `close` must be called in the end, however that comes.
    """

    def __init__(self, tuner: HasHooks, call: LaunchCall, to_triton: ToTritonConfig, options: WorkloadOptions) -> None:
        self._tuner, self.to_triton, self.options = tuner, to_triton, options
        self.name = str(tuner.base_fn.__name__)
        self.guard = DeviceGuard(self.name, has_device=not adapter.is_interpreted(tuner.fn))
        self.guard.wait_for_earlier_work()
        if self.races:
            self._reserve_buffer()
        room = Room(adapter.room_for_copies()) if options.judged else None
        self.sets = make_sets(tuner.fn, call, pointer_use(tuner.fn), room)
        self.judge = TritonJudge(options.check, room) if room else None
        self.error: Exception | None = None
        self.late_error: Exception | None = None
        self.avoided: Collection[Config] = ()
        self._authority: Config | None = None  # whose results are the expected ones, if there is no reference
        self._failed_for_others: dict[Config, Exception] = {}
        self._distrusted: dict[Config, Exception] = {}
        self._is_prepared = self._is_studied = not options.judged

    @property
    def races(self) -> bool:
        """Whether configs are raced, or else measured one by one by a benchmark."""
        return self.options.bench is None

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return Memories(self.sets[0].tensors).nbytes if self.sets else 0

    @property
    def lock(self) -> Path | None:
        """The lock file of the device."""
        return self.options.lock

    @property
    def oracle_seconds(self) -> float:
        """About how long the expected results of new contents take."""
        return self.judge.seconds if self.judge else 0.0

    @cached_property
    def clock(self) -> adapter.EventClock:
        """The events of the device."""
        return adapter.EventClock()

    def gpu_complaints(self) -> list[str]:
        """Returns what disturbs the card now."""
        return [] if adapter.is_interpreted(self._tuner.fn) else adapter.gpu_complaints()

    def _reserve_buffer(self) -> None:
        """Makes the buffer that flushes caches, before the copies, which take a part of what is left."""
        try:
            _ = self.clock
        except RuntimeError as error:  # torch's out-of-memory error
            what = "there is no memory for the buffer that flushes the caches of the device"
            advice = "Free some, or tune before the rest of the program takes it"
            raise BackendError(f"{self.name}: {what}: {error}. {advice}.") from error

    @contextmanager
    def noting_errors(self, config: Config) -> Iterator[None]:
        """Notes an error, since users are shown it itself, whose turn it was, and whether the device still works."""
        try:
            self.guard.begin(config)
            yield
        except Exception as error:
            self.error = error
            if self.guard.running not in (config, None):
                self._failed_for_others[self.guard.running] = error
            self.guard.note(error)
            raise

    def prepare(self) -> None:
        """Computes the first expected results. Raises BackendError or SignatureError if the reference fails."""
        if self._is_prepared or self.judge is None:
            return
        with exclusive_lock(self.lock):
            try:
                if self.options.check.reference is not None:
                    self.judge.expected(self.sets[0], 0)
                if self.options.default not in self.avoided:
                    self._study(self.options.default, "the default config")
            except Exception as error:
                if isinstance(error, TunewrightError) and not isinstance(error, WrongResult):
                    raise
                # Its trial will say so; then the first config that works is studied.
                self.guard.note(error)
                log.info("%s: the default config fails: %s: %s", self.name, type(error).__name__, error)
            finally:
                self.settle()
        if self.guard.lost is not None:
            raise self.guard.lost
        self._is_prepared = True

    def renew(self) -> None:
        """Changes what draws will be; the arguments stay where they are."""
        for arguments in self.sets:
            arguments.contents.seed = secrets.randbits(64)
        if self.judge:
            self.judge.renew()

    def build(self, config: Config) -> Any:
        """Returns Triton's config, compiled; a benchmark compiles it itself."""
        triton_config = self.to_triton(config)
        if self.races:
            with self.noting_errors(config):
                self._bind(self.sets[0], config, triton_config).compile()
        return triton_config

    def load(self, config: Config, artifact: Any) -> RacedCandidate | BenchmarkedCandidate:
        """Launches a config once, or runs its benchmark."""
        with self.noting_errors(config):
            if (error := self._distrusted.get(config)) is not None:
                raise error
            self.sets[0].reset(0)
            launches = [self._bind(arguments, config, artifact) for arguments in self.sets]
            candidate: RacedCandidate | BenchmarkedCandidate
            if self.options.bench is None:
                candidate = RacedCandidate(self, config, launches, self.clock)
            else:
                candidate = BenchmarkedCandidate(self, config, launches, self.options.bench)
            if not self._is_studied:
                self._study(config, "the first config that works")
        return candidate

    def _bind(self, arguments: ArgumentSet, config: Config, triton_config: Any) -> BoundLaunchCall:
        """Returns the launch of a config on a set of arguments; before it, the guard learns whose turn it is."""
        return BoundLaunchCall(self._tuner, arguments.call, triton_config, partial(self.guard.begin, config))

    def settle(self) -> None:
        """Waits until all launches have ended, and restores the original contents of all arguments.

        So an error, which is then the `late_error`, is known while it is clear whose it is. On a device that is lost
        nothing can be restored.
        """
        self.late_error = None
        try:
            self.guard.begin(None)
            for arguments in self.sets:
                arguments.restore()
        except Exception as error:  # noqa: BLE001 - the error of the last config, which its trial takes in
            self.guard.note(error)
            self.late_error = error

    def close(self) -> None:
        """Restores the arguments, and lets go of all copies, buffers and errors: cycles would keep their memory."""
        self.settle()
        error, self.late_error = self.late_error, None
        self.sets.clear()
        if self.judge is not None:
            self.judge.close()
        self.__dict__.pop("clock", None)
        self.error = None
        self._failed_for_others.clear()
        self._distrusted.clear()
        if error is not None and self.guard.lost is None:
            raise error

    def _study(self, config: Config, by: str) -> None:
        """Finds out by a config what launches overwrite and whether they work on copies of the arguments."""
        assert self.judge is not None
        triton_config = self.to_triton(config)

        def bind(arguments: ArgumentSet) -> BoundLaunchCall:
            return self._bind(arguments, config, triton_config)

        own, judge = self.sets[0], self.judge
        results: list[StoredResults] = []
        own.reset(0)
        launch_and(bind(own), lambda: results.append(judge.stored_by(own, by)))
        unprotected = self._find_unprotected(bind(own))
        overwritten: list[frozenset[str]] = []
        own.reset(0)
        own.poison_unread()
        launch_and(bind(own), lambda: overwritten.append(own.find_overwritten()))
        if len(self.sets) > 1 and not self._works_on(self.sets[1], bind, results[0]):
            del self.sets[1:]
        for arguments in self.sets:
            arguments.overwritten, arguments.unprotected = overwritten[0], unprotected
        for problem in map(damage, self.sets):
            if problem:
                raise WrongResult(problem)
        if self.options.check.reference is None:
            self.judge.compare_with(bind, by)
            self._authority = config
        self.judge.expected(own, 0)
        self.renew()
        self._is_studied = True

    def _find_unprotected(self, launch: BoundLaunchCall) -> frozenset[str]:
        """Returns what a launch has changed beside its results, which is no damage.

        Inputs may be changed by hooks, and by stores to addresses in memory. Raises WrongResult if there are none.
        """
        own = self.sets[0]
        changed = own.repair()
        may_change = launch.has_hooks or not own.has_known_stores
        if not may_change and (problem := describe_damage([name for name in changed if name in own.tensors])):
            raise WrongResult(problem)
        return frozenset(changed)

    def distrust_failed(self) -> bool:
        """Takes in that configs failed in the trials or races of others; returns whether these must be repeated.

        A config that failed so is not run any more, and no other is compared with it.
        """
        failed, self._failed_for_others = self._failed_for_others, {}
        for config, error in failed.items():
            log.warning("%s: %s fails in the trial of another: %s: %s", self.name, config, type(error).__name__, error)
            if config == self._authority and self.judge is not None:
                self.judge.compare_with(None, "")
                self._authority, self._is_studied = None, False
        self._distrusted |= failed
        return bool(failed)

    def _works_on(
        self, copy: ArgumentSet, bind: Callable[[ArgumentSet], BoundLaunchCall], expected: StoredResults
    ) -> bool:
        """Whether a launch on the copied arguments stores the same; not if it finds others by their addresses."""
        assert self.judge is not None
        problems: list[str | None] = []
        try:
            self._learn_scales(copy, bind)
            self.judge.share_scales(expected)
            copy.reset(0)
            launch_and(bind(copy), lambda: problems.append(expected.mismatch(copy.stored)))
        except Exception as error:  # noqa: BLE001 - it worked on the caller's own arguments
            problems.append(f"{type(error).__name__}: {error}")
        if problems[-1]:
            log.info("%s: its arguments are not copied, since results would differ: %s", self.name, problems[-1])
        return problems[-1] is None

    def _learn_scales(self, copy: ArgumentSet, bind: Callable[[ArgumentSet], BoundLaunchCall]) -> None:
        """Finds out how large results are on other contents: they may be near zero on the caller's own by chance."""
        judge = self.judge
        assert judge is not None
        for draw in range(1, 1 + SCALE_DRAWS if copy.contents.can_change else 0):
            copy.reset(draw)
            launch_and(bind(copy), lambda: judge.share_scales(judge.stored_by(copy, "")))
