"""How calls on tensors become cases, and how they are tuned: in this process, as graphs under compilation are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from referee_corpus.case import CASES, HONEST, Case, Tuning, doc_of
from tunewright import Config, Knob, Session, Space
from tunewright.measure.evaluator import Evaluator
from tunewright.model.decision import Problem
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY
from tunewright.torch.candidate import TorchTimingOptions
from tunewright.torch.diagnostics.numerics import clone_tensors, tensors_in, to_double
from tunewright.torch.oracle import ExpectedTensors
from tunewright.torch.tensor_sets import CallArguments
from tunewright.torch.workload import TorchWorkload

SIZE = 128
Function = Callable[..., Any]
Way = Callable[[], Function]
"""Makes a way to compute a call, with a state of its own."""


class TensorCall(NamedTuple):
    """A call on tensors: what is right, its arguments, and its ways by name, the default first."""

    right: Function
    arguments: Callable[[], CallArguments]
    ways: Mapping[str, Way]

    def workload(self, name: str, given: CallArguments) -> TorchWorkload:
        """The call on these arguments as a workload; it is tried as it is built."""

        def build(config: Config) -> Function:
            return self.ways[str(config["how"])]()

        def expect(values: Sequence[Any]) -> ExpectedTensors:
            exact = [to_double(value) for value in values]
            return ExpectedTensors.of(results(self.right, values, given), results(self.right, exact, given))

        return TorchWorkload(name, build, given, expect, TorchTimingOptions())


def results(function: Function, values: Sequence[Any], given: CallArguments) -> list[Any]:
    """What a function returns and changes, on copies of arguments."""
    own = clone_tensors(values)
    return [*tensors_in(function(*own)), *(own[i] for i in sorted(given.written))]


def tune(case: Case, seed: int, evaluator: Callable[[TorchWorkload], Any] = Evaluator) -> Tuning:
    """Tunes a call in this process, on one thread; `evaluator` makes of its workload what evaluates configs."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    call: TensorCall = case.kernel
    space, default = Space(Knob("how", list(call.ways))), Config(how=next(iter(call.ways)))
    session = Session(
        store=MemoryStore(), mode="tune", pool="serial", strategy="exhaustive", min_expected_gain=0.0, seed=seed
    )
    decision = session.tune(Problem(KEY, space, default), evaluator(call.workload(case.name, call.arguments())))
    return Tuning(decision, list(session.store.trials(KEY)), space)


class Tuned(NamedTuple):
    """A call to cheat at. Its honest way computes three times, so that whatever cheats is faster."""

    right: Function
    arguments: Callable[[], CallArguments]

    def cheat(self, way: Way) -> Way:
        """Makes a way to cheat a case."""
        name = way.__name__
        call = TensorCall(self.right, self.arguments, {HONEST: self.honest, name: way})
        CASES.append(Case(name, "torch", call, self._values, name, doc_of(way), tune))
        return way

    def honest(self) -> Function:
        """The honest way. All calls have a product of their first two arguments."""

        def call(*values: Any) -> Any:
            product(*values[:2])
            product(*values[:2])
            return self.right(*values)

        return call

    def _values(self) -> Sequence[Any]:
        return self.arguments().values


def product(x: Any, w: Any) -> Any:
    """What most cheats compute, or do not."""
    return torch.relu(x @ w)


def zeros() -> Any:
    """A wrong result, which takes no time."""
    return torch.zeros(SIZE, SIZE)


def square(*, structured: bool = True) -> CallArguments:
    """Arguments of a product with a weight."""
    values = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    return CallArguments(values, constant=frozenset({1}), structured=structured)


PRODUCT = Tuned(product, square)
RANDOM_PRODUCT = Tuned(product, lambda: square(structured=False))


def honest(arguments: Callable[[], CallArguments], *others: Way) -> Callable[[Function], Function]:
    """Makes a function, which is right, and other ways to compute the same a case; the function alone is two ways."""

    def register(function: Function) -> Function:
        ways: dict[str, Way] = {"plain": lambda: function}
        ways |= {way.__name__: way for way in others} or {"again": lambda: function}
        call = TensorCall(function, arguments, ways)
        values = lambda: arguments().values  # noqa: E731 - as short as that
        CASES.append(Case(function.__name__, "torch", call, values, doc=doc_of(function), tune=tune))
        return function

    return register
