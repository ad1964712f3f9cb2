"""Dispatch of an operator to the implementation that won the race for such arguments."""

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
from tunewright.kernel.declaration import Declaration
from tunewright.kernel.generated_call import generate_call
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Decision, Problem
from tunewright.model.signature import CallSignature, Signature
from tunewright.operators.operator import Implementation, Operator
from tunewright.operators.registry import installed
from tunewright.operators.tuned_operator import (
    ImplementationBackend,
    OperatorKernel,
    PreparedImplementation,
    prepare_implementations,
)
from tunewright.ports.backend import Launch
from tunewright.session import Session, current_session
from tunewright.settings import Mode
from tunewright.spaces.space import Space

MODULE = "tunewright.operators"
"""Module in which other processes find operators by name."""


class DispatchOptions(msgspec.Struct, frozen=True):
    """Options of a dispatched operator.

    `only` and `without` name implementations. Without a `budget` each implementation is raced with its default config;
    with one, knobs are searched too.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    threads: int = 1
    budget: str | None = None

    def allows(self, name: str) -> bool:
        """Returns whether an implementation may be chosen."""
        return (not self.only or name in self.only) and name not in self.without


class DispatchedOperator:
    """An operator that is called like a function; `into` writes the result to the last argument instead."""

    __call__: Callable[..., Any]
    into: Callable[..., Any]

    def __init__(self, operator: Operator, options: DispatchOptions, session: Session | None = None) -> None:
        self.operator, self.options = operator, options
        self.parameters = operator.parameters
        self.declaration = Declaration(name=operator.name, threads=options.threads, session=session)
        self.implementations = self._allowed_implementations()
        self._kernels: dict[tuple[str, ...], OperatorKernel] = {}
        self._fresh_launches: dict[Hashable, Launch] = {}
        self._launches: dict[Hashable, Launch] = {}
        self._lock = RLock()
        inputs, parameters = operator.inputs, operator.parameters
        calls = {
            "__call__": generate_call(inputs, CallSignature.of(inputs), self._fresh_launches, self._prepare_fresh),
            "into": generate_call(parameters, CallSignature.of(parameters), self._launches, self._prepare),
            "__doc__": operator.function.__doc__,
        }
        # As with tuned kernels: Python looks up `__call__` on the class.
        self.__class__ = type("DispatchedOperator", (DispatchedOperator,), calls)

    def _allowed_implementations(self) -> list[Implementation]:
        implementations = installed().of(self.operator)
        names = {item.name for item in implementations}
        if not names:
            raise PluginError(f"{self.operator.name} has no implementation; install a package that has one")
        if unknown := sorted({*self.options.only, *self.options.without} - names):
            absent = installed().absent
            reason = f" ({absent[unknown[0]]})" if unknown[0] in absent else ""
            known = ", ".join(sorted(names))
            raise PluginError(f"{self.operator.name} has no implementation {unknown[0]!r}{reason}; there are: {known}")
        allowed = [item for item in implementations if self.options.allows(item.name)]
        if not allowed:
            raise PluginError(
                f"every implementation of {self.operator.name} is excluded; leave one of {', '.join(sorted(names))}"
            )
        return allowed

    @property
    def name(self) -> str:
        """Name of the operator."""
        return self.operator.name

    @property
    def session(self) -> Session:
        """The operator's own session, else that of the process."""
        return self.declaration.session or current_session()

    @property
    def dims(self) -> list[str]:
        """Names of the dimensions."""
        roles = [p.role for p in self.operator.inputs if p.role]
        return list(dict.fromkeys(d for role in roles for d in role.dims if isinstance(d, str)))

    def using(self, session: Session) -> None:
        """Set the session of the operator, and drop cached choices."""
        with self._lock:
            self.declaration = msgspec.structs.replace(self.declaration, session=session)
            for cached in (self._kernels, self._fresh_launches, self._launches):
                cached.clear()

    def with_output(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the inputs with a new array for the result."""
        shape = self.operator.shape(*(array.shape for array in inputs))
        if min(shape, default=1) < 1:
            raise SignatureError(f"the result of {self.name} is empty: {shape}; call it with larger arrays")
        return (*inputs, np.empty(shape, inputs[0].dtype))

    def kernel_for(self, args: Sequence[Any]) -> OperatorKernel:
        """Returns the tuned kernel for arguments like these, including the result."""
        signature = Signature.of(self.parameters, args)
        key = (*signature.args, *(f"{name}={size}" for name, size in signature.dims.items()))
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._make_kernel(self._prepare_implementations(signature)[0])
        return self._kernels[key]

    def _prepare_implementations(self, signature: Signature) -> tuple[list[PreparedImplementation], dict[str, str]]:
        prepared, rejected = prepare_implementations(self.implementations, signature, self.options.threads)
        if not prepared:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in rejected.items())
            raise SignatureError(f"no implementation of {self.name} takes {signature}: {reasons}")
        return prepared, rejected

    def _make_kernel(self, prepared: Sequence[PreparedImplementation]) -> OperatorKernel:
        starts = [start for item in prepared for start in item.starts()]
        declared = msgspec.structs.replace(
            self.declaration,
            backend=ImplementationBackend(prepared),
            default=starts[0],
            reference=self.operator.reference,
            seeds=starts,
            budget=self.options.budget or str(len(starts)),
        )
        space = Space(variants=[variant for item in prepared for variant in item.variants()])
        kernel = OperatorKernel(self.operator.function, space, declared)
        if self.operator.name in installed().operators:
            kernel.target_name = f"{MODULE}:{self.operator.name}_on_{self.options.threads}"
        return kernel

    def _prepare(self, key: Hashable, args: tuple[Any, ...]) -> Launch:
        """Returns the launch for arguments like these, including the result."""
        launch = self.kernel_for(args).launcher(args)
        self._launches[key] = launch
        return launch

    def _prepare_fresh(self, key: Hashable, inputs: tuple[Any, ...]) -> Launch:
        """Returns a launch with a new array for each result, by the implementation itself if it has one."""
        args = self.with_output(inputs)
        kernel = self.kernel_for(args)
        launch, empty = kernel.launcher(args), partial(np.empty, args[-1].shape, args[-1].dtype)

        def allocate_and_launch(*arrays: Any) -> Any:
            out = empty()
            launch(*arrays, out)
            return out

        self._fresh_launches[key] = fresh = self._fresh_function(kernel.chosen, inputs) or allocate_and_launch
        return fresh

    def _fresh_function(self, chosen: str, inputs: Sequence[Any]) -> Launch | None:
        """Returns the `fresh` function of an implementation; None for bfloat16 and while launches are recorded."""
        if self.session.mode is Mode.RECORD or any(array.dtype.kind != "f" for array in inputs):
            return None
        return next((item.fresh for item in self.implementations if item.name == chosen), None)

    def bound(self, *args: Any) -> Launch:
        """Returns the launch for such inputs and a result, for loops over arrays of one kind; it checks nothing."""
        return self.kernel_for(args).launcher(args)

    def decide(self, *inputs: Any) -> Decision:
        """Returns which implementation is called for such inputs, and why, according to the session's mode."""
        args = self.with_output(inputs)
        return self.kernel_for(args).decide(*args)

    def tune(self, *args: Any, budget: Budget | None = None, fresh: bool = False) -> Decision:
        """Race the implementations and search their knobs, whatever is stored; with or without a result in `args`."""
        args = args if len(args) == len(self.parameters) else self.with_output(args)
        decision = self.kernel_for(args).tune(*args, budget=budget, fresh=fresh)
        with self._lock:
            self._fresh_launches.clear()
            self._launches.clear()
        return decision

    def budget(self) -> Budget | None:
        """Returns the budget of the options, if any."""
        return Budget.parse(self.options.budget) if self.options.budget else None

    def exclusion_reasons(self, *inputs: Any) -> dict[str, str]:
        """Returns for each installed implementation why it is not raced for such inputs; "" if it is."""
        signature = Signature.of(self.parameters, self.with_output(inputs))
        _, rejected = self._prepare_implementations(signature)
        reasons = {item.name: rejected.get(item.name, "") for item in self.implementations}
        excluded = {item.name: "excluded by name" for item in installed().of(self.operator) if item.name not in reasons}
        return reasons | excluded | installed().absent

    def problem(self, args: Sequence[Any]) -> Problem:
        """Returns the problem of a call; `args` may include the result or not."""
        args = args if len(args) == len(self.parameters) else self.with_output(args)
        return self.kernel_for(args).problem(args)

    def example(self, sizes: Mapping[str, int]) -> list[Any]:
        """Returns arguments of named sizes, for the command line."""
        return list(self.with_output(Inputs.of_dims(self.operator.inputs, sizes, self.declaration.dtype).make()))

    def make(self, inputs: Inputs) -> Sequence[Any]:
        """Returns the arguments that `inputs` describes."""
        return inputs.make()

    def make_evaluator(self, cases: Sequence[Inputs], cache: Path) -> Evaluator:
        """Returns the evaluator that a worker needs."""
        return self.kernel_for(cases[0].make()).make_evaluator(cases, cache)


def dispatch(
    operator: str | Operator,
    *,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    threads: int | None = None,
    budget: str | None = None,
    session: Session | None = None,
) -> DispatchedOperator:
    """Returns an operator that chooses its implementation by a stored race: `dispatch("gemm")(a, b)`."""
    if isinstance(operator, str):
        operator = installed().operator(operator)
    included, excluded = ((names,) if isinstance(names, str) else tuple(names) for names in (only, without))
    options = DispatchOptions(included, excluded, threads or len(os.sched_getaffinity(0)), budget)
    return DispatchedOperator(operator, options, session)


@cache
def shared_operator(operator: str, threads: int | None = None) -> DispatchedOperator:
    """Returns the operator that a process shares; workers find it this way."""
    return dispatch(operator, threads=threads)
