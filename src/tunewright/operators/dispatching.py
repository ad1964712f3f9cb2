"""Dispatch: an operator that calls, for each kind of arguments, the implementation that won the race for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.inputs import Inputs
from tunewright.engine.budget import Budget
from tunewright.errors import PluginError, SignatureError
from tunewright.fronts.call import cached_call
from tunewright.fronts.declaration import Declaration
from tunewright.measure.attempt import Bench
from tunewright.model.decision import Decision, Problem
from tunewright.model.signature import Reading, Signature
from tunewright.operators.contest import Contest, Entrant, Field, entrants
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.registry import installed
from tunewright.ports.backend import Launch
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.spaces.space import Space

HOME = "tunewright.operators"
"""Where other processes find operators by name."""


class Terms(msgspec.Struct, frozen=True):
    """How an operator is dispatched: among whom, on how many threads, after how long a search.

    `only` and `without` name implementations. Without a `budget` each implementation is raced as it comes; with one,
    the knobs of those that have any are searched too.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    threads: int = 1
    budget: str | None = None

    def allows(self, name: str) -> bool:
        """Whether an implementation may be chosen."""
        return (not self.only or name in self.only) and name not in self.without


class Dispatched:
    """An operator to be called like a function: the result is new, or with `into` written to the last argument."""

    __call__: Callable[..., Any]
    into: Callable[..., Any]

    def __init__(self, operator: Operator, terms: Terms, session: Session | None = None) -> None:
        self.operator, self.terms = operator, terms
        self.parameters = operator.parameters
        self.declared = Declaration(name=operator.name, threads=terms.threads, session=session)
        self.implementations = self._allowed()
        self._contests: dict[tuple[str, ...], Contest] = {}
        self._fresh: dict[Hashable, Launch] = {}
        self._ready: dict[Hashable, Launch] = {}
        self._lock = RLock()
        inputs, whole = operator.inputs, operator.parameters
        calls = {
            "__call__": cached_call(inputs, Reading.of(inputs), self._fresh, self._prepare_fresh),
            "into": cached_call(whole, Reading.of(whole), self._ready, self._prepare),
            "__doc__": operator.function.__doc__,
        }
        # As with tuned kernels: Python looks for `__call__` in the class.
        self.__class__ = type("Dispatched", (Dispatched,), calls)

    def _allowed(self) -> list[Implementation]:
        every = installed().of(self.operator)
        names = {one.name for one in every}
        if not names:
            raise PluginError(f"{self.operator.name} has no implementation; install a package that brings one")
        if strange := sorted({*self.terms.only, *self.terms.without} - names):
            gone = installed().absent
            why = f" ({gone[strange[0]]})" if strange[0] in gone else ""
            there = ", ".join(sorted(names))
            raise PluginError(f"{self.operator.name} has no implementation {strange[0]!r}{why}; there are: {there}")
        kept = [one for one in every if self.terms.allows(one.name)]
        if not kept:
            raise PluginError(
                f"every implementation of {self.operator.name} is excluded; leave one of {', '.join(sorted(names))}"
            )
        return kept

    @property
    def name(self) -> str:
        """The operator's."""
        return self.operator.name

    @property
    def session(self) -> Session:
        """Its own session if it was given one, else the process's."""
        return self.declared.session or current_session()

    @property
    def dims(self) -> list[str]:
        """The names of sizes."""
        roles = [p.role for p in self.operator.inputs if p.role]
        return list(dict.fromkeys(d for role in roles for d in role.dims if isinstance(d, str)))

    def using(self, session: Session) -> None:
        """Give the operator a session of its own, and forget what was chosen under another."""
        with self._lock:
            self.declared = msgspec.structs.replace(self.declared, session=session)
            for held in (self._contests, self._fresh, self._ready):
                held.clear()

    def whole(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments with an array for the result."""
        shape = self.operator.shape(*(array.shape for array in inputs))
        if min(shape, default=1) < 1:
            raise SignatureError(f"the result of {self.name} would be empty: {shape}; call it with larger arrays")
        return (*inputs, np.empty(shape, inputs[0].dtype))

    def contest(self, args: Sequence[Any]) -> Contest:
        """The race for arguments like these, the result among them."""
        signature = Signature.of(self.parameters, args)
        kind = (*signature.args, *(f"{name}={size}" for name, size in signature.dims.items()))
        with self._lock:
            if kind not in self._contests:
                self._contests[kind] = self._opened(*self._entered(signature))
        return self._contests[kind]

    def _entered(self, signature: Signature) -> tuple[list[Entrant], dict[str, str]]:
        ready, refused = entrants(self.implementations, signature, self.terms.threads)
        if not ready:
            said = "; ".join(f"{name}: {why}" for name, why in refused.items())
            raise SignatureError(f"no implementation of {self.name} takes {signature}: {said}")
        return ready, refused

    def _opened(self, ready: Sequence[Entrant], refused: Mapping[str, str]) -> Contest:
        starts = [start for one in ready for start in one.starts()]
        declared = msgspec.structs.replace(
            self.declared,
            backend=Field(ready),
            default=starts[0],
            reference=self.operator.reference,
            seeds=starts,
            budget=self.terms.budget or str(len(starts)),
        )
        made = Contest(self.operator.function, Space(variants=[v for one in ready for v in one.variants()]), declared)
        if self.operator.name in installed().operators:
            made.known_as = f"{HOME}:{self.operator.name}_on_{self.terms.threads}"
        return made

    def _prepare(self, mark: Hashable, args: tuple[Any, ...]) -> Launch:
        """The launch for arguments like these, the result among them."""
        launch = self.contest(args).launcher(args)
        self._ready[mark] = launch
        return launch

    def _prepare_fresh(self, mark: Hashable, inputs: tuple[Any, ...]) -> Launch:
        """The same with a new array for each result; by the implementation itself, where it has one to give."""
        args = self.whole(inputs)
        contest = self.contest(args)
        launch, empty = contest.launcher(args), partial(np.empty, args[-1].shape, args[-1].dtype)

        def fresh(*given: Any) -> Any:
            out = empty()
            launch(*given, out)
            return out

        self._fresh[mark] = made = self._own(contest.chosen, inputs) or fresh
        return made

    def _own(self, chosen: str, inputs: Sequence[Any]) -> Launch | None:
        """How an implementation returns an array of its own; not of bfloat16, nor where launches are watched."""
        if self.session.mode is Mode.RECORD or any(array.dtype.kind != "f" for array in inputs):
            return None
        return next((one.fresh for one in self.implementations if one.name == chosen), None)

    def bound(self, *args: Any) -> Launch:
        """What is called for such inputs and a result: for loops over arrays of one kind, which it does not look at."""
        return self.contest(args).launcher(args)

    def decide(self, *inputs: Any) -> Decision:
        """Who is called for such inputs, and why: stored, raced or the default, as the session's mode says."""
        args = self.whole(inputs)
        return self.contest(args).decide(*args)

    def tune(self, *args: Any, budget: Budget | None = None, fresh: bool = False) -> Decision:
        """Race, and search the knobs of implementations that have any, whatever is stored; with or without a result."""
        whole = args if len(args) == len(self.parameters) else self.whole(args)
        decision = self.contest(whole).tune(*whole, budget=budget, fresh=fresh)
        with self._lock:
            self._fresh.clear()
            self._ready.clear()
        return decision

    def budget(self) -> Budget | None:
        """The budget it was given, if any."""
        return Budget.parse(self.terms.budget) if self.terms.budget else None

    def considered(self, *inputs: Any) -> dict[str, str]:
        """Every implementation installed, and why it is not among those raced for such inputs; empty if it is."""
        signature = Signature.of(self.parameters, self.whole(inputs))
        _, refused = self._entered(signature)
        said = {one.name: refused.get(one.name, "") for one in self.implementations}
        out = {one.name: "excluded by name" for one in installed().of(self.operator) if one.name not in said}
        return said | out | installed().absent

    def problem(self, args: Sequence[Any]) -> Problem:
        """What has to be decided for a call; the result may be among `args` or not."""
        args = args if len(args) == len(self.parameters) else self.whole(args)
        return self.contest(args).problem(args)

    def example(self, sizes: Mapping[str, int]) -> list[Any]:
        """Arguments of named sizes, as the command line needs them."""
        return list(self.whole(Inputs.of_dims(self.operator.inputs, sizes, self.declared.dtype).make()))

    def make(self, inputs: Inputs) -> Sequence[Any]:
        """Arguments by a recipe."""
        return inputs.make()

    def bench(self, cases: Sequence[Inputs], cache: Path) -> Bench:
        """What a worker needs to try implementations."""
        return self.contest(cases[0].make()).bench(cases, cache)


def dispatch(
    operator: str | Operator,
    *,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    threads: int | None = None,
    budget: str | None = None,
    session: Session | None = None,
) -> Dispatched:
    """An operator that picks among its implementations by a remembered race: `dispatch("gemm")(a, b)`."""
    found = installed().operator(operator) if isinstance(operator, str) else operator
    among, out = ((one,) if isinstance(one, str) else tuple(one) for one in (only, without))
    return Dispatched(found, Terms(among, out, threads or len(os.sched_getaffinity(0)), budget), session)


@cache
def shared(operator: str, threads: int | None = None) -> Dispatched:
    """The one of that name that all of a process share; how workers find it."""
    return dispatch(operator, threads=threads)
