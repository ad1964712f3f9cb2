"""Caches of compiled code: what every process compiles again, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tunewright.torch.diagnostics.subject import Observation, Subject, observe
from tunewright.torch.diagnostics.trace_events import CompileMetrics
from tunewright.torch.inductor.adapter import CACHES, Record
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_REMEDIES = {
    "custom pass": "derive the pass from `CustomGraphPass` and give it a `uuid()` that says what it does",
    "freez": "freezing keeps weights in the code, which no cache takes; ship an AOTInductor package instead",
    "": "take away what the reason names, or ship what was compiled with `torch.compiler.save_cache_artifacts`",
}


def symptoms(subject: Subject, first: Observation) -> Iterator[Symptom]:
    """Yields what the caches bypass, and what they miss when the same is compiled a second time."""
    if not any(record.name.startswith(CACHES) for record in first.records):
        return
    second = observe(subject)
    bypassed: dict[str, list[Record]] = {}
    for record in second.records:
        if record.name.startswith(CACHES) and record.name.endswith("_bypass"):
            bypassed.setdefault(str(record.fields.get("cache_bypass_reason") or "no reason given"), []).append(record)
    for reason, records in bypassed.items():
        location, seconds = _compiled(second.records, records, subject)
        remedy = next((_REMEDIES[part] for part in _REMEDIES if part and part in reason.lower()), _REMEDIES[""])
        wrong = f"the cache is bypassed, so every process compiles this: {reason}"
        yield Symptom(Cause.BYPASS, location, wrong, remedy, once=seconds)
    frames = {record.frame for records in bypassed.values() for record in records}
    missed = [record for record in second.records if record.name == f"{CACHES[0]}_miss" and record.frame not in frames]
    if missed:
        location, seconds = _compiled(second.records, missed, subject)
        reason = _key_difference(first.records, missed[0])
        wrong = f"compiled twice in one process, and missed by the cache the second time: {reason}"
        yield Symptom(Cause.MISS, location, wrong, "make that the same in every process", once=seconds)


def _compiled(records: Sequence[Record], cached: Sequence[Record], subject: Subject) -> tuple[CodeLocation, float]:
    """Returns where the first frame of some cache records begins, and how long all of them took to compile."""
    metrics, frames = CompileMetrics(records), {record.frame for record in cached}
    compiled = list(dict.fromkeys(record.frame for record in records if record.frame in frames))
    return subject.own_location(metrics.location(*compiled)), metrics.seconds(frames)


def _key_difference(before: Sequence[Record], missed: Record) -> str:
    """Returns the parts of a cache key that were different the first time."""
    earlier = [
        record
        for record in before
        if record.name.startswith(CACHES[0]) and record.frame == missed.frame and "components" in record.fields
    ]
    if not earlier:
        return "the parts of its key are not known"
    known = set(earlier[0].fields["components"])
    changed = [part for part in missed.fields.get("components") or () if part not in known]
    names = sorted({str(part).partition("] ")[2].partition(":")[0] for part in changed})
    return f"its key differs in {', '.join(names)}" if names else "though its key is the same"
