"""The tuned Triton kernel: a subclass of Triton's `Autotuner` that looks decisions up in a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import NothingWorked, SpaceError
from tunewright.kernel.seeds import load_seeds
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem
from tunewright.pools.kernel_loader import importable_target, is_lookup_only
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.stores.fallback import SAME_QUESTION_TIERS
from tunewright.stores.network_files import host_path
from tunewright.stores.statistics import MissRecord
from tunewright.triton import adapter, deferring, releases
from tunewright.triton.autotuner_cache import AutotunerCache
from tunewright.triton.cache_preload import count_compiles, preload_triton_cache
from tunewright.triton.configs import (
    MAX_LISTED_CONFIGS,
    ConfigSpace,
    restrict_to_device,
    space_from_configs,
    space_from_knobs,
)
from tunewright.triton.dispatch_key import MAX_ENTRIES, DispatchTable, make_dispatch_table
from tunewright.triton.keys import KeyBuilder
from tunewright.triton.launching import LaunchCall, refuse_conflicts
from tunewright.triton.observed_evaluator import ObservedEvaluator, Unraced
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.reporting import recorded_timings, report_decision
from tunewright.triton.resource_pruning import prune_by_resources
from tunewright.triton.workload import TritonWorkload, WorkloadOptions

log = LazyLogger(__name__)


class PreparedLaunch(NamedTuple):
    """What a cached launch needs: a config and its keyword arguments; if not plain, it has hooks or is counted."""

    config: Any
    options: dict[str, Any]
    is_plain: bool = True
    run_counted: Callable[[Any, Any], Any] | None = None


class TritonTuner(adapter.Autotuner):  # type: ignore[misc, name-defined, valid-type, unused-ignore]
    """A kernel that is launched with its best config; it has all attributes and methods of Triton's `Autotuner`."""

    def __init__(self, fn: Any, stock_options: Mapping[str, Any], options: AutotuneOptions) -> None:
        releases.require_supported()
        self._local = threading.local()
        self._lock = threading.RLock()
        self._tables: dict[tuple[Any, ...], DispatchTable] = {}
        self._launches: dict[tuple[Any, ...], PreparedLaunch] = {}
        self._timings: Any = None
        self._serial_session: tuple[Session, Session] | None = None
        self._preloaded_session: Session | None = None
        self.options, self.space = options, options.space
        self._declared_space = None if options.space is None else space_from_knobs(options.space)
        stock = {"reset_to_zero": None, "restore_value": None, **stock_options}
        stock["key"] = () if stock.get("key") is None else stock["key"]
        stock["configs"] = self._config_list(stock.get("configs"))
        super().__init__(fn, fn.arg_names, **stock)
        self.key = KeyBuilder(fn, self.keys, options, own_clock=self._do_bench is not None)
        self._decided: list[Decision] = []
        self._specialized = {
            place: param
            for number, param in enumerate(self.key.params)
            for place in (number, param.name)
            if not param.constexpr and param.name not in self.keys
        }

    def _config_list(self, configs: Sequence[Any] | None) -> Sequence[Any] | None:
        """Returns the configs that Triton shows: the declared list, or those of a space that is not too large."""
        if self._declared_space is None:
            return configs
        if configs:
            raise SpaceError("pass configs= or space=, not both")
        declared = self._declared_space
        try:
            is_small = declared.space.size <= MAX_LISTED_CONFIGS
        except SpaceError:  # too large to be counted
            is_small = False
        return [declared.to_triton(config) for config in (declared.space if is_small else [declared.default])]

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The arguments by name of the call that this thread is tuning; None outside of tuning."""
        return getattr(self._local, "nargs", None)

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        self._local.nargs = value

    @property
    def cache(self) -> AutotunerCache:
        """Decisions of this process by Triton's key, the values of `key=` and the dtypes; may be edited."""
        return self._cache

    @cache.setter
    def cache(self, value: Mapping[Any, Any]) -> None:
        self._cache = AutotunerCache(value, self.forget)

    def forget(self) -> None:
        """Forgets what calls are launched with, so that they are looked up again."""
        with self._lock:
            self._tables.clear()
            self._launches.clear()

    @property
    def configs_timings(self) -> dict[Any, Any]:
        """Milliseconds by config of the latest decision; infinite for configs that failed."""
        if self._timings is None:
            raise AttributeError("configs_timings: no call has been tuned yet")
        if callable(self._timings):
            self._timings = self._timings()
        timings: dict[Any, Any] = self._timings
        return timings

    @property
    def session(self) -> Session:
        """The session passed to `autotune`, else the session of the process."""
        return self.options.session or current_session()

    def target(self) -> str | None:
        """Returns where another process finds this kernel: `module:name` or `script.py:name`; None if nowhere."""
        return importable_target(self, self.base_fn)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch = self._launch
        return lambda *args, **kwargs: launch(args, kwargs, grid, False)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launches with the config for calls like this one; the first of them tunes or looks it up."""
        return self._launch(args, kwargs, grid, warmup)

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """Launches from the cache: the types of the arguments select a dispatch table, their dispatch key an entry."""
        try:
            types = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else tuple(map(type, args))
            key_of, entries = self._tables[types]
            prepared = entries[key_of(args, kwargs)]
        except (KeyError, TypeError):
            prepared = None
        if prepared is None:  # outside of the handler, so that errors are not chained to its KeyError
            prepared = self._prepare(args, kwargs, {"grid": grid, "warmup": warmup})
        self.best_config = prepared.config
        if prepared.is_plain:
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **prepared.options)
        return self._launch_with_hooks(prepared, args, {"grid": grid, "warmup": warmup, **kwargs})

    def _launch_with_hooks(self, prepared: PreparedLaunch, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launches a config that has a hook, or whose calls are counted."""
        current = {**kwargs, **prepared.options}
        if prepared.config.pre_hook is not None:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                prepared.config.pre_hook({**self.nargs, **current})
            finally:
                self.nargs = None
        return prepared.run_counted(args, current) if prepared.run_counted else self.fn.run(*args, **current)

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], launch: Mapping[str, Any]) -> PreparedLaunch:
        """Returns the launch for calls like this one; resolved once per dispatch key."""
        types = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        with self._lock:
            table = self._tables.get(types) or make_dispatch_table(args, kwargs, self._specialized)
            try:
                dispatch_key = table.key_of(args, kwargs)
                entry: PreparedLaunch | None = table.entries.get(dispatch_key)
            except TypeError:  # an argument that cannot be hashed
                dispatch_key = entry = None
            if entry is not None:
                return entry
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                prepared, is_final = self._decide(LaunchCall(args, {**kwargs, **launch}, self.nargs), kwargs)
            finally:
                self.nargs = None
            if is_final and dispatch_key is not None:
                self._tables[types] = table
                table.insert(dispatch_key, prepared)
            return prepared

    def _decide(self, call: LaunchCall, kwargs: Mapping[str, Any]) -> tuple[PreparedLaunch, bool]:
        """Returns what to launch, and whether that is final."""
        self._preload()
        if len(self.configs) == 1 and self._declared_space is None:
            return _prepared_launch(self.configs[0]), True
        named = {name: value for name, value in {**call.named, **kwargs}.items() if name in self.arg_names}
        triton_key = self._triton_key(named)
        if (user_config := self.cache.user_config(triton_key)) is not None:
            return _prepared_launch(user_config), True
        signature = self.key.signature(named)
        device = 0 if adapter.is_interpreted(self.fn) else adapter.current_device()
        launch_key = device, signature.args, *signature.dims.items()
        if (prepared := self._launches.get(launch_key)) is None:
            configs = self._config_space(call)
            if configs.is_single:
                prepared, is_final = _prepared_launch(configs.to_triton(configs.default)), True
            else:
                prepared, is_final = self._resolve(configs, call, named, triton_key)
            if not is_final:
                return prepared, False
            while len(self._launches) >= MAX_ENTRIES:
                self._launches.pop(next(iter(self._launches)))
            self._launches[launch_key] = prepared
        self.cache.record(triton_key, prepared.config)
        return prepared, True

    def _preload(self) -> None:
        """Fills Triton's cache from the store, once per session."""
        if self._preloaded_session is not self.session and not adapter.is_interpreted(self.fn):
            self._preloaded_session = self.session
            count_compiles()
            preload_triton_cache(self.session, self.key.name)

    def _triton_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns the key that Triton's own autotuner makes of a call."""
        dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
        return (*(named[name] for name in self.keys if name in named), *dtypes)

    def _config_space(self, call: LaunchCall) -> ConfigSpace:
        """Returns the configs of this call: the space, or the list after pruning."""
        if self._declared_space is None or self.early_config_prune or self.perf_model:
            return space_from_configs(self.prune_configs(dict(call.kwargs)))
        if adapter.is_interpreted(self.fn):
            return self._declared_space
        space, device = self._declared_space.space, self.key.device()
        if self.options.model:
            space = prune_by_resources(self, space, device, call, self.session)
        return space_from_knobs(restrict_to_device(space, device))

    def _resolve(
        self, configs: ConfigSpace, call: LaunchCall, named: Mapping[str, Any], triton_key: Any
    ) -> tuple[PreparedLaunch, bool]:
        """Returns the stored, tuned or default config of a call as its mode says, and whether that is final."""
        session = self._tuning_session()
        bucketed, exact = (self.key.signature(named, bucket) for bucket in (self.key.buckets, None))
        key = self.key.key(bucketed)
        exact_key = None if exact == bucketed else msgspec.structs.replace(key, signature=exact)
        problem = Problem(key, configs.space, configs.default, exact=exact_key)
        is_loading = is_lookup_only()  # comes first, since it may end the loading of a script
        decision = session.lookup_or_policy(problem)
        if decision is None and (
            reason := "its module is only being loaded" if is_loading else self._reason_not_to_tune(call)
        ):
            log.info("%s is not tuned: %s", key.kernel, reason)
            return _prepared_launch(configs.to_triton(session.lookup(problem).config)), adapter.is_interpreted(self.fn)
        if decision is None and (substitute := self._substitute(session, problem)) is not None:
            return _prepared_launch(configs.to_triton(substitute.config)), True
        if decision is None:
            tuned: list[Any] = []
            decision = session.tune_once(problem, lambda: self._tune(session, problem, configs, call, tuned))
            self._decided = [*self._decided[1 - MAX_ENTRIES :], decision]
            self._report(problem, configs, decision, triton_key, is_hit=not tuned)
        elif decision.tier in SAME_QUESTION_TIERS:
            self._report(problem, configs, decision, triton_key, is_hit=True)
        prepared = _prepared_launch(configs.to_triton(decision.config))
        if session.mode is Mode.RECORD and decision.tier not in SAME_QUESTION_TIERS:
            prepared = self._count_calls(session, problem, prepared)
        return prepared, True

    def _substitute(self, session: Session, problem: Problem) -> Decision | None:
        """Returns what answers a call that must not tune now, and notes its key for later; None if it may tune."""
        sibling = deferring.find_sibling(session, problem, self.key, self._decided)
        if not deferring.must_defer(self.options.tune_on, has_sibling=sibling is not None):
            return None
        deferring.note_for_later(session, problem, self, self.target() or "")
        return session.lookup(problem) if sibling is None else session.serve(problem, sibling)

    def _report(
        self, problem: Problem, configs: ConfigSpace, decision: Decision, triton_key: Any, *, is_hit: bool
    ) -> None:
        """Reports a decision where Triton does."""
        if is_hit:
            self._timings = lambda: recorded_timings(self.session, problem, configs)
        report_decision(self, configs, decision, triton_key, is_hit=is_hit)

    def _reason_not_to_tune(self, call: LaunchCall) -> str | None:
        """Returns why nothing can be measured now; None if it can."""
        if call.kwargs["warmup"]:
            return "the call is a warm-up without arguments"
        if adapter.is_interpreted(self.fn):
            return None if self._do_bench else "times in the interpreter mean nothing"
        return "a graph is being captured" if adapter.is_capturing() else None

    def _tuning_session(self) -> Session:
        """Returns the session with the serial pool, since a GPU context cannot be forked."""
        session = self.session
        if session.mode is not Mode.TUNE:
            return session
        if self._serial_session is None or self._serial_session[0] is not session:
            strategy = self.options.strategy or (
                "exhaustive" if self._declared_space is None else session.settings.strategy
            )
            settings = msgspec.structs.replace(session.settings, pool="serial", strategy=strategy)
            serial = Session(settings, store=session.store)
            serial.counts, serial.chosen, serial.listeners = session.counts, session.chosen, session.listeners
            self._serial_session = session, serial
        return self._serial_session[1]

    def _tune(
        self, session: Session, problem: Problem, configs: ConfigSpace, call: LaunchCall, tuned: list[Any]
    ) -> Decision:
        """Searches now, and restores the arguments."""
        refuse_conflicts([configs.to_triton(configs.default)], call.kwargs)
        started = time.time()
        workload = TritonWorkload(self, call, configs.to_triton, self._workload_options(session, configs))
        evaluator = ObservedEvaluator(workload, verbose=adapter.is_verbose())
        if self._declared_space is not None:
            seeds = load_seeds(self.options.seeds, problem.space, problem.key.signature.dims)
            problem = msgspec.structs.replace(problem, seeds=seeds)
        try:
            attempt = evaluator if workload.races else Unraced(evaluator)
            decision = session.tune(problem, attempt, budget=self._budget(session, configs), replace=False)
        except NothingWorked as error:
            raise NothingWorked(str(error)) from evaluator.first_error
        finally:
            evaluator.close()
        tuned.append(decision)
        self._timings, self.bench_time = evaluator.timings, time.time() - started
        self.pre_hook({**call.named, **call.kwargs, **configs.to_triton(decision.config).all_kwargs()}, reset_only=True)
        return decision

    def _workload_options(self, session: Session, configs: ConfigSpace) -> WorkloadOptions:
        """Returns how configs are evaluated: raced, unless there is a benchmark by the user or no clock."""
        races = self._do_bench is None and adapter.EventClock.is_available()
        return WorkloadOptions(
            configs.default,
            self.options,
            bench=None if races else self.do_bench,
            lock=host_path(session.settings.cache_path / "leases" / f"{self._lock_name()}.lock"),
            judged=adapter.has_results(),
            fingerprints=session.settings.deterministic,
        )

    def _lock_name(self) -> str:
        return "cpu" if adapter.is_interpreted(self.fn) else adapter.device_name()

    def _budget(self, session: Session, configs: ConfigSpace) -> Budget:
        """Returns the declared budget; else all of a list, or for a space the budget of the settings."""
        if self.options.budget:
            return Budget.parse(self.options.budget)
        return (
            Budget(configs.space.size + 1, session.settings.seconds or None)
            if not self._declared_space
            else session.budget()
        )

    def _count_calls(self, session: Session, problem: Problem, prepared: PreparedLaunch) -> PreparedLaunch:
        """Returns the launch with its calls counted and timed, to find what is worth tuning."""
        miss = MissRecord(problem.key, 0, 0.0, self.target() or "", "")
        run = self.fn.run
        run_counted = session.misses.count_calls(miss, lambda args, kwargs: run(*args, **kwargs))
        return prepared._replace(is_plain=False, run_counted=run_counted)


def _prepared_launch(config: Any) -> PreparedLaunch:
    return PreparedLaunch(config, config.all_kwargs(), config.pre_hook is None)
