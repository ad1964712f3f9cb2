"""Honest kernels in C that do what may look suspicious: what they do is in the C files, under the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tunewright as tw
from referee_corpus import python_honest, python_types
from referee_corpus import python_inputs as made
from referee_corpus.case import product, register
from tunewright.kernel.tuned import Tuned

SQUARE = {"N": 128}
VECTOR = {"N": 40_000}

_chance = np.random.default_rng()


def honest(
    file: str,
    sizes: Mapping[str, int] | None = None,
    arguments: Callable[[], Sequence[Any]] | None = None,
    ways: Sequence[int] = (0, 1),
    **options: Any,
) -> Callable[[Callable[..., Any]], Tuned]:
    """An honest kernel in C: a function of a file, of the same name."""
    space = tw.Space(tw.Knob("WAY", list(ways)))

    def make(function: Callable[..., Any]) -> Tuned:
        backend = tw.C(file, function.__name__, flags="-O2 -march=native -pthread", sizes="arguments")
        return register(function, space, {"sizes": sizes, "arguments": arguments}, {**options, "backend": backend})

    return make


def _vectors(*dtypes: str) -> Callable[[], Sequence[Any]]:
    """Arguments that are vectors of these dtypes."""
    return lambda: [(4 * _chance.random(40_000)).astype(dtype) for dtype in dtypes]


def _like(name: str) -> Callable[..., Any]:
    """The reference of the kernel of this name in Python."""
    kernel: Tuned = next(vars(module)[name] for module in (python_honest, python_types, made) if hasattr(module, name))
    assert kernel.declaration.reference is not None
    return kernel.declaration.reference


# Arrays that are read and written.


@honest("honest.c", VECTOR, reference=_like("in_place"))
def in_place(x: tw.InOut("N")): ...


@honest("honest.c", SQUARE, reference=_like("accumulates_into"))
def accumulates_into(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.InOut("N", "N")): ...


@honest("honest.c", VECTOR, reference=_like("writes_in_part"))
def writes_in_part(x: tw.In("N"), y: tw.InOut("N")): ...


@honest("honest.c", {"N": 2000}, reference=np.sort)
def sorts_in_place(x: tw.InOut("N")): ...


# Sizes, types and scalars.


@honest("honest.c", {"N": 1}, reference=lambda x: 2 * x)
def one_element(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", {"N": 8}, reference=lambda x: x.sum(keepdims=True))
def few_elements(x: tw.In("N"), y: tw.Out(1)): ...


@honest("honest.c", {**VECTOR, "shift": 3}, reference=_like("scalars"))
def scalars(x: tw.In("N"), y: tw.InOut("N"), alpha: float, shift: int): ...


@honest("honest.c", {"N": 96}, reference=product, dtype="int64")
def integer_product(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N")): ...


@honest("honest.c", None, _vectors("float32", "bool"), reference=lambda x: np.abs(x) > 1)
def makes_a_mask(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", None, _vectors("float32", "bool", "float32"), reference=lambda x, mask: np.where(mask, x, 0))
def takes_a_mask(x: tw.In("N"), mask: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", VECTOR, reference=_like("counts"), dtype="int32")
def counts(x: tw.In("N"), y: tw.Out(16)): ...


@honest("honest.c", VECTOR, reference=lambda x: np.clip(40 * x.astype(int) - 30, 0, 255), dtype="uint8")
def saturates(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", VECTOR, reference=_like("half_precision"), dtype="float16")
def half_precision(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", VECTOR, reference=_like("complex_numbers"), dtype="complex64")
def complex_numbers(z: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", VECTOR, reference=_like("gives_nan_and_inf"))
def gives_nan_and_inf(x: tw.In("N"), y: tw.Out("N")): ...


# Reductions, several outputs, and the like.


@honest("honest.c", {"M": 64, "N": 1000}, reference=lambda x: x.sum(axis=1))
def sums(x: tw.In("M", "N"), y: tw.Out("M")): ...


@honest("honest.c", {"M": 64, "N": 500}, reference=_like("several_outputs"))
def several_outputs(x: tw.In("M", "N"), mean: tw.Out("M"), variance: tw.Out("M")): ...


@honest("honest.c", VECTOR, ways=(64, 0, 1024), reference=np.cumsum, dtype="float64")
def running_sums(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest.c", {"M": 64, "N": 256}, reference=_like("softmax_in_context"), regime="context")
def softmax(x: tw.In("M", "N"), y: tw.Out("M", "N")): ...


@honest("honest.c", {"M": 300, "N": 200}, reference=np.transpose, regime="cold")
def transposes(x: tw.In("M", "N"), y: tw.Out("N", "M")): ...


@honest("honest.c", VECTOR)
def without_reference(x: tw.In("N"), y: tw.Out("N")): ...


# Kept between calls.


@honest("honest_state.c", {"M": 4, "K": 256, "N": 256}, reference=product)
def packed_weights(a: tw.In("M", "K"), b: tw.In("K", "N", constant=True), c: tw.Out("M", "N")): ...


@honest("honest_state.c", {"M": 64, "N": 64}, reference=_like("norms_of_weights"))
def norms_of_weights(x: tw.In("M", "N"), w: tw.In(512, "N", constant=True), y: tw.Out("M", "N")): ...


@honest("honest_state.c", VECTOR, reference=lambda x: x * x + (x * x)[::-1])
def scratch_memory(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_state.c", None, _vectors("uint8", "float32"), reference=_like("table_built_once"))
def table_built_once(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_state.c", VECTOR, reference=lambda x: np.sqrt(x * x + 1))
def scratch_in_arrays(x: tw.In("N"), y: tw.Out("N")): ...


# Not the same from call to call.


@honest("honest_state.c", VECTOR, reference=lambda x: np.abs(x).sum(keepdims=True), tolerance=1e-3)
def sums_in_any_order(x: tw.In("N"), y: tw.Out(1)): ...


@honest("honest_state.c", {"N": 200_000}, reference=lambda x: (x * x).mean(keepdims=True), tolerance=0.2)
def sampled_mean(x: tw.In("N"), y: tw.Out(1)): ...


@honest("honest_state.c", VECTOR, reference=lambda x: x, tolerance=0.01)
def rounds_by_chance(x: tw.In("N"), y: tw.Out("N")): ...


# Threads; very slow.


@honest("honest_state.c", SQUARE, reference=product)
def joins_its_threads(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N")): ...


@honest("honest_state.c", SQUARE, reference=product, threads=2)
def keeps_its_thread(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N")): ...


@honest("honest_state.c", VECTOR, reference=lambda x: np.abs(x).sum(keepdims=True), tolerance=1e-3)
def adds_as_threads_end(x: tw.In("N"), y: tw.Out(1)): ...


def _hard(x: Any) -> Any:
    for _ in range(30):
        x = np.sin(x) + np.cos(x)
    return x


@honest("honest_state.c", VECTOR, reference=_hard, tolerance=1e-3)
def takes_long(x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_state.c", {"N": 25_000}, reference=_hard, tolerance=1e-3)
def takes_long_in_place(x: tw.InOut("N")): ...


# Inputs from a function of the user.


@honest("honest_inputs.c", {"N": 2000}, inputs=made.sorted_edges, reference=np.searchsorted)
def finds_places(edges: tw.In(512), x: tw.In("N"), place: tw.Out("N")): ...


@honest("honest_inputs.c", {"N": 2000}, inputs=made.cumulated, reference=_like("draws_from"))
def draws_from(cdf: tw.In(256), u: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_inputs.c", {"N": 2000}, inputs=made.sparse, reference=_like("sparse_product"))
def sparse_product(begins: tw.In, columns: tw.In, values: tw.In, x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_inputs.c", {"N": 500}, inputs=made.probabilities, reference=_like("impurity"))
def impurity(p: tw.In(64, "N"), y: tw.Out(64)): ...


@honest("honest_inputs.c", {"N": 96}, inputs=made.directions, reference=_like("cosines"))
def cosines(x: tw.In("N", 64), y: tw.In("N", 64), c: tw.Out("N", "N")): ...


@honest("honest_inputs.c", {"N": 20_000}, inputs=made.permutation, reference=_like("reorders"))
def reorders(place: tw.In("N"), x: tw.In("N"), y: tw.Out("N")): ...


@honest("honest_inputs.c", {"N": 64}, inputs=made.symmetric, reference=np.linalg.solve)
def solves(a: tw.In("N", "N"), b: tw.In("N"), x: tw.Out("N")): ...


@honest("honest_inputs.c", {"N": 40_000}, inputs=made.large_and_small, reference=np.sqrt)
def roots_of_extremes(x: tw.In("N"), y: tw.Out("N")): ...
