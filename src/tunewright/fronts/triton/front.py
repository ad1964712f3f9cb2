"""Front: the kernel that users hold; called, inspected and nested as Triton's own autotuner is."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tunewright.backends.triton import adapter
from tunewright.engine.budget import Budget
from tunewright.errors import NothingWorked, SpaceError
from tunewright.fronts.seeds import seeds_of
from tunewright.fronts.triton.attempt import Benched, Call, Raced, Surroundings, quantiles, refuse_conflicts
from tunewright.fronts.triton.bringing import bring, listen
from tunewright.fronts.triton.checking import judge_of
from tunewright.fronts.triton.configs import MOST_LISTED, Menu, fitting, from_space, menu_of
from tunewright.fronts.triton.keys import Keys
from tunewright.fronts.triton.marks import MOST, Reader, reader
from tunewright.fronts.triton.modelling import modelled
from tunewright.fronts.triton.shown import Shown
from tunewright.fronts.triton.snapshot import Snapshot
from tunewright.fronts.triton.telling import Telling
from tunewright.fronts.triton.writes import tensors_to_restore
from tunewright.model.decision import Decision, Problem
from tunewright.model.trial import Timing
from tunewright.pools.loading import only_known_answers, target_of
from tunewright.remarks import Remarks
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.sharing.nearby import SAME
from tunewright.sharing.records import Want

log = Remarks(__name__)


class Ready(NamedTuple):
    """What a cached launch needs: a config, what it adds to a call, and how it is launched if not plainly."""

    config: Any
    options: dict[str, Any]
    plain: bool = True
    counted: Callable[[Any, Any], Any] | None = None


class TritonTuner(adapter.Autotuner):  # type: ignore[misc, name-defined, unused-ignore]
    """A kernel that knows its best config. Whatever Triton's `Autotuner` shows or takes, it shows and takes too."""

    def __init__(self, fn: Any, given: Mapping[str, Any], said: Telling) -> None:
        adapter.trusted()
        self._local = threading.local()
        self._lock = threading.RLock()
        self._readers: dict[tuple[Any, ...], Reader] = {}
        self._decided: dict[tuple[Any, ...], Ready] = {}
        self._timings: Any = None
        self._own: tuple[Session, Session] | None = None
        self._supplied: Session | None = None
        self.said, self.space = said, said.space
        self._whole = None if said.space is None else from_space(said.space)
        stock = {"key": (), "reset_to_zero": None, "restore_value": None, **given}
        stock["configs"] = self._listed(given.get("configs"))
        super().__init__(fn, fn.arg_names, **stock)
        self.key = Keys(fn, self.keys, said, own_clock=self._do_bench is not None)

    def _listed(self, configs: Sequence[Any] | None) -> Sequence[Any] | None:
        """The configs as Triton shows them: those given, or those of a space that is not too large."""
        if self._whole is None:
            return configs
        if configs:
            raise SpaceError("give configs= or space=, not both")
        try:
            few = self._whole.space.size <= MOST_LISTED
        except SpaceError:  # too large to be counted
            few = False
        return [self._whole.back(one) for one in (self._whole.space if few else [self._whole.default])]

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The arguments of the call under way in this thread, by name; None where nothing is being tuned."""
        return getattr(self._local, "nargs", None)

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        self._local.nargs = value

    @property
    def cache(self) -> Shown:
        """Decisions of this process by the values of `key=` and the dtypes, as Triton keeps them; may be edited."""
        return self._cache

    @cache.setter
    def cache(self, value: Mapping[Any, Any]) -> None:
        self._cache = Shown(value, self._forget)

    def _forget(self) -> None:
        with self._lock:
            self._readers.clear()
            self._decided.clear()

    @property
    def configs_timings(self) -> dict[Any, Any]:
        """What was measured for the latest decision: milliseconds by config; infinite where one failed."""
        if self._timings is None:
            raise AttributeError("configs_timings: nothing has been tuned yet")
        if callable(self._timings):
            self._timings = self._timings()
        known: dict[Any, Any] = self._timings
        return known

    @property
    def session(self) -> Session:
        """Its own session if it was given one, else the process's."""
        return self.said.session or current_session()

    def target(self) -> str | None:
        """Where another process finds this kernel: `module:name` or `script.py:name`; None if nowhere."""
        return target_of(self, self.base_fn)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        launch = self._launch
        return lambda *args, **kwargs: launch(args, kwargs, grid, False)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch with the config decided for calls like this; the first of them decides."""
        return self._launch(args, kwargs, grid, warmup)

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """A cached launch: the types of the arguments choose who reads them, and what is read is looked up."""
        try:
            kinds = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else tuple(map(type, args))
            read, found = self._readers[kinds]
            ready = found[read(args, kwargs)]
        except (KeyError, TypeError):
            ready = None
        if ready is None:  # outside of the handler, whose error is nobody's business
            ready = self._prepared(args, kwargs, {"grid": grid, "warmup": warmup})
        self.best_config = ready.config
        if ready.plain:
            return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **ready.options)
        return self._hooked(ready, args, {"grid": grid, "warmup": warmup, **kwargs})

    def _hooked(self, ready: Ready, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A launch that a hook goes before, or that is counted."""
        current = {**kwargs, **ready.options}
        if ready.config.pre_hook is not None:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                ready.config.pre_hook({**self.nargs, **current})
            finally:
                self.nargs = None
        return ready.counted(args, current) if ready.counted else self.fn.run(*args, **current)

    def _prepared(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], launch: Mapping[str, Any]) -> Ready:
        """What calls like this need: decided once, kept by what distinguishes them."""
        kinds = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        with self._lock:
            known = self._readers.get(kinds) or reader(args, kwargs)
            try:
                mark = known.read(args, kwargs)
                found: Ready | None = known.found.get(mark)
            except TypeError:  # an argument that cannot be hashed
                mark = found = None
            if found is not None:
                return found
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            try:
                ready, lasts = self._decide(Call(args, {**kwargs, **launch}, self.nargs), kwargs)
            finally:
                self.nargs = None
            if lasts and mark is not None:
                self._readers[kinds] = known
                known.keep(mark, ready)
            return ready

    def _decide(self, call: Call, kwargs: Mapping[str, Any]) -> tuple[Ready, bool]:
        """What to launch with, and whether that lasts."""
        self._supply()
        if len(self.configs) == 1 and self._whole is None:
            return _ready(self.configs[0]), True
        named = {name: value for name, value in {**call.named, **kwargs}.items() if name in self.arg_names}
        shown = self._shown_key(named)
        if (given := self.cache.given(shown)) is not None:
            return _ready(given), True
        signature = self.key.signature(named)
        number = 0 if adapter.is_interpreted(self.fn) else adapter.current_device()
        here = number, signature.args, *signature.dims.items()
        if (known := self._decided.get(here)) is None:
            menu = self._menu(call)
            if menu.is_single:
                known, lasts = _ready(menu.back(menu.default)), True
            else:
                known, lasts = self._answered(menu, call, named, shown)
            if not lasts:
                return known, False
            while len(self._decided) >= MOST:
                self._decided.pop(next(iter(self._decided)))
            self._decided[here] = known
        self.cache.note(shown, known.config)
        return known, True

    def _supply(self) -> None:
        """Once for each session: what its store brings goes where Triton looks for it."""
        if self._supplied is not self.session and not adapter.is_interpreted(self.fn):
            self._supplied = self.session
            listen()
            bring(self.session, self.key.name)

    def _shown_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The key that Triton's own autotuner would make of a call."""
        dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
        return (*(named[name] for name in self.keys if name in named), *dtypes)

    def _menu(self, call: Call) -> Menu:
        """What may be chosen for this call: the space, or the configs that are left after pruning."""
        if self._whole is None or self.early_config_prune or self.perf_model:
            return menu_of(self.prune_configs(dict(call.kwargs)))
        if adapter.is_interpreted(self.fn):
            return self._whole
        space, device = self._whole.space, self.key.device()
        if self.said.model:
            space = modelled(self, space, device, call, self.session)
        return from_space(fitting(space, device))

    def _answered(self, menu: Menu, call: Call, named: Mapping[str, Any], shown: Any) -> tuple[Ready, bool]:
        """The answer to a call: stored, tuned or default, as the mode and the moment say; and whether it lasts."""
        session = self._deciding()
        bucketed, exact = (self.key.signature(named, bucket) for bucket in (self.key.buckets, None))
        key = self.key.key(bucketed)
        own = None if exact == bucketed else msgspec.structs.replace(key, signature=exact)
        problem = Problem(key, menu.space, menu.default, exact=own)
        loading = only_known_answers()  # asked first, since it may end the loading of a script
        found = session.answer(problem)
        if found is None and (why := "this module is only being loaded" if loading else self._untimely(call)):
            log.info("%s: %s, so nothing is tuned", key.kernel, why)
            return _ready(menu.back(session.known(problem).config)), adapter.is_interpreted(self.fn)
        if found is None:
            tuned: list[Any] = []
            found = session.led(problem, lambda: self._tuned(session, problem, menu, call, tuned))
            self._tell(problem, menu, found, shown, hit=not tuned)
        elif found.tier in SAME:
            self._tell(problem, menu, found, shown, hit=True)
        ready = _ready(menu.back(found.config))
        if session.mode is Mode.RECORD and found.tier not in SAME:
            ready = self._watched(session, problem, ready)
        return ready, True

    def _untimely(self, call: Call) -> str | None:
        """Why nothing can be measured now; None if it can."""
        if call.kwargs["warmup"]:
            return "this is a warm-up without arguments"
        if adapter.is_interpreted(self.fn):
            return None if self._do_bench else "the interpreter's times say nothing"
        return "a graph is being captured" if adapter.is_capturing() else None

    def _deciding(self) -> Session:
        """The session, in this process alone: what a GPU knows of a process cannot be forked."""
        session = self.session
        if session.mode is not Mode.TUNE:
            return session
        if self._own is None or self._own[0] is not session:
            strategy = self.said.strategy or ("exhaustive" if self._whole is None else session.settings.strategy)
            settings = msgspec.structs.replace(session.settings, pool="serial", strategy=strategy)
            own = Session(settings, store=session.store)
            own.counts, own.listeners = session.counts, session.listeners
            self._own = session, own
        return self._own[1]

    def _tuned(self, session: Session, problem: Problem, menu: Menu, call: Call, tuned: list[Any]) -> Decision:
        """Search now, and leave the arguments as they were."""
        refuse_conflicts([menu.back(menu.default)], call.kwargs)
        began = time.time()
        kept = tensors_to_restore(self.fn, {**call.named, **call.kwargs})
        snapshot = Snapshot(kept.values())
        judge = judge_of(self.said, {**call.named, **call.kwargs}, kept) if adapter.computes() else None
        lease = session.settings.cache_path / "leases" / f"{self._card()}.lock"
        races = self._do_bench is None and adapter.Clock.offered()
        around = Surroundings(snapshot, None if races else self.do_bench, judge, lease, adapter.prints())
        attempt = (Raced if races else Benched)(self, call, menu.back, around)
        if self._whole is not None:
            seeds = seeds_of(self.said.seeds, problem.space, problem.key.signature.dims)
            problem = msgspec.structs.replace(problem, seeds=seeds)
        try:
            decision = session.tune(problem, attempt, budget=self._budget(session, menu), replace=False)
        except NothingWorked as error:
            raise NothingWorked(str(error)) from attempt.broken
        finally:
            snapshot.restore()
        tuned.append(decision)
        self._timings, self.bench_time = attempt.timings, time.time() - began
        self.pre_hook({**call.named, **call.kwargs, **menu.back(decision.config).all_kwargs()}, reset_only=True)
        return decision

    def _card(self) -> str:
        return "cpu" if adapter.is_interpreted(self.fn) else adapter.device_name()

    def _budget(self, session: Session, menu: Menu) -> Budget:
        """As declared; else a list is tried whole, and a space as the settings say."""
        if self.said.budget:
            return Budget.parse(self.said.budget)
        return Budget(menu.space.size + 1, session.settings.seconds or None) if not self._whole else session.budget()

    def _tell(self, problem: Problem, menu: Menu, found: Decision, shown: Any, *, hit: bool) -> None:
        """Say what was decided where Triton would: to its listener, its cache of timings, and the terminal."""
        config, listener = menu.back(found.config), adapter.listener()
        if hit:
            self._timings = lambda: self._recorded(problem, menu)
        elif self.cache_results and menu.listed and not any(one.pre_hook for one in menu.listed):
            timed = {one: self._timings[one] for one in menu.listed if one in self._timings}
            adapter.keep_timings(self.fn, shown, menu.listed, timed)
        if listener is not None:
            listener(
                fn=adapter.innermost(self.fn),
                key=shown,
                best_config=config,
                configs_timings=self.configs_timings,
                duration=None if hit else self.bench_time,
                cache_hit=hit,
            )
        if adapter.prints() and not hit:
            sys.stdout.write(
                f"Triton autotuning for function {self.base_fn.__name__},\nwith key as {shown},\n"
                f"finished after {self.bench_time:.2f}s,\nbest config selected: {config};\n"
            )

    def _recorded(self, problem: Problem, menu: Menu) -> dict[Any, Any]:
        """What the store knows of the trials behind a decision."""
        trials = [trial for trial in self.session.store.trials(problem.key) if trial.config in menu.space]
        return {
            menu.back(trial.config): quantiles(trial.outcome.samples)
            if isinstance(trial.outcome, Timing)
            else [float("inf")] * 3
            for trial in trials
        }

    def _watched(self, session: Session, problem: Problem, ready: Ready) -> Ready:
        """The same, with its calls counted and timed: what they cost says what is worth tuning."""
        want = Want(problem.key, 0, 0.0, self.target() or "", "")
        run = self.fn.run
        counted = session.untuned.watched(want, lambda args, kwargs: run(*args, **kwargs))
        return ready._replace(plain=False, counted=counted)


def _ready(config: Any) -> Ready:
    return Ready(config, config.all_kwargs(), config.pre_hook is None)


def autotune(*args: Any, **given: Any) -> Callable[[Any], TritonTuner]:
    """Triton's decorator, with all it takes, and what `Telling` names besides: `space=`, `buckets=`, `reference=`..."""
    named = {**dict(zip(adapter.AUTOTUNE, args, strict=False)), **given}
    if len(args) > len(adapter.AUTOTUNE) or set(given) & set(adapter.AUTOTUNE[: len(args)]):
        raise TypeError(f"autotune takes {', '.join(adapter.AUTOTUNE)}, each once")
    own = set(Telling.__struct_fields__)
    if unknown := sorted(set(named) - own - set(adapter.AUTOTUNE)):
        raise TypeError(f"autotune takes no {unknown[0]!r}; it takes {', '.join((*adapter.AUTOTUNE, *sorted(own)))}")
    said = Telling(**{name: named.pop(name) for name in list(named) if name in own})
    if said.space is None and not {"configs", "key"} <= named.keys():
        raise TypeError("autotune takes configs= and key=, or a space= instead of configs=")
    return lambda fn: TritonTuner(fn, named, said)


autotune.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in adapter.AUTOTUNE]
    + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in Telling.__struct_fields__]
)
