"""Inert options: which of them are accepted and do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.report import formatting
from tunewright.torch.diagnostics.call_times import time_calls
from tunewright.torch.diagnostics.subject import Subject, observe, suppress_output
from tunewright.torch.inductor import adapter
from tunewright.torch.inductor.adapter import CODE
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_NOISE = re.compile(r"# AOT ID.*|/tmp/\S+|\bc[a-z0-9]{40,}\b|# kernel path.*|\d+_(?:inference|forward|backward)")


def symptoms(subject: Subject) -> Iterator[Symptom]:
    """Yields the options that leave the code unchanged, though the same setting for the whole process changes it."""
    options: Mapping[str, Any] = subject.options.get("options") or {}
    if subject.backend != "inductor":
        return
    for name, value in options.items():
        if not isinstance(value, bool | int | float | str):
            continue
        others = {key: options[key] for key in options if key != name}
        without, with_option = _compile(subject, others), _compile(subject, dict(options))
        if without.code != with_option.code:
            continue
        with adapter.inductor_config(**{name: value}):
            process_wide = _compile(subject, others)
        if process_wide.code != without.code:
            yield Symptom(
                Cause.INERT,
                _option_location(subject, name),
                f"the option {name}={value!r} does nothing: the code is the same without it, and different when it is "
                f"set for the whole process; a call then takes {formatting.seconds(process_wide.seconds)}, "
                f"not {formatting.seconds(with_option.seconds)}",
                f"set `torch._inductor.config.{name} = {value!r}` before compiling, or "
                f"`TORCHINDUCTOR_{name.upper()}={int(value) if isinstance(value, bool) else value}`",
                each=max(0.0, with_option.seconds - process_wide.seconds),
            )


class _CompiledCode(NamedTuple):
    """The code generated with some options, without what differs from run to run, and the seconds of a call."""

    code: list[str]
    seconds: float


def _compile(subject: Subject, options: Mapping[str, Any]) -> _CompiledCode:
    with adapter.fresh_caches():
        observation = observe(subject, options=dict(options) or None)
        with suppress_output():
            seconds = time_calls({"call": lambda: subject.calls[-1].run(observation.compiled)})["call"]
    code = [_NOISE.sub("", record.text) for record in observation.records if record.name == CODE]
    return _CompiledCode(code, seconds)


def _option_location(subject: Subject, name: str) -> CodeLocation:
    """Returns the line that names an option, in the caller's file or the model's."""
    for location in (subject.caller, subject.location()):
        try:
            lines = Path(location.file).read_text().splitlines()
        except (OSError, ValueError):
            continue
        for number, line in enumerate(lines, 1):
            if re.search(rf"""["']{re.escape(name)}["']|\b{re.escape(name)}\s*=""", line):
                return CodeLocation(location.file, number)
    return subject.caller if subject.caller.file else subject.location()
