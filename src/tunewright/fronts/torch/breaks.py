"""Breaks: where a graph ends before the model does, why, and what to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tunewright.backends.inductor.adapter import BREAK, METRICS, Record
from tunewright.fronts.torch.patient import is_torchs
from tunewright.report.diagnosis import Cause, Place, Symptom

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_AT = re.compile(r"Graph break in user code at (.+):(\d+)$", re.MULTILINE)
_LEAD = re.compile(r"(?:Encountered graph break when|Failed to handle graph break)[^\n]*\n\s*")
_HINT = re.compile(r"^\s*Hint: .*$", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_EXPLAINED = re.compile(r"Explanation: (.+)")

_SIGNS = (
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
    Cause.CALL: "call it once outside of the model and hand in the result, or wrap it with `torch.library.custom_op`",
    Cause.FUNCTION: "leave only tensor arithmetic in its `forward` and `backward`; or make it a "
    "`torch.library.custom_op` with `register_autograd`",
    Cause.DISABLED: "take `torch.compiler.disable` (or `graph_break()`) away from what is called here",
}


class Break(NamedTuple):
    """One place where a graph ended: why, in the compiler's words, and whether its function was given up."""

    cause: Cause
    place: Place
    said: str
    given_up: bool


def read(record: Record) -> Break:
    """A break, from what the compiler says of it."""
    text = record.text.partition("\nTraceback (most recent")[0]
    reason = text.partition("\nUser code traceback:")[0]
    plain = _LEAD.sub("", reason.partition("Graph Break Reason: ")[2] or reason)
    meant = _HINT.sub("", plain)  # hints name what else might be the matter
    cause = next((cause for cause, sign in _SIGNS if re.search(sign, meant)), Cause.CALL)
    explained = _EXPLAINED.search(plain)
    said = explained.group(1) if explained else plain.strip().partition("\n")[0]
    given_up = "falling back to eager" in text or "fall back to eager" in text
    return Break(cause, _place(text), _ADDRESS.sub("", said).strip().rstrip("."), given_up)


def innermost(text: str, otherwise: str = "") -> Place:
    """The last line of a traceback that is not PyTorch's own."""
    told = [Place(file, int(line)) for file, line in _FRAME.findall(text) or _AT.findall(otherwise)]
    own = [place for place in told if not is_torchs(place)]
    return (own or told or [Place()])[-1]


def _place(text: str) -> Place:
    """Where a break is: as it is told, unless that is inside PyTorch."""
    if told := _AT.search(text):
        place = Place(told.group(1), int(told.group(2)))
        if not is_torchs(place):
            return place
    return innermost(text.partition("User code traceback:")[2] or text, otherwise=text)


def given_up(records: Iterable[Record]) -> bool:
    """Whether a function is left to Python as a whole."""
    return any(read(record).given_up for record in records if record.name == BREAK)


def symptoms(records: Sequence[Record], each: float, lost: float) -> Iterator[Symptom]:
    """Every break once, with what its resumption took to compile.

    `each` is what one more piece costs a call, `lost` what a call loses where its function is given up.
    """
    found: dict[tuple[Place, Cause], list[Break]] = {}
    for record in records:
        if record.name == BREAK:
            one = read(record)
            known = (one.place, Cause.FUNCTION)
            found.setdefault(known if known in found else (one.place, one.cause), []).append(one)
    for (place, cause), ones in found.items():
        whole = any(one.given_up for one in ones)
        wrong = f"the graph ends here: {ones[0].said}"
        wrong += ". PyTorch gives up on the whole function, and Python runs it" if whole else ""
        yield Symptom(cause, place, wrong, REMEDIES[cause], once=_resumed(records, place), each=lost if whole else each)


def _resumed(records: Iterable[Record], place: Place) -> float:
    """The seconds it took to compile what comes after a break."""
    return sum(
        float(record.fields.get("duration_us") or 0) / 1e6
        for record in records
        if record.name == METRICS
        and record.fields.get("co_filename") == place.file
        and re.search(rf"_at_{place.line}(?:_|$)", str(record.fields.get("co_name")))
    )
