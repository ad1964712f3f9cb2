"""Doctor: runs a model under observation and reports what costs time or precision, where, and what to change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from tunewright.errors import SignatureError
from tunewright.torch.calls import Call, make_call, read_calls, split_keywords
from tunewright.torch.diagnostics import caching, casts, graph_breaks, numerics, options, overhead, recompiles
from tunewright.torch.diagnostics.compile_phases import phases
from tunewright.torch.diagnostics.subject import Subject, observe
from tunewright.torch.inductor import adapter, releases
from tunewright.torch.report.diagnosis import CodeLocation, Diagnosis, LayerError, Symptom, rank

T = TypeVar("T")

CALLS = 1_000

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


def doctor(
    fn: Any, *args: Any, more: Sequence[Any] = (), calls: int = CALLS, layers: bool = False, **keywords: Any
) -> Diagnosis:
    """Diagnoses a model that is compiled and called with `args` and `keywords`, then with each of `more`.

    Keywords of `torch.compile`, such as `dynamic`, go there; a model that is compiled already keeps its options. A call
    of `more` is a tuple of arguments, a dict of keywords, or `Call(x, mask=y)`. Symptoms are ranked by the seconds they
    cost a process that makes `calls` calls. With `layers`, the error of each layer is reported even
    where the whole model is right. Drops the code that this process has compiled so far.
    """
    frame = sys._getframe(1)
    caller = CodeLocation(frame.f_code.co_filename, frame.f_lineno)
    own, how = split_keywords(keywords)
    return examine(fn, (make_call(args, own), *more), how, calls=calls, layers=layers, caller=caller)


def examine_target(
    target: Any, caller: CodeLocation, compile_options: dict[str, Any], *, calls: int = CALLS, layers: bool = False
) -> Diagnosis:
    """Diagnoses a model and calls as a function returned them; without gradients in eval mode."""
    model, arguments = split_target(target)
    with torch.set_grad_enabled(torch.is_grad_enabled() and bool(getattr(model, "training", True))):
        return examine(model, arguments, compile_options, caller=caller, calls=calls, layers=layers)


def split_target(target: Any) -> tuple[Any, tuple[Call, ...]]:
    """Returns what a function made as a model and its calls."""
    if not isinstance(target, tuple) or len(target) < 2:
        raise SignatureError("make() must return a model and the arguments of each call: `return model, (x, y)`")
    model, *arguments = target
    return model, read_calls(arguments)


def examine(
    fn: Any,
    arguments: Sequence[Any],
    compile_options: dict[str, Any],
    *,
    caller: CodeLocation,
    calls: int = CALLS,
    layers: bool = False,
) -> Diagnosis:
    """Diagnoses a model with the arguments of each call; `caller` is the line that asked for it."""
    releases.require_supported()
    inner, known = adapter.unwrap_compiled(fn)
    subject = Subject(inner, read_calls(arguments), {**known, **compile_options}, caller)
    observation = observe(subject)
    records, notes = observation.records, []  # type: tuple[list[adapter.Record], list[str]]
    times = _try_check(notes, "guards", lambda: overhead.measure_times(subject, observation, fixed=True))
    times = times or _try_check(notes, "times", lambda: overhead.measure_times(subject, observation, fixed=False)) or {}
    symptoms = list(graph_breaks.symptoms(records, *overhead.break_costs(observation, times)))
    symptoms += overhead.symptoms(subject, times) if not graph_breaks.has_fallback(records) else ()
    errors: list[LayerError] = (
        _try_check(notes, "numerics", lambda: numerics.layer_errors(subject, layers=layers)) or []
    )
    symptoms += numerics.symptoms(subject, errors)
    checks: dict[str, Callable[[], Iterable[Symptom]]] = {
        "recompilations": lambda: recompiles.symptoms(subject, observation),
        "casts": lambda: casts.symptoms(subject),
        "caches": lambda: caching.symptoms(subject, observation),
        "options": lambda: options.symptoms(subject),
    }
    for name, check in checks.items():
        symptoms += _try_check(notes, name, lambda check=check: list(check())) or []  # type: ignore[misc]
    return Diagnosis(
        subject.name,
        calls,
        rank(symptoms, calls),
        phases(records),
        tuple(times.items()),
        tuple(errors),
        tuple(notes),
    )


def _try_check(notes: list[str], name: str, check: Callable[[], T]) -> T | None:
    """Returns the result of a check; adds a note if the model cannot be checked so, and the others go on."""
    try:
        return check()
    except _REFUSALS as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        notes.append(f"{name} were not checked: {reason}")
        return None
