"""Tuned: the callable users hold; a cached launch is a dictionary look-up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from tunewright.backends.python import Python
from tunewright.cases.case import Case
from tunewright.cases.inputs import Inputs
from tunewright.engine.budget import Budget
from tunewright.engine.decide import Program
from tunewright.errors import SignatureError, SpaceError
from tunewright.fronts.buckets import Buckets
from tunewright.fronts.call import cached_call
from tunewright.fronts.declaration import Declaration
from tunewright.fronts.naming import check_names
from tunewright.fronts.seeds import seeds_of
from tunewright.measure.attempt import Bench, Check, Manner
from tunewright.measure.clock import Regime
from tunewright.model.decision import Decision, Problem
from tunewright.model.signature import Parameter, Signature
from tunewright.pools.loading import find, only_known_answers, target_of
from tunewright.ports.backend import Backend, Kernel, Launch
from tunewright.ports.pool import Attempt
from tunewright.remarks import Remarks
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.sharing import wire
from tunewright.sharing.nearby import SAME
from tunewright.sharing.records import Want
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

log = Remarks(__name__)

MOST_LAUNCHERS = 4096


class Tuned:
    """A kernel that knows its best config: call it like the function it was made from."""

    __call__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], space: Space, declared: Declaration) -> None:
        self.function, self.declared = function, declared
        self.offered, self.space = space, space.exact(declared.numerics)
        self.backend = _backend(declared.backend)
        if hasattr(self.backend, "relative_to") and function.__code__.co_filename:
            self.backend.relative_to(Path(function.__code__.co_filename).parent)
        self.parameters = Parameter.of(function, space.names)
        self.buckets = Buckets(declared.buckets)
        self._default = self._required(declared.default) if declared.default is not None else None
        self._ready: dict[Hashable, Launch] = {}
        self._lock = RLock()
        self._is_pinned = False
        check_names(self)
        reading = self.backend.signature(Kernel(self.name, function, self.parameters, Path()))
        call = cached_call(self.parameters, reading, self._ready, self._prepare)
        # Python looks for `__call__` in the class: each kernel has one of its own, with the call written out for it.
        self.__class__ = type("Tuned", (type(self),), {"__call__": call, "__doc__": function.__doc__ or Tuned.__doc__})
        update_wrapper(self, function)

    def _required(self, config: Mapping[str, Any]) -> Config:
        """A config of the space; one that was left out for its numerics says how to allow it."""
        if config not in self.space and config in self.offered:
            raise SpaceError(f"the default of {self.name} changes numerics: allow it by name with numerics=[...]")
        return self.space.require(config)

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        """How multiprocessing hands a kernel on: by name."""
        if (target := self.target()) is None:
            raise TypeError(f"{self.name} cannot be found by name from another process")
        return find, (target,)

    def _prepare(self, mark: Hashable, args: tuple[Any, ...]) -> Launch:
        """The launcher for arguments like these: decided once, kept by what distinguishes them."""
        # A program that is being raced may call from any thread; nothing is tuned then, so there is nothing to guard.
        with nullcontext() if self._is_pinned else self._lock:
            if (launch := self._ready.get(mark)) is None:
                decision = self.decide(*args)
                exact = Signature.of(self.parameters, args)
                launch = self.backend.load(self.kernel, self.backend.build(self.kernel, decision.config, exact))
                if self.session.mode is Mode.RECORD and decision.tier not in SAME:
                    launch = self.session.untuned.watched(self._want(args), launch)
                while len(self._ready) >= MOST_LAUNCHERS:
                    self._ready.pop(next(iter(self._ready)))
                self._ready[mark] = launch
        return launch

    @property
    def name(self) -> str:
        """What the kernel is called in the store: no module or path, so that moving a file loses nothing."""
        return self.declared.name or self.function.__qualname__.rpartition("<locals>.")[2]

    @property
    def kernel(self) -> Kernel:
        """The kernel as backends see it."""
        return Kernel(self.name, self.function, self.parameters, self.session.settings.cache_path, self.session.supply)

    @property
    def session(self) -> Session:
        """Its own session if it was given one, else the process's."""
        return self.declared.session or current_session()

    def using(self, session: Session) -> None:
        """Give the kernel a session of its own, and forget the launchers made under another."""
        with self._lock:
            self.declared = msgspec.structs.replace(self.declared, session=session)
            self._ready.clear()

    @property
    def default(self) -> Config:
        """The config used where nothing is decided."""
        return self._default or self.space.first

    @property
    def dims(self) -> list[str]:
        """The names of sizes: of the `inputs` function, or of the arrays' dimensions in order of appearance."""
        if self.declared.inputs is not None:
            return list(inspect.signature(self.declared.inputs).parameters)
        roles = [p.role for p in self.parameters if p.role]
        return list(dict.fromkeys(d for role in roles for d in role.dims if isinstance(d, str)))

    @cached_property
    def _mode(self) -> dict[str, str]:
        """How the kernel is executed and judged."""
        return self.declared.mode()

    def problem(self, args: Sequence[Any]) -> Problem:
        """What has to be decided for a call with `args`."""
        mode = {**self._mode, "results": "bitwise"} if self.session.settings.deterministic else self._mode
        signature, exact = (Signature.of(self.parameters, args, bucket) for bucket in (self.buckets, None))
        key = self.backend.key(self.kernel, signature, mode)
        own = None if exact == signature else msgspec.structs.replace(key, signature=exact)
        return Problem(key, self.space, self.default, exact=own)

    def _want(self, args: Sequence[Any]) -> Want:
        """What to tune for calls like this, and how to find and call the kernel then."""
        try:
            recipe = wire.encode(self._recipe(args, Signature.of(self.parameters, args).dims, -1)).decode()
        except SignatureError as error:
            log.warning("%s: calls like this are recorded, but cannot be made again: %s", self.name, error)
            recipe = ""
        return Want(self.problem(args).key, 0, 0.0, self.target() or "", recipe)

    def warm(self, calls: Iterable[Sequence[Any]]) -> int:
        """Read the decisions for many calls in one go; how many of them are decided. Sizes do for arguments."""
        given = [self.example(call) if isinstance(call, Mapping) else call for call in calls]
        return self.session.warm([self.problem(args) for args in given])

    def decide(self, *args: Any) -> Decision:
        """The decision for a call with `args`; stored, tuned or default, as the session's mode says."""
        only_known = only_known_answers()
        problem = self.problem(args)
        found = self.session.known(problem) if only_known else self.session.answer(problem)
        if found is not None:
            return found
        return self.session.led(problem, lambda: self._tuned(problem, args, self.budget(), replace=False))

    def tune(self, *args: Any, budget: Budget | None = None, fresh: bool = False) -> Decision:
        """Search for the best config for `args` now, whatever is stored; earlier trials count unless `fresh`."""
        with self._lock:
            decision = self._tuned(self.problem(args), args, budget or self.budget(), fresh=fresh)
            self._ready.clear()
        return decision

    def _tuned(self, problem: Problem, args: Sequence[Any], budget: Budget | None, **how: bool) -> Decision:
        program: Program | None = None
        if self.declared.program:
            from tunewright.fronts.program import whole  # noqa: PLC0415 - processes, only where there is a program

            program = whole(self, problem.key)
        attempt = self.attempt(self.cases_like(args))
        seeds = seeds_of(self.declared.seeds, self.space, problem.key.signature.dims)
        offered = getattr(self.backend, "figures", None)
        known = offered(self.kernel, problem.key.signature) if offered else ()
        space = problem.space.knowing(known) if known else problem.space
        problem = msgspec.structs.replace(problem, seeds=seeds, space=space)
        return self.session.tune(problem, attempt, budget=budget, program=program, **how)

    @contextmanager
    def pinned(self, session: Session, ready: dict[Hashable, Launch]) -> Iterator[None]:
        """Answer from another session within, with launchers of its own, which are kept in `ready`."""
        said, before = self.declared, dict(self._ready)
        self.using(session)
        self._ready.update(ready)
        self._is_pinned = True
        try:
            yield
        finally:
            self._is_pinned = False
            ready.update(self._ready)
            self.declared = said
            self._ready.clear()
            self._ready.update(before)

    def budget(self) -> Budget | None:
        """The budget declared, if any."""
        return Budget.parse(self.declared.budget) if self.declared.budget else None

    def cases_like(self, args: Sequence[Any]) -> tuple[Inputs, ...]:
        """Recipes for what the decision about a call with `args` serves: the declared cases in its bucket, if any."""
        dims, said = Signature.of(self.parameters, args, self.buckets).dims, self.declared.cases
        served = [
            number
            for number, case in enumerate(said)
            if all(self.buckets(name, size) == dims.get(name) for name, size in case.sizes.items())
        ]
        if said and not served:
            log.warning("%s: no declared case is like a call with %s, which is tuned for itself", self.name, dims)
        return tuple(self._recipe(args, dims, number) for number in served or [-1])

    def _recipe(self, args: Sequence[Any], dims: Mapping[str, int], number: int) -> Inputs:
        """A recipe for the case of that number (-1: none in particular), at its bucket's size where it has none."""
        case = self.declared.cases[number] if number >= 0 else Case()
        sizes, maker = {**dims, **case.sizes}, case.inputs or self.declared.inputs
        if maker is None:
            recipe = Inputs.like(self.parameters, args, sizes)
            return msgspec.structs.replace(recipe, case=number, weight=case.weight)
        wanted = {name: sizes[name] for name in inspect.signature(maker).parameters if name in sizes}
        recipe = Inputs(dims=wanted, case=number, weight=case.weight)
        made = Signature.of(self.parameters, list(self.make(recipe)), self.buckets)
        if made != (asked := Signature.of(self.parameters, args, self.buckets)):
            log.warning("%s is tuned on what `inputs` makes (%s), though called with (%s)", self.name, made, asked)
        return recipe

    def make(self, inputs: Inputs) -> Sequence[Any]:
        """Arguments by a recipe."""
        own = self.declared.cases[inputs.case].inputs if inputs.case >= 0 else None
        maker = own or self.declared.inputs
        return maker(**inputs.dims) if maker else inputs.make()

    def example(self, sizes: Mapping[str, int]) -> list[Any]:
        """Arguments of named sizes, as the command line needs them."""
        if self.declared.inputs is not None:
            return list(self.declared.inputs(**sizes))
        return Inputs.of_dims(self.parameters, sizes, self.declared.dtype).make()

    def bench(self, cases: Sequence[Inputs], cache: Path) -> Bench:
        """What a process needs to try configs; workers ask for it after they have found this kernel by name."""
        kernel = Kernel(self.name, self.function, self.parameters, cache)
        said = self.declared
        check = Check(said.reference, said.tolerance, said.precision == "double")
        manner = Manner(said.threads, Regime(said.regime), cache / "leases" / "cpu.lock")
        return Bench(self.backend, kernel, tuple(cases), self.default, check, manner, self.make, self.target())

    def attempt(self, cases: Sequence[Inputs]) -> Attempt:
        """An attempt for the session's pool: isolated, unless attempts are to run in this process."""
        own, cache = self.session, self.kernel.cache
        if own.settings.pool_name == "serial":
            return self.bench(cases, cache)
        from tunewright.pools.isolate import Isolated  # noqa: PLC0415 - sockets and processes, only where one tunes

        make = partial(self.bench, cases, cache)
        return Isolated(make, tuple(cases), cache, self.target(), self.declared.threads, own.limits)

    def target(self) -> str | None:
        """Where another process finds this kernel: `module:name` or `script.py:name`; None if nowhere."""
        return target_of(self, self.function)


def _backend(given: Backend | Mapping[str, Any] | None) -> Backend:
    if isinstance(given, Mapping):
        from tunewright.backends.variants import Variants  # noqa: PLC0415 - only for who has variants

        return Variants(given)
    return given or Python()


def tune(space: Space, **declared: Any) -> Callable[[Callable[..., Any]], Tuned]:
    """Make a function a tuned kernel: `@tune(space, backend=..., reference=...)`; see Declaration for all parts."""
    if not isinstance(space, Space):
        raise SpaceError("@tune takes a space first: @tune(Space(Knob(...), ...), backend=...)")
    try:
        said = Declaration(**declared)
    except TypeError as error:
        raise SpaceError(f"{error}; tune takes {', '.join(sorted(Declaration.__struct_fields__))}") from error
    return lambda function: Tuned(function, space, said)
