"""Options: which of them are taken without a word and do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.backends.inductor import adapter
from tunewright.backends.inductor.adapter import CODE
from tunewright.fronts.torch.pace import paces
from tunewright.fronts.torch.patient import Patient, quietly, visit
from tunewright.report import words
from tunewright.report.diagnosis import Cause, Place, Symptom

_NOISE = re.compile(r"# AOT ID.*|/tmp/\S+|\bc[a-z0-9]{40,}\b|# kernel path.*|\d+_(?:inference|forward|backward)")


def symptoms(patient: Patient) -> Iterator[Symptom]:
    """The options that leave the code as it is, though the same setting of the process changes it."""
    options: Mapping[str, Any] = patient.how.get("options") or {}
    if patient.backend != "inductor":
        return
    for name, value in options.items():
        if not isinstance(value, bool | int | float | str):
            continue
        rest = {other: options[other] for other in options if other != name}
        without, asked = _look(patient, rest), _look(patient, dict(options))
        if without.code != asked.code:
            continue
        with adapter.configured(**{name: value}):
            whole = _look(patient, rest)
        if whole.code != without.code:
            yield Symptom(
                Cause.INERT,
                _written(patient, name),
                f"the option {name}={value!r} does nothing: the code is the same without it, and another when the "
                f"whole process is set so; a call then takes {words.seconds(whole.pace)}, "
                f"not {words.seconds(asked.pace)}",
                f"set `torch._inductor.config.{name} = {value!r}` before compiling, or "
                f"`TORCHINDUCTOR_{name.upper()}={int(value) if isinstance(value, bool) else value}`",
                each=max(0.0, asked.pace - whole.pace),
            )


class _Look(NamedTuple):
    """The code that is written with some options, without what differs from run to run, and the time of a call."""

    code: list[str]
    pace: float


def _look(patient: Patient, options: Mapping[str, Any]) -> _Look:
    with adapter.uncached():
        seen = visit(patient, options=dict(options) or None)
        with quietly():
            pace = paces({"call": lambda: seen.compiled(*patient.calls[-1])})["call"]
    return _Look([_NOISE.sub("", record.text) for record in seen.records if record.name == CODE], pace)


def _written(patient: Patient, name: str) -> Place:
    """The line that names an option, in the file that asks for it."""
    for place in (patient.asked, patient.place()):
        try:
            lines = Path(place.file).read_text().splitlines()
        except (OSError, ValueError):
            continue
        for number, line in enumerate(lines, 1):
            if re.search(rf"""["']{re.escape(name)}["']|\b{re.escape(name)}\s*=""", line):
                return Place(place.file, number)
    return patient.asked if patient.asked.file else patient.place()
