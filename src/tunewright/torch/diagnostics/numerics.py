"""Numerics: errors of compiled and eager results against the same model in double precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import torch

from tunewright.torch.calls import Call
from tunewright.torch.diagnostics.subject import Subject, observe, suppress_output
from tunewright.torch.report.diagnosis import Cause, CodeLocation, LayerError, Symptom

WHOLE_MODEL = "the whole model"
MAX_RATIO = 30
"""How many times the eager error the compiled error may be; sums in another order stay well below."""


def layer_errors(subject: Subject, *, layers: bool) -> list[LayerError]:
    """Returns the error of the whole model, and if it is large or `layers` is set, of each layer by itself."""
    first = Subject(subject.fn, subject.calls[:1], subject.options)
    if _is_random(first):
        raise ValueError("two runs with other random numbers differ; call `.eval()` to have its numerics judged")
    whole = _layer_error(WHOLE_MODEL, first)
    if isinstance(subject.fn, torch.nn.Module) and (layers or _is_bad(whole, _eps(first))):
        return [whole, *(_layer_error(name, layer) for name, layer in _layers(first))]
    return [whole]


def symptoms(subject: Subject, errors: Sequence[LayerError]) -> Iterator[Symptom]:
    """Yields results that have lost more than half of their digits, or have far fewer than eager ones."""
    eps = _eps(subject)
    bad = [error for error in errors if _is_bad(error, eps)]
    layers = [error for error in bad if error.layer != WHOLE_MODEL]
    for error in layers or bad:
        by_compiler = error.compiled > max(MAX_RATIO * error.eager, eps)
        when = "compiled, though not run by Python," if by_compiler else "compiled or not"
        wrong = f"{error.layer}: {when} results are off by {error.compiled:.1e} (eager {error.eager:.1e}) of their size"
        remedy = "look at this layer's generated code, and report it" if by_compiler else (
            "compute this layer in another way, or in double precision: digits are lost where large numbers nearly "
            "cancel"
        )  # fmt: skip
        yield Symptom(Cause.NUMERICS, _location(subject, error.layer), wrong, remedy)


def _layer_error(name: str, subject: Subject) -> LayerError:
    (call,) = subject.calls
    observation = observe(subject)
    with torch.no_grad(), suppress_output():
        exact = tensors_in(call.with_tensors(to_double).run(in_double_precision(subject.fn)))
        eager = tensors_in(call.with_tensors(_clone).run(subject.fresh()))
    compiled = tensors_in(observation.results)
    return LayerError(name, relative_error(eager, exact), relative_error(compiled, exact))


def _is_random(subject: Subject) -> bool:
    """Whether results depend on random numbers."""
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng(), torch.no_grad(), suppress_output():
            torch.manual_seed(seed)
            results.append(tensors_in(subject.calls[0].with_tensors(_clone).run(subject.fresh())))
    return not all(torch.equal(first, second) for first, second in zip(*results, strict=True))


def _layers(subject: Subject) -> list[tuple[str, Subject]]:
    """Returns the children of a module, each with its first call."""
    calls: dict[str, Call] = {}
    model = subject.fresh()
    children = [(name, child) for name, child in model.named_children() if not isinstance(child, torch.nn.ModuleList)]
    handles = [child.register_forward_pre_hook(_call_hook(calls, name), with_kwargs=True) for name, child in children]
    with torch.no_grad():
        subject.calls[0].run(model)
    for handle in handles:
        handle.remove()
    return [(name, Subject(child, (calls[name],), subject.options)) for name, child in children if name in calls]


def _call_hook(calls: dict[str, Call], name: str) -> Callable[..., None]:
    """Returns a hook that keeps the first call."""

    def keep(_: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        calls.setdefault(name, Call(*arguments, **keywords).with_tensors(_clone))

    return keep


def _is_bad(error: LayerError, eps: float) -> bool:
    return not error.compiled <= eps**0.5 or error.compiled > max(MAX_RATIO * error.eager, 100 * eps)


def _eps(subject: Subject) -> float:
    """Returns the coarsest precision among arguments and weights."""
    weights = subject.fn.parameters() if isinstance(subject.fn, torch.nn.Module) else ()
    dtypes = [tensor.dtype for tensor in (*subject.calls[0].tensors(), *weights) if tensor.dtype.is_floating_point]
    return max((float(torch.finfo(dtype).eps) for dtype in dtypes), default=float(torch.finfo(torch.float32).eps))


def _location(subject: Subject, layer: str) -> CodeLocation:
    if layer == WHOLE_MODEL:
        return subject.location()
    return Subject(subject.fn.get_submodule(layer), subject.calls, caller=subject.location()).location()


def relative_error(results: Sequence[Any], exact: Sequence[Any]) -> float:
    """Returns the largest distance of results from the exact ones, relative to their norm."""
    worst = 0.0
    for result, expected in zip(results, exact, strict=True):
        if is_real_or_complex(expected) and expected.numel():
            distance = float(distances(result, expected).norm() / finite_part(expected).norm().clamp(min=1e-300))
            worst = max(worst, distance if isfinite(distance) else inf)
    return worst


def distances(result: Any, exact: Any) -> Any:
    """Returns how far each element is from the exact one; equal infinities are not apart, nor are NaNs."""
    result, exact = as_reals(result), as_reals(exact)
    apart = (result - exact).abs()
    if bool(apart.isfinite().all()):
        return apart
    same = (result == exact) | (result.isnan() & exact.isnan())
    return torch.where(same, 0.0, apart).nan_to_num(nan=inf, posinf=inf)


def finite_part(tensor: Any) -> Any:
    """Returns a tensor in double precision with 0 for infinities and NaNs."""
    return as_reals(tensor).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def is_real_or_complex(tensor: Any) -> bool:
    """Whether a tensor has floating-point or complex numbers."""
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def as_reals(tensor: Any) -> Any:
    """Returns a tensor in double precision; the parts of complex numbers along a further dimension."""
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).double()


def tensors_in(value: Any) -> list[Any]:
    """Returns the tensors in a nested result."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def to_double(value: Any) -> Any:
    """Returns a tensor of real or complex numbers in double precision; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not is_real_or_complex(value):
        return value
    return value.detach().to(torch.complex128 if value.is_complex() else torch.float64)


def in_double_precision(fn: Any) -> Any:
    """Returns a model in double precision."""
    return copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn


def clone_tensors(values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns arguments whose tensors may be written to."""
    return tuple(_clone(value) if isinstance(value, torch.Tensor) else value for value in values)


def _clone(tensor: Any) -> Any:
    return tensor.detach().clone()
