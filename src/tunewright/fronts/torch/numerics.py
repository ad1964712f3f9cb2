"""Numerics: compiled and not, both judged by the same model in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import torch

from tunewright.fronts.torch.patient import Patient, quietly, visit
from tunewright.report.diagnosis import Cause, Drift, Place, Symptom

WHOLE = "the whole model"
WORSE = 30
"""How many times as wrong as Python's the compiled result may be: sums in another order stay well below."""


def drifts(patient: Patient, *, layers: bool) -> list[Drift]:
    """The errors of the whole model, and where they are large or asked for, of each of its layers by itself."""
    first = Patient(patient.fn, patient.calls[:1], patient.how)
    if _random(first):
        raise ValueError("two runs with other random numbers differ; call `.eval()` to have its numerics judged")
    whole = _drift(WHOLE, first)
    if isinstance(patient.fn, torch.nn.Module) and (layers or _bad(whole, _eps(first))):
        return [whole, *(_drift(name, layer) for name, layer in _layers(first))]
    return [whole]


def symptoms(patient: Patient, found: Sequence[Drift]) -> Iterator[Symptom]:
    """Results with fewer right digits than half of those they have, or far fewer than Python's."""
    eps = _eps(patient)
    guilty = [one for one in found if _bad(one, eps)]
    inner = [one for one in guilty if one.layer != WHOLE]
    for one in inner or guilty:
        compiled = one.compiled > max(WORSE * one.eager, eps)
        whom = "compiled, though not run by Python," if compiled else "compiled or not"
        wrong = f"{one.layer}: {whom} results are off by {one.compiled:.1e} (eager {one.eager:.1e}) of their size"
        remedy = "look at this layer's generated code, and report it" if compiled else (
            "compute this layer in another way, or in double precision: where large numbers nearly cancel, digits go"
        )  # fmt: skip
        yield Symptom(Cause.NUMERICS, _place(patient, one.layer), wrong, remedy)


def _drift(name: str, patient: Patient) -> Drift:
    (arguments,) = patient.calls
    seen = visit(patient)
    with torch.no_grad(), quietly():
        right = flat(doubled(patient.fn)(*map(double, arguments)))
        eager = flat(patient.fresh()(*cloned(arguments)))
    return Drift(name, error(eager, right), error(flat(seen.results), right))


def _random(patient: Patient) -> bool:
    """Whether results depend on random numbers."""
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng(), torch.no_grad(), quietly():
            torch.manual_seed(seed)
            results.append(flat(patient.fresh()(*cloned(patient.calls[0]))))
    return not all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def _layers(patient: Patient) -> list[tuple[str, Patient]]:
    """The children of a module, each once and with the arguments it gets."""
    given: dict[str, tuple[Any, ...]] = {}
    model = patient.fresh()
    children = [(name, child) for name, child in model.named_children() if not isinstance(child, torch.nn.ModuleList)]
    handles = [child.register_forward_pre_hook(_keeper(given, name)) for name, child in children]
    with torch.no_grad():
        model(*patient.calls[0])
    for handle in handles:
        handle.remove()
    return [(name, Patient(child, (given[name],), patient.how)) for name, child in children if given.get(name)]


def _keeper(given: dict[str, tuple[Any, ...]], name: str) -> Callable[..., None]:
    """A hook that keeps the arguments of the first call."""

    def keep(_: Any, arguments: tuple[Any, ...]) -> None:
        given.setdefault(name, cloned(arguments))

    return keep


def _bad(one: Drift, eps: float) -> bool:
    return not one.compiled <= eps**0.5 or one.compiled > max(WORSE * one.eager, 100 * eps)


def _eps(patient: Patient) -> float:
    """The coarsest precision among arguments and weights."""
    weights = patient.fn.parameters() if isinstance(patient.fn, torch.nn.Module) else ()
    known = [one for one in (*flat(patient.calls[0]), *weights) if one.dtype.is_floating_point]
    return max((float(torch.finfo(one.dtype).eps) for one in known), default=float(torch.finfo(torch.float32).eps))


def _place(patient: Patient, layer: str) -> Place:
    if layer == WHOLE:
        return patient.place()
    return Patient(patient.fn.get_submodule(layer), patient.calls, asked=patient.place()).place()


def error(got: Sequence[Any], right: Sequence[Any]) -> float:
    """The distance of results from the right ones, as a share of their size."""
    worst = 0.0
    for one, other in zip(got, right, strict=True):
        if other.dtype.is_floating_point and other.numel():
            apart = (one.double() - other).norm() / other.norm().clamp(min=1e-300)
            worst = max(worst, float(apart) if isfinite(float(apart)) else inf)
    return worst


def flat(value: Any) -> list[Any]:
    """The tensors in a result."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for one in inside for tensor in flat(one)]


def double(value: Any) -> Any:
    """An argument in double precision, if it is a tensor of numbers that are not whole."""
    return value.detach().double() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value


def doubled(fn: Any) -> Any:
    """A model in double precision."""
    return copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn


def cloned(values: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments that may be written to."""
    return tuple(value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values)
