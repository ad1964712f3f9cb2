"""The tuned Triton kernel: a subclass of Triton's `Autotuner` that looks decisions up in a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tunewright.errors import BackendError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.pools.kernel_loader import importable_target, is_lookup_only
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.stores.fallback import SAME_QUESTION_TIERS
from tunewright.stores.statistics import MissRecord
from tunewright.triton import adapter, deferring, dynamo, peers, releases
from tunewright.triton.autotuner_cache import AutotunerCache
from tunewright.triton.cache_preload import count_compiles, preload_triton_cache
from tunewright.triton.configs import (
    ConfigSpace,
    configs_to_show,
    restrict_to_device,
    space_from_configs,
    space_from_knobs,
)
from tunewright.triton.dispatch_key import MAX_ENTRIES, NO_TABLE, DispatchTable, make_dispatch_table
from tunewright.triton.keys import KeyBuilder
from tunewright.triton.launching import LaunchCall, PreparedLaunch, prepared_launch
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.reporting import recorded_timings, report_decision
from tunewright.triton.resource_pruning import prune_by_resources
from tunewright.triton.searching import SearchRequest, search_call

log = LazyLogger(__name__)


class TritonTuner(adapter.Autotuner):  # type: ignore[misc, name-defined, valid-type, unused-ignore]
    """A kernel that is launched with its best config; it has all attributes and methods of Triton's `Autotuner`."""

    def __init__(self, fn: Any, stock_options: Mapping[str, Any], options: AutotuneOptions) -> None:
        releases.require_supported()
        self._local = threading.local()
        self._lock = threading.RLock()
        self._tables: dict[tuple[Any, ...], DispatchTable] = {}
        self._recent_table = NO_TABLE
        self._launches: dict[tuple[Any, ...], PreparedLaunch] = {}
        self._timings: Any = None
        self._serial_session: tuple[Session, Session] | None = None
        self._preloaded_session: Session | None = None
        self._latest_session: Session | None = None
        self.options, self.space = options, options.space
        self._declared_space = None if options.space is None else space_from_knobs(options.space)
        stock = {"reset_to_zero": None, "restore_value": None, **stock_options}
        stock["key"] = () if stock.get("key") is None else stock["key"]
        stock["configs"] = configs_to_show(stock.get("configs"), self._declared_space)
        super().__init__(fn, fn.arg_names, **stock)
        self.key = KeyBuilder(fn, self.keys, options, own_clock=self._do_bench is not None)
        self._decided: list[Decision] = []
        self._specialized = {
            place: param
            for number, param in enumerate(self.key.params)
            for place in (number, param.name)
            if not param.constexpr and param.name not in self.keys
        }

    @property
    def configs(self) -> Sequence[Any]:
        """The configs that Triton shows; torch.compile asks for those of a call by `configs_to_compile`."""
        dynamo.attach_if_loaded()
        return self._listed_configs

    @configs.setter
    def configs(self, value: Sequence[Any]) -> None:
        self._listed_configs = value

    def configs_to_compile(self, named: Mapping[str, Any] | None) -> Sequence[Any] | None:
        """Returns the configs for a graph with a call like this one, the decided one first; None means all of a list.

        `named` has descriptions of the arguments; it is None if they are not known.
        """
        declared = self._declared_space
        if declared is None:
            configs = space_from_configs(self.configs)
        else:
            configs = space_from_knobs(restrict_to_device(declared.space, self.key.device()))
        if named is None or configs.is_single:
            return None if declared is None else [configs.to_triton(configs.default)]
        with self._lock:
            self._follow_session()
            session, problem = self._tuning_session(), self._problem(configs, named)
            decision = session.lookup_or_policy(problem) or self._substitute(session, problem)
            if decision is not None:
                return [configs.to_triton(decision.config)]
            deferring.note_for_later(session, problem, self, self.target() or "")
            likely = deferring.likely_configs(session, problem)
        if declared is None and len(likely) == 1:
            return None
        return [configs.to_triton(config) for config in likely]

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
            self._recent_table = NO_TABLE
            self._launches.clear()

    def _follow_session(self) -> None:
        """Forgets what an earlier session decided: the store of this one may say something else, or nothing."""
        if self._latest_session is not self.session:
            self._latest_session, self._decided = self.session, []
            self.forget()

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

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launches with the config for calls like this one; the first of them tunes or looks it up."""
        return self.__getitem__(grid, warmup)(*args, **kwargs)

    def __getitem__(self, grid: Any, warmup: bool = False) -> Callable[..., Any]:
        """Returns a function that launches with this grid; it is one frame, since every launch passes through it."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            """Launches from the cache: the table of the latest call, if types are as there; else the one for them."""
            try:
                _, entries, key_of = self._recent_table
                prepared = self._find_prepared(args, kwargs) if kwargs else entries[key_of(args)]
            except (KeyError, TypeError, ValueError):
                prepared = None if kwargs else self._find_prepared(args, kwargs)
            if prepared is None:  # outside of the handler, so that errors are not chained to its KeyError
                prepared = self._prepare(args, kwargs, {"grid": grid, "warmup": warmup})
            self.best_config, options, is_plain, _ = prepared
            if is_plain and not kwargs:
                return self.fn.run(*args, grid=grid, warmup=warmup, **options)
            if is_plain:
                return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **options)
            return self._launch_with_hooks(prepared, args, {"grid": grid, "warmup": warmup, **kwargs})

        return launch

    def _find_prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreparedLaunch | None:
        """Returns the launch for calls like this one: types select a table, the dispatch key an entry of it."""
        try:
            table = self._tables[*map(type, args), *kwargs, *map(type, kwargs.values())]
            prepared: PreparedLaunch = table.entries[table.key_of(args, kwargs)]
        except (KeyError, TypeError):
            return None
        self._recent_table = table
        return prepared

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
            self._follow_session()
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
            return prepared_launch(self.configs[0]), True
        named = {name: value for name, value in {**call.named, **kwargs}.items() if name in self.arg_names}
        triton_key = self._triton_key(named)
        if (user_config := self.cache.user_config(triton_key)) is not None:
            return prepared_launch(user_config), True
        signature = self.key.signature(named)
        device = 0 if adapter.is_interpreted(self.fn) else adapter.current_device()
        launch_key = device, signature.args, *signature.dims.items()
        if (prepared := self._launches.get(launch_key)) is None:
            configs = self._config_space(call)
            if configs.is_single:
                prepared, is_final = prepared_launch(configs.to_triton(configs.default)), True
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

    def _problem(self, configs: ConfigSpace, named: Mapping[str, Any]) -> Problem:
        """Returns what is asked for a call with these arguments."""
        bucketed, exact = (self.key.signature(named, bucket) for bucket in (self.key.buckets, None))
        key = self.key.key(bucketed)
        exact_key = None if exact == bucketed else msgspec.structs.replace(key, signature=exact)
        return Problem(key, configs.space, configs.default, exact=exact_key)

    def _resolve(
        self, configs: ConfigSpace, call: LaunchCall, named: Mapping[str, Any], triton_key: Any
    ) -> tuple[PreparedLaunch, bool]:
        """Returns the stored, tuned or default config of a call as its mode says, and whether that is final."""
        session, problem = self._tuning_session(), self._problem(configs, named)
        is_loading = is_lookup_only()  # comes first, since it may end the loading of a script
        decision = session.lookup_or_policy(problem)
        if decision is None and (
            reason := "its module is only being loaded" if is_loading else self._reason_not_to_tune(call)
        ):
            log.info("%s is not tuned: %s", problem.key.kernel, reason)
            return prepared_launch(configs.to_triton(session.lookup(problem).config)), adapter.is_interpreted(self.fn)
        if decision is None and self.options.peers:
            decision = self._tune_with_peers(session, problem, configs, call)
        if decision is None and (substitute := self._substitute(session, problem)) is not None:
            return prepared_launch(configs.to_triton(substitute.config)), True
        if decision is None:
            tuned: list[Any] = []
            decision = session.tune_once(
                problem, lambda: self._tune(session, SearchRequest(problem, configs, call), tuned)
            )
            self._decided = [*self._decided[1 - MAX_ENTRIES :], decision]
            self._report(problem, configs, decision, triton_key, is_hit=not tuned)
        elif decision.tier in SAME_QUESTION_TIERS:
            self._report(problem, configs, decision, triton_key, is_hit=True)
        prepared = prepared_launch(configs.to_triton(decision.config))
        if session.mode is Mode.RECORD and decision.tier not in SAME_QUESTION_TIERS:
            prepared = self._count_calls(session, problem, prepared)
        return prepared, True

    def _tune_with_peers(self, session: Session, problem: Problem, configs: ConfigSpace, call: LaunchCall) -> Decision:
        """Returns the decision of all ranks; the default if they do not tune in step."""
        try:
            if (group := peers.current_group()) is None:
                raise peers.PeersMissing("there is no torch.distributed job with several ranks")
            decision = peers.tune_in_step(group, problem, configs, self, call)
        except peers.PeersMissing as error:
            log.warning("%s talks to peers and is not tuned: %s", problem.key.kernel, error)
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        return session.store.put(decision)

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
            wait = peers.limit_wait(session.settings.tuning_wait_seconds)
            changes = {"pool": "serial", "strategy": strategy, "tuning_wait_seconds": wait}
            settings = msgspec.structs.replace(session.settings, **changes)
            serial = Session(settings, store=session.store)
            serial.counts, serial.chosen, serial.listeners = session.counts, session.chosen, session.listeners
            self._serial_session = session, serial
        return self._serial_session[1]

    def tune(self, *args: Any, grid: Any, fresh: bool = False, **kwargs: Any) -> Decision:
        """Searches for the best config of a call now, whatever is stored; reuses earlier trials unless `fresh`.

        Example: `kernel.tune(x, out, n, grid=(64,), fresh=True)`
        """
        with self._lock:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                call = LaunchCall(args, {**kwargs, "grid": grid, "warmup": False}, self.nargs)
                if reason := self._reason_not_to_tune(call):
                    raise BackendError(f"{self.key.name} cannot be tuned now: {reason}")
                named = {name: value for name, value in {**call.named, **kwargs}.items() if name in self.arg_names}
                configs, session = self._config_space(call), self._tuning_session()
                problem = self._problem(configs, named)
                result = search_call(self, session, SearchRequest(problem, configs, call, fresh=fresh, replace=True))
            finally:
                self.nargs = None
            self._timings, self.bench_time = result.timings, result.seconds
            self.forget()
        return result.decision

    def _tune(self, session: Session, request: SearchRequest, tuned: list[Any]) -> Decision:
        """Searches now, and restores the arguments."""
        result = search_call(self, session, request)
        tuned.append(result.decision)
        self._timings, self.bench_time = result.timings, result.seconds
        return result.decision

    def _count_calls(self, session: Session, problem: Problem, prepared: PreparedLaunch) -> PreparedLaunch:
        """Returns the launch with its calls counted and timed, to find what is worth tuning."""
        miss = MissRecord(problem.key, 0, 0.0, self.target() or "", "")
        run = self.fn.run
        run_counted = session.misses.count_calls(miss, lambda args, kwargs: run(*args, **kwargs))
        return prepared._replace(is_plain=False, run_counted=run_counted)
