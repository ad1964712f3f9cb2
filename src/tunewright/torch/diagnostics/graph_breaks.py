"""Graph breaks: where a graph ends before the model does, why, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tunewright.torch.diagnostics.trace_events import (
    CompileMetrics,
    TraceEvent,
    break_location,
    classify,
    group_symptoms,
)  # fmt: skip
from tunewright.torch.inductor.adapter import BREAK, Record
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_LEAD = re.compile(r"(?:Encountered graph break when|Failed to handle graph break)[^\n]*\n\s*")
_HINT = re.compile(r"^\s*Hint: .*$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_EXPLANATION = re.compile(r"Explanation: (.+)")

_PATTERNS = (
    (Cause.FUNCTION, r"autograd\.Function|autograd_function"),
    (Cause.PRINT, r"builtin operator `print`|logging\.Logger method|builtin `_warnings\.warn`"),
    (Cause.DISABLED, r"torch\.compiler\.disable|torch\._dynamo\.(?:disable|graph_break)"),
    (Cause.ITEM, r"Tensor\.item\(\)|tolist\(\)|_local_scalar_dense"),
    (Cause.BRANCH, r"(?i)data-dependent"),
    (Cause.SHAPE, r"Dynamic shape operator"),
    (Cause.NUMPY, r"(?i)numpy"),
)

REMEDIES = {
    Cause.PRINT: "take it out of the model, or put it under `if not torch.compiler.is_compiling():`",
    Cause.ITEM: "keep the value in a tensor; where a number is needed, "
    "set `torch._dynamo.config.capture_scalar_outputs = True`",
    Cause.NUMPY: "use the function of torch that does the same; else compute it outside of the model, or wrap it "
    "with `torch.library.custom_op`",
    Cause.BRANCH: "compute both and choose with `torch.where`, or use `torch.cond`",
    Cause.SHAPE: "keep the size fixed with a mask (`torch.where`), or set "
    "`torch._dynamo.config.capture_dynamic_output_shape_ops = True`",
    Cause.CALL: "call it once outside of the model and pass in the result, or wrap it with `torch.library.custom_op`",
    Cause.FUNCTION: "leave only tensor arithmetic in its `forward` and `backward`; or make it a "
    "`torch.library.custom_op` with `register_autograd`",
    Cause.DISABLED: "take `torch.compiler.disable` (or `graph_break()`) away from what is called here",
}


def parse_break(record: Record) -> TraceEvent:
    """Returns a graph break from its record."""
    text = record.text.partition("\nTraceback (most recent")[0]
    head = text.partition("\nUser code traceback:")[0]
    reason = _LEAD.sub("", head.partition("Graph Break Reason: ")[2] or head)
    cause = classify(_HINT.sub("", reason), _PATTERNS, Cause.CALL)  # hints name other possible causes
    explanation = _EXPLANATION.search(reason)
    message = explanation.group(1) if explanation else reason.strip().partition("\n")[0]
    fallback = "falling back to eager" in text or "fall back to eager" in text
    message = _ADDRESS.sub("", message).strip().rstrip(".")
    return TraceEvent(cause, break_location(text), message, record.frame, fallback=fallback)


def has_fallback(records: Iterable[Record]) -> bool:
    """Whether a whole function runs in eager mode."""
    return any(parse_break(record).fallback for record in records if record.name == BREAK)


def symptoms(records: Sequence[Record], piece_seconds: float, fallback_seconds: float) -> Iterator[Symptom]:
    """Yields every graph break once, with the time that compiling its resumption took.

    A call costs `piece_seconds` more for each further piece, and `fallback_seconds` more where its function falls
    back to eager mode.
    """
    metrics = CompileMetrics(records)

    def make_symptom(events: Sequence[TraceEvent]) -> Symptom:
        first, fallback = events[0], any(event.fallback for event in events)
        wrong = f"the graph ends here: {first.reason}"
        wrong += ". PyTorch gives up on the whole function, and Python runs it" if fallback else ""
        once = metrics.resumed_seconds(first.location)
        each = fallback_seconds if fallback else piece_seconds
        return Symptom(first.cause, first.location, wrong, REMEDIES[first.cause], once=once, each=each)

    return group_symptoms(_events(records), make_symptom)


def _events(records: Iterable[Record]) -> Iterator[TraceEvent]:
    """Yields graph breaks; what follows a break in an autograd function at the same line belongs to it."""
    functions: dict[CodeLocation, TraceEvent] = {}
    for event in (parse_break(record) for record in records if record.name == BREAK):
        if event.cause is Cause.FUNCTION:
            functions.setdefault(event.location, event)
        known = functions.get(event.location)
        yield (
            event
            if known is None
            else TraceEvent(Cause.FUNCTION, event.location, event.reason, event.frame, fallback=event.fallback)
        )
