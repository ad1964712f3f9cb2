"""Caching: what is compiled anew in every process, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tunewright.backends.inductor.adapter import CACHES, METRICS, Record
from tunewright.fronts.torch.patient import Patient, Visit, visit
from tunewright.report.diagnosis import Cause, Place, Symptom

_REMEDIES = {
    "custom pass": "derive the pass from `CustomGraphPass` and give it a `uuid()` that says what it does",
    "freez": "freezing keeps weights in the code, which no cache takes; ship an AOTInductor package instead",
    "": "take away what the reason names, or ship what was compiled with `torch.compiler.save_cache_artifacts`",
}


def symptoms(patient: Patient, first: Visit) -> Iterator[Symptom]:
    """What the caches pass over, and what they still miss when the same is compiled a second time."""
    if not any(record.name.startswith(CACHES) for record in first.records):
        return
    again = visit(patient)
    bypassed: dict[str, list[Record]] = {}
    for record in again.records:
        if record.name.startswith(CACHES) and record.name.endswith("_bypass"):
            bypassed.setdefault(str(record.fields.get("cache_bypass_reason") or "no reason given"), []).append(record)
    for reason, records in bypassed.items():
        place, took = _compiled(again.records, {record.frame for record in records}, patient)
        sign = next((sign for sign in _REMEDIES if sign and sign in reason.lower()), "")
        wrong = f"the cache is passed over, so every process compiles this: {reason}"
        yield Symptom(Cause.BYPASS, place, wrong, _REMEDIES[sign], once=took)
    passed = {record.frame for records in bypassed.values() for record in records}
    missed = [r for r in again.records if r.name == f"{CACHES[0]}_miss" and r.frame not in passed]
    if missed:
        place, took = _compiled(again.records, {record.frame for record in missed}, patient)
        why = _differs(first.records, missed)
        wrong = f"compiled twice in one process, and missed by the cache the second time: {why}"
        yield Symptom(Cause.MISS, place, wrong, "make that the same in every process", once=took)


def _compiled(records: Sequence[Record], frames: set[str], patient: Patient) -> tuple[Place, float]:
    """Where the first of some frames begins, and the seconds that all of them took."""
    metrics: list[Mapping[str, Any]] = [r.fields for r in records if r.name == METRICS and r.frame in frames]
    took = sum(float(one.get("duration_us") or 0) / 1e6 for one in metrics)
    told = metrics[0] if metrics else {}
    return patient.own(Place(str(told.get("co_filename") or ""), int(told.get("co_firstlineno") or 0))), took


def _differs(before: Sequence[Record], missed: Sequence[Record]) -> str:
    """The parts of a key that were others the first time."""
    record = missed[0]
    earlier = [
        r for r in before if r.name.startswith(CACHES[0]) and r.frame == record.frame and "components" in r.fields
    ]
    if not earlier:
        return "what the key is made of is not known"
    known = set(earlier[0].fields["components"])
    other = [one for one in record.fields.get("components") or () if one not in known]
    names = sorted({str(one).partition("] ")[2].partition(":")[0] for one in other})
    return f"its key differs in {', '.join(names)}" if names else "though its key is the same"
