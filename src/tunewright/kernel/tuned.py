"""Tuned kernels and the `tune` decorator; a cached launch is a dictionary look-up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from tunewright.cases.case import Case
from tunewright.cases.inputs import Inputs
from tunewright.engine.budget import Budget
from tunewright.engine.decide import ProgramRace
from tunewright.errors import BackendError, SignatureError, SpaceError
from tunewright.kernel.buckets import Buckets
from tunewright.kernel.declaration import Declaration, TuneOptions
from tunewright.kernel.display import Shown
from tunewright.kernel.generated_call import generate_call
from tunewright.kernel.knob_defaults import default_config
from tunewright.kernel.parameter_names import check_names, with_defaults
from tunewright.kernel.pins import pinned_config
from tunewright.kernel.seeds import load_seeds
from tunewright.kernel.workloads import make_workload
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.foreign import is_traced
from tunewright.model.key import Key
from tunewright.model.signature import Parameter, Signature
from tunewright.pools.by_value import dump_kernel, needs_fresh_workers
from tunewright.pools.kernel_loader import importable_target, is_lookup_only, load_target
from tunewright.ports.backend import ArtifactSource, Kernel, Launch
from tunewright.ports.pool import Attempt
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.spaces.config import Config
from tunewright.spaces.pinning import knobs_named
from tunewright.spaces.space import Space
from tunewright.stores import serialization
from tunewright.stores.fallback import SAME_QUESTION_TIERS
from tunewright.stores.statistics import MissRecord

Params = ParamSpec("Params")
Result = TypeVar("Result")

if TYPE_CHECKING:
    # With defaults, so that `Tuned` alone is a kernel with any parameters.
    from typing_extensions import ParamSpec as _ParamSpec
    from typing_extensions import TypeVar as _TypeVar

    P = _ParamSpec("P", default=...)
    R = _TypeVar("R", default=Any)
else:
    P, R = Params, Result

log = LazyLogger(__name__)

MAX_LAUNCHERS = 4096


class Tuned(Shown, Generic[P, R]):
    """A kernel with its space; call it like the function it was made from, without the knobs.

    A value given for a knob, as in `saxpy(x, y, UNROLL=4)`, is used for that call and never stored; knobs that are not
    given have the values that were decided.

    Example: `decision = saxpy.decide(x, y)` returns the config that `saxpy(x, y)` uses, and why.
    """

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __init__(self, function: Callable[P, R], space: Space, declaration: Declaration) -> None:
        self.function, self.declaration = function, declaration
        self.full_space, self.space = space, space.exact(declaration.numerics)
        self.backend = declaration.make_backend()
        if hasattr(self.backend, "relative_to") and (file := function.__code__.co_filename):
            self.backend.relative_to(Path(file).parent)
        self.parameters = Parameter.of(function, space.names)
        if hasattr(self.backend, "declare"):
            self.parameters = self.backend.declare(self)
        self.buckets = Buckets(declaration.buckets)
        self._members = {
            name: knob.members for name in self.space.names for knob in knobs_named(space, name) if knob.members
        }
        self._default = default_config(self.name, function, (self.space, space), declaration.default)
        self._ready: dict[Hashable, Launch] = {}
        self._lock = RLock()
        self._is_pinned = False
        check_names(self)
        signature = self.backend.signature(self.kernel_in(Path()))
        call = generate_call(self.parameters, signature, self._ready, self._prepare, self._prepare_pinned)
        # Python looks for `__call__` in the class, so each kernel has its own class with its generated call.
        self.__class__ = type("Tuned", (type(self),), {"__call__": call, "__doc__": function.__doc__ or Tuned.__doc__})
        update_wrapper(self, function)

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        """Pickles a kernel by its name."""
        if (target := self.target()) is None:
            raise TypeError(f"{self.name} cannot be found by name from another process")
        return load_target, (target,)

    def _prepare(self, dispatch_key: Hashable, args: tuple[Any, ...]) -> Launch:
        """Returns the launcher for arguments like these; decided once and kept by its dispatch key."""
        # A program that is being raced may call from any thread; nothing is tuned then, so no lock is needed.
        with nullcontext() if self._is_pinned else self._lock:
            if (launch := self._ready.get(dispatch_key)) is None:
                decision = self.decide(*args)
                launch = self._load(decision.config, args)
                if self.session.mode is Mode.RECORD and decision.tier not in SAME_QUESTION_TIERS:
                    launch = self.session.misses.count_calls(self._miss_record(args), launch)
                if not is_traced(args):  # a program is traced once, and its next version may find a decision
                    self._keep_ready(dispatch_key, launch)
        return launch

    def _prepare_pinned(self, dispatch_key: Hashable, args: tuple[Any, ...], pins: Mapping[str, Any]) -> Launch:
        """Returns the launcher of a call with values for knobs; nothing of it is stored."""
        is_lookup_only()
        config = pinned_config(self.name, self.space, pins, lambda: self.decide(*args).config, self.default)
        mark = "pinned", dispatch_key, config
        with self._lock:
            if (launch := self._ready.get(mark)) is None:
                launch = self._load(config, args)
                self._keep_ready(mark, launch)
        return launch

    def _load(self, config: Config, args: Sequence[Any]) -> Launch:
        """Returns a config, built for arguments like these and ready to be launched."""
        exact = Signature.of(self.parameters, args)
        return self.backend.load(self.kernel, self.backend.build(self.kernel, config, exact))

    def _keep_ready(self, mark: Hashable, launch: Launch) -> None:
        while len(self._ready) >= MAX_LAUNCHERS:
            self._ready.pop(next(iter(self._ready)))
        self._ready[mark] = launch

    @property
    def name(self) -> str:
        """The name in the store; without module or path, so that moving a file loses nothing."""
        return self.declaration.name or self.function.__qualname__.rpartition("<locals>.")[2]

    @property
    def kernel(self) -> Kernel:
        """The kernel as backends see it."""
        return self.kernel_in(self.session.cache, self.session.artifacts)

    def kernel_in(self, cache: Path, artifacts: ArtifactSource | None = None) -> Kernel:
        """Returns the kernel as backends see it, with this cache."""
        return Kernel(self.name, self.function, self.parameters, cache, artifacts, self._members)

    @property
    def session(self) -> Session:
        """The kernel's own session if it has one, else that of the process."""
        return self.declaration.session or current_session()

    def using(self, session: Session) -> None:
        """Gives the kernel its own session, and drops the launchers of the earlier one."""
        with self._lock:
            self.declaration = msgspec.structs.replace(self.declaration, session=session)
            self._ready.clear()

    @property
    def default(self) -> Config:
        """The config used if no decision is stored."""
        return self._default or self.space.first

    @property
    def dims(self) -> list[str]:
        """The names of sizes: parameters of the `inputs` function, or named dimensions in order of appearance."""
        if self.declaration.inputs is not None:
            return list(inspect.signature(self.declaration.inputs).parameters)
        roles = [p.role for p in self.parameters if p.role]
        return list(dict.fromkeys(d for role in roles for d in role.dims if isinstance(d, str)))

    @cached_property
    def _mode(self) -> dict[str, str]:
        """How the kernel is run and verified."""
        return self.declaration.mode()

    def key_for(self, signature: Signature) -> Key:
        """Returns the key of calls with this signature."""
        mode = {**self._mode, "results": "bitwise"} if self.session.settings.deterministic else self._mode
        return self.backend.key(self.kernel, signature, mode)

    def problem(self, args: Sequence[Any]) -> Problem:
        """Returns the tuning problem of a call with `args`."""
        signature, exact = (Signature.of(self.parameters, args, bucket) for bucket in (self.buckets, None))
        key = self.key_for(signature)
        exact_key = None if exact == signature else msgspec.structs.replace(key, signature=exact)
        return Problem(key, self.space, self.default, exact=exact_key, notes=getattr(self.backend, "notes", ()))

    def _miss_record(self, args: Sequence[Any]) -> MissRecord:
        """Returns the record of a miss: what to tune for such calls, and how to load and call the kernel."""
        try:
            recipe = serialization.encode(self._recipe(args, Signature.of(self.parameters, args).dims, -1)).decode()
        except SignatureError as error:
            log.warning("%s: calls like this are recorded, but cannot be repeated: %s", self.name, error)
            recipe = ""
        return MissRecord(self.problem(args).key, 0, 0.0, self.target() or "", recipe)

    def warm(self, calls: Iterable[Sequence[Any]]) -> int:
        """Reads the decisions for many calls (arguments or named sizes) at once; returns how many have one."""
        arguments = [self.example(call) if isinstance(call, Mapping) else call for call in calls]
        return self.session.warm([self.problem(args) for args in arguments])

    def decide(self, *args: Any) -> Decision:
        """Returns the decision for a call with `args`: stored, tuned or default, by the session's mode."""
        args = with_defaults(self.parameters, args)
        lookup_only = is_lookup_only() or (is_traced(args) and self.session.mode is Mode.TUNE)
        problem, session = self.problem(args), self.session
        if self._untimed and session.mode is Mode.TUNE:
            log.warning("%s: %s. The default is used.", self.name, self._untimed)
            return Decision(problem.key, problem.default, tier=Tier.DEFAULT)
        decision = session.lookup(problem) if lookup_only else session.lookup_or_policy(problem)
        if decision is not None:
            return decision
        return session.tune_once(problem, lambda: self._search(problem, args, self.budget(), replace=False))

    def tune(self, *args: Any, budget: Budget | None = None, fresh: bool = False) -> Decision:
        """Searches for the best config for `args` now, whatever is stored; reuses earlier trials unless `fresh`."""
        args = with_defaults(self.parameters, args)
        with self._lock:
            decision = self._search(self.problem(args), args, budget or self.budget(), fresh=fresh)
            self._ready.clear()
        return decision

    @property
    def _untimed(self) -> str:
        """Why the backend has no times to choose by; empty if it has."""
        return str(getattr(self.backend, "untimed", ""))

    def _search(self, problem: Problem, args: Sequence[Any], budget: Budget | None, **options: bool) -> Decision:
        if not self.declaration.invariant:
            return self.search(problem, args, budget, **options)
        from tunewright.kernel.invariance import tune_invariant  # noqa: PLC0415 - only for invariant=

        return tune_invariant(self, problem, args, budget, **options)

    def search(self, problem: Problem, args: Sequence[Any], budget: Budget | None, **options: bool) -> Decision:
        """Searches a problem of this kernel, whatever is stored; `tune` is for users."""
        if self._untimed:
            raise BackendError(f"{self.name}: {self._untimed}")
        program: ProgramRace | None = None
        if self.declaration.program:
            from tunewright.kernel.program import program_race  # noqa: PLC0415 - only needed for programs

            program = program_race(self, problem.key)
        attempt = self.attempt(self.cases_like(args))
        declared = load_seeds(self.declaration.seeds, self.space, problem.key.signature.dims)
        seeds = (*problem.seeds, *(seed for seed in declared if seed in problem.space))
        backend_features = getattr(self.backend, "features", None)
        features = backend_features(self.kernel, problem.key.signature) if backend_features else ()
        space = problem.space.with_features(features) if features else problem.space
        problem = msgspec.structs.replace(problem, seeds=seeds, space=space)
        return self.session.tune(problem, attempt, budget=budget, program=program, **options)

    @contextmanager
    def pinned(self, session: Session, ready: dict[Hashable, Launch]) -> Iterator[None]:
        """Uses another session within the block, with separate launchers that are kept in `ready`."""
        declaration, before = self.declaration, dict(self._ready)
        self.using(session)
        self._ready.update(ready)
        self._is_pinned = True
        try:
            yield
        finally:
            self._is_pinned = False
            ready.update(self._ready)
            self.declaration = declaration
            self._ready.clear()
            self._ready.update(before)

    def budget(self) -> Budget | None:
        """Returns the declared budget, if any."""
        return Budget.parse(self.declaration.budget) if self.declaration.budget else None

    def cases_like(self, args: Sequence[Any]) -> tuple[Inputs, ...]:
        """Returns the inputs to tune a call with `args` on: the declared cases in its bucket, if any."""
        if hasattr(self.backend, "workload"):  # which has inputs of its own
            return (Inputs(),)
        dims, cases = Signature.of(self.parameters, args, self.buckets).dims, self.declaration.cases
        matching = [
            number
            for number, case in enumerate(cases)
            if all(self.buckets(name, size) == dims.get(name) for name, size in case.sizes.items())
        ]
        if cases and not matching:
            log.warning("%s: no declared case matches a call with %s, which is tuned by itself", self.name, dims)
        return tuple(self._recipe(args, dims, number) for number in matching or [-1])

    def _recipe(self, args: Sequence[Any], dims: Mapping[str, int], number: int) -> Inputs:
        """Returns the inputs of a case by number (-1: none), at the bucket's size where the case has none."""
        case = self.declaration.cases[number] if number >= 0 else Case()
        sizes, maker = {**dims, **case.sizes}, case.inputs or self.declaration.inputs
        if maker is None:
            recipe = Inputs.like(self.parameters, args, sizes)
            return msgspec.structs.replace(recipe, case=number, weight=case.weight)
        maker_sizes = {name: sizes[name] for name in inspect.signature(maker).parameters if name in sizes}
        recipe = Inputs(dims=maker_sizes, case=number, weight=case.weight)
        tuned_on = Signature.of(self.parameters, list(self.make(recipe)), self.buckets)
        if tuned_on != (called_with := Signature.of(self.parameters, args, self.buckets)):
            message = "%s is tuned on the arguments that `inputs` makes (%s), but was called with (%s)"
            log.warning(message, self.name, tuned_on, called_with)
        return recipe

    def make(self, inputs: Inputs) -> Sequence[Any]:
        """Returns the arguments of a recipe; an `inputs` function that takes `seed` makes others for each seed."""
        case_maker = self.declaration.cases[inputs.case].inputs if inputs.case >= 0 else None
        maker = case_maker or self.declaration.inputs
        if maker is None:
            return inputs.make()
        takes_seed = "seed" in inspect.signature(maker).parameters and "seed" not in inputs.dims
        return maker(**inputs.dims, **({"seed": inputs.seed} if takes_seed else {}))

    def example(self, sizes: Mapping[str, int]) -> list[Any]:
        """Returns arguments of named sizes, for the command line."""
        if self.declaration.inputs is not None:
            return list(self.declaration.inputs(**sizes))
        return Inputs.of_dims(self.parameters, sizes, self.declaration.dtype).make()

    def make_evaluator(self, cases: Sequence[Inputs], cache: Path) -> Evaluator:
        """Returns the evaluator of this kernel; workers call this after they have loaded the kernel by name."""
        return Evaluator(make_workload(self, cases, cache), target=self.target())

    def attempt(self, cases: Sequence[Inputs]) -> Attempt:
        """Returns the attempt for the session's pool: in a worker process, unless the pool is serial."""
        session, cache = self.session, self.kernel.cache
        if session.settings.pool_name == "serial":
            return self.make_evaluator(cases, cache)
        from tunewright.pools.worker import IsolatedAttempt  # noqa: PLC0415 - only needed for tuning

        make, target = partial(self.make_evaluator, cases, cache), self.target()
        attempt = IsolatedAttempt(make, tuple(cases), cache, target, self.declaration.threads, session.limits)
        if hasattr(self.backend, "workload") or any(case.rows for case in cases):
            attempt = replace(attempt, judged=False)
        return attempt if target or not needs_fresh_workers() else replace(attempt, dumped=self._dump())

    def _dump(self) -> bytes | None:
        """Returns this kernel for workers that cannot import it; None if that is not possible."""
        declaration = msgspec.structs.replace(self.declaration, session=None)
        signature = inspect.signature(self.function, eval_str=True)
        return dump_kernel(self.name, _rebuild, (self.function, signature, self.full_space, declaration))

    def target(self) -> str | None:
        """Returns where another process finds this kernel: `module:name` or `script.py:name`; None if it cannot."""
        return importable_target(self, self.function)


def _rebuild(
    function: Callable[..., Any], signature: inspect.Signature, space: Space, declaration: Declaration
) -> Tuned[..., Any]:
    """Returns a kernel in a worker. A function sent there lacks the names that only its annotations use."""
    function.__signature__ = signature  # type: ignore[attr-defined]
    return Tuned(function, space, declaration)


def tune(space: Space, **options: Unpack[TuneOptions]) -> Callable[[Callable[Params, Result]], Tuned[Params, Result]]:
    """Makes a function a tuned kernel.

    Type checkers check calls of the kernel against the function. For them, write roles as
    `x: Annotated[NDArray[np.float32], In("N")]`, and give knobs a default, since calls omit them.

    Example:
        @tune(Space(Knob("step", [1, 2, 4])), reference=lambda x: 3 * x)
        def triple(x: In("N"), *, step: int = 1): ...
    """
    if not isinstance(space, Space):
        raise SpaceError("@tune takes a space first: @tune(Space(Knob(...), ...), backend=...)")
    try:
        declaration = Declaration(**options)
    except TypeError as error:
        raise SpaceError(f"{error}; tune takes {', '.join(sorted(Declaration.__struct_fields__))}") from error
    return lambda function: Tuned(function, space, declaration)


if tune.__doc__ and TuneOptions.__doc__:  # neither is there with `python -OO`
    tune.__doc__ += f"\n    {TuneOptions.__doc__.strip()}\n"
