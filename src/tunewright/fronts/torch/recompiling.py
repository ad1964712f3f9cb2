"""Recompiling: which guard failed, what the code compiled again took, and what dynamic shapes would cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tunewright.backends.inductor import adapter
from tunewright.backends.inductor.adapter import METRICS, RECOMPILED, Record
from tunewright.fronts.torch.pace import paces
from tunewright.fronts.torch.patient import Patient, Visit, quietly, visit
from tunewright.report import words
from tunewright.report.diagnosis import Cause, Place, Symptom

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_SIZE = re.compile(r"tensor '(.+?)' size mismatch at index (\d+)")

_SIGNS = (
    (Cause.SIZE, r"size mismatch at index|stride mismatch at index|\.size\(\)|\.stride\(\)"),
    (Cause.DTYPE, r"dtype mismatch"),
    (Cause.GRADIENT, r"requires_grad mismatch|grad_mode|GLOBAL_STATE|dispatch key set mismatch"),
    (Cause.VALUE, r" == "),
)

REMEDIES = {
    Cause.DTYPE: "cast what is given to one dtype before the call",
    Cause.GRADIENT: "always call it in the same mode: under `torch.no_grad()` or not, with arguments that require "
    "gradients or not",
    Cause.VALUE: "keep what changes in a tensor (an argument, or a buffer of the module): each value of a Python "
    "object is another program",
    Cause.GUARD: "make this the same in every call",
}


class Cost(NamedTuple):
    """What dynamic shapes come to: how many times as long a call takes, and the recompilations that are left."""

    ratio: float
    left: int


def symptoms(patient: Patient, seen: Visit) -> Iterator[Symptom]:
    """Every guard that failed, once, with the seconds its recompilations took."""
    metrics = {str(one.fields.get("compile_id")): one.fields for one in seen.records if one.name == METRICS}
    found: dict[tuple[Cause, str, Place], list[Record]] = {}
    for record in seen.records:
        if record.name == RECOMPILED:
            guard = adapter.reasons(record)[0].partition(": ")[2]
            found.setdefault((_cause(guard), _known(guard), patient.own(_place(guard, record, metrics))), []).append(
                record
            )
    cost = dynamic(patient) if any(cause is Cause.SIZE for cause, *_ in found) else None
    for (cause, _, place), records in found.items():
        guard = adapter.reasons(records[0])[0].partition(": ")[2]
        took = sum(float(metrics.get(one.frame, {}).get("duration_us") or 0) / 1e6 for one in records)
        wrong = f"compiled again {words.counted(len(records), 'time')}, since a guard failed: {_short(guard)}"
        if len(records) >= adapter.recompile_limit():
            wrong += f"; after {adapter.recompile_limit()} times PyTorch gives up, and Python runs it"
        yield Symptom(cause, place, wrong, _remedy(cause, guard, cost), once=took)


def _cause(guard: str) -> Cause:
    return next((cause for cause, sign in _SIGNS if re.search(sign, guard)), Cause.GUARD)


def _short(guard: str) -> str:
    """A guard without the line it comes from."""
    return re.sub(r"\s+", " ", guard.partition("#")[0].partition("\n")[0]).strip()


def _known(guard: str) -> str:
    """What tells guards apart: all but the values in them."""
    return re.sub(r"(==|expected|actual) *('[^']*'|[\w.-]+)", r"\1", _short(guard))


def _place(guard: str, record: Record, metrics: Mapping[str, Mapping[str, object]]) -> Place:
    """The line that made the guard; else where the function begins."""
    if told := _FRAME.findall(guard):
        return Place(told[-1][0], int(told[-1][1]))
    first = f"{record.frame.partition('/')[0]}/0"
    known = metrics.get(record.frame) or metrics.get(first) or {}
    return Place(str(known.get("co_filename") or ""), int(str(known.get("co_firstlineno") or 0)))


def _remedy(cause: Cause, guard: str, cost: Cost | None) -> str:
    if cause is not Cause.SIZE:
        return REMEDIES[cause]
    told = _SIZE.search(guard)
    mark = f"`torch._dynamo.mark_dynamic({told.group(1)}, {told.group(2)})` before the call, or " if told else ""
    measured = ""
    if cost is not None:
        left = words.counted(cost.left, "recompilation") if cost.left else "no recompilation"
        measured = f"; measured here with dynamic=True: {words.ratio(cost.ratio)} the time of a call, {left} left"
    return f"{mark}`torch.compile(dynamic=True)`{measured}"


def dynamic(patient: Patient) -> Cost:
    """What dynamic shapes cost a call, against code compiled for its very sizes."""
    last = patient.calls[-1]
    loose = visit(patient, dynamic=True, isolate_recompiles=True)
    exact = patient.compiled(dynamic=False, isolate_recompiles=True)
    with quietly():
        taken = paces({"exact": lambda: exact(*last), "dynamic": lambda: loose.compiled(*last)})
    return Cost(taken["dynamic"] / taken["exact"], sum(record.name == RECOMPILED for record in loose.records))
