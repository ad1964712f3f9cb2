"""Doctor: runs a model under observation and says what costs it time or digits, where, and what to change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from tunewright.backends.inductor import adapter
from tunewright.errors import SignatureError
from tunewright.fronts.torch import breaks, caching, casts, numerics, options, overhead, recompiling
from tunewright.fronts.torch.patient import Patient, visit
from tunewright.fronts.torch.phases import phases
from tunewright.report.diagnosis import Diagnosis, Drift, Place, Symptom, ranked

T = TypeVar("T")

CALLS = 1_000

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


def doctor(
    fn: Any, *args: Any, more: Sequence[tuple[Any, ...]] = (), calls: int = CALLS, layers: bool = False, **how: Any
) -> Diagnosis:
    """What is wrong with a model when it is compiled and called with `args`, then with each of `more`.

    What else is given goes to `torch.compile`; a model that is compiled already is looked at as it was compiled.
    Symptoms are ranked by the seconds they cost a process that makes `calls` calls. With `layers`, the error of each
    layer is told even where the whole is right. Code that this process has compiled is dropped on the way.
    """
    frame = sys._getframe(1)
    return examine(fn, (args, *more), how, calls=calls, layers=layers, asked=_asked(frame))


def examine_made(
    made: Any, asked: Place, how: dict[str, Any], *, calls: int = CALLS, layers: bool = False
) -> Diagnosis:
    """The same for a model and the arguments of each call, as a function returned them; in eval mode, no gradients."""
    model, given = parted(made)
    with torch.set_grad_enabled(torch.is_grad_enabled() and bool(getattr(model, "training", True))):
        return examine(model, given, how, asked=asked, calls=calls, layers=layers)


def parted(made: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """What a function made, as a model and the arguments of each call."""
    if not isinstance(made, tuple) or len(made) < 2:
        raise SignatureError("make() must return a model and the arguments of each call: `return model, (x, y)`")
    model, *given = made
    calls = [(one,) if isinstance(one, torch.Tensor) else one for one in given]
    if not all(isinstance(one, tuple) for one in calls):
        raise SignatureError("the arguments of a call are one tensor or a tuple: `return model, (x, y)`")
    return model, calls


def examine(
    fn: Any,
    given: Sequence[tuple[Any, ...]],
    how: dict[str, Any],
    *,
    asked: Place,
    calls: int = CALLS,
    layers: bool = False,
) -> Diagnosis:
    """The same for a list of calls, asked for at some place."""
    adapter.trusted()
    if not given or not all(isinstance(one, tuple) for one in given):
        raise SignatureError("a model is looked at in calls: give the arguments of each as a tuple")
    inner, known = adapter.original(fn)
    patient = Patient(inner, tuple(given), {**known, **how}, asked)
    seen = visit(patient)
    notes: list[str] = []
    taken = _looked(notes, "guards", lambda: overhead.times(patient, seen, hollow=True))
    taken = taken or _looked(notes, "times", lambda: overhead.times(patient, seen, hollow=False)) or {}
    found = list(breaks.symptoms(seen.records, *overhead.shares(seen, taken)))
    found += overhead.symptoms(patient, taken) if not breaks.given_up(seen.records) else ()
    drifts: list[Drift] = _looked(notes, "numerics", lambda: numerics.drifts(patient, layers=layers)) or []
    found += numerics.symptoms(patient, drifts)
    parts: dict[str, Callable[[], Iterable[Symptom]]] = {
        "recompilations": lambda: recompiling.symptoms(patient, seen),
        "casts": lambda: casts.symptoms(patient),
        "caches": lambda: caching.symptoms(patient, seen),
        "options": lambda: options.symptoms(patient),
    }
    for name, part in parts.items():
        found += _looked(notes, name, lambda part=part: list(part())) or []  # type: ignore[misc]
    return Diagnosis(
        patient.name,
        calls,
        ranked(found, calls),
        phases(seen.records),
        tuple(taken.items()),
        tuple(drifts),
        tuple(notes),
    )


def _looked(notes: list[str], name: str, look: Callable[[], T]) -> T | None:
    """What a look shows; a model that cannot be looked at so is no reason to say nothing of the rest."""
    try:
        return look()
    except _REFUSALS as error:
        notes.append(f"{name} were not looked at: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        return None


def _asked(frame: Any) -> Place:
    return Place(frame.f_code.co_filename, frame.f_lineno)
