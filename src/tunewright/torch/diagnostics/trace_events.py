"""Graph breaks and recompilations as events: read from the compiler's trace, located, grouped and priced."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tunewright.torch.diagnostics.subject import is_in_torch
from tunewright.torch.inductor.adapter import METRICS, Record
from tunewright.torch.report.diagnosis import Cause, CodeLocation, Symptom

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_BREAK_LOCATION = re.compile(r"Graph break in user code at (.+):(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class TraceEvent:
    """A graph break or a recompilation: its cause, location and reason in the compiler's words.

    `guard` tells events of one cause and location apart; after a `fallback` the whole function runs in eager mode.
    """

    cause: Cause
    location: CodeLocation
    reason: str
    frame: str
    guard: str = ""
    fallback: bool = False


def group_symptoms(
    events: Iterable[TraceEvent], make_symptom: Callable[[Sequence[TraceEvent]], Symptom]
) -> Iterator[Symptom]:
    """Yields one symptom for all events with the same cause, location and guard."""
    groups: dict[tuple[Cause, CodeLocation, str], list[TraceEvent]] = {}
    for event in events:
        groups.setdefault((event.cause, event.location, event.guard), []).append(event)
    return map(make_symptom, groups.values())


def classify(text: str, patterns: Sequence[tuple[Cause, str]], otherwise: Cause) -> Cause:
    """Returns the cause of the first pattern that is in a text."""
    return next((cause for cause, pattern in patterns if re.search(pattern, text)), otherwise)


def stack_locations(text: str) -> list[CodeLocation]:
    """Returns the lines of a traceback, outermost first."""
    return [CodeLocation(file, int(line)) for file, line in _FRAME.findall(text)]


def innermost_location(traceback: str, otherwise: Sequence[CodeLocation] = ()) -> CodeLocation:
    """Returns the last line of a traceback that is not in PyTorch."""
    locations = stack_locations(traceback) or otherwise
    own = [location for location in locations if not is_in_torch(location)]
    return (own or locations or [CodeLocation()])[-1]


def break_location(text: str) -> CodeLocation:
    """Returns where a graph break is: as it says, unless that is in PyTorch."""
    stated = [CodeLocation(file, int(line)) for file, line in _BREAK_LOCATION.findall(text)]
    if stated and not is_in_torch(stated[0]):
        return stated[0]
    return innermost_location(text.partition("User code traceback:")[2] or text, stated)


class CompileMetrics:
    """Durations and locations of what was compiled."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = [record for record in records if record.name == METRICS]

    def seconds(self, frames: Collection[str]) -> float:
        """Returns the time that compiling some frames took."""
        return sum(_seconds(record) for record in self._records if record.frame in frames)

    def resumed_seconds(self, location: CodeLocation) -> float:
        """Returns the time that compiling the code after a graph break took."""
        resumed = re.compile(rf"_at_{location.line}(?:_|$)")
        return sum(
            _seconds(record)
            for record in self._records
            if record.fields.get("co_filename") == location.file and resumed.search(str(record.fields.get("co_name")))
        )

    def location(self, *frames: str) -> CodeLocation:
        """Returns where the first of some frames that was compiled begins."""
        for frame in frames:
            for record in self._records:
                if record.frame == frame:
                    file, line = (record.fields.get(name) for name in ("co_filename", "co_firstlineno"))
                    return CodeLocation(str(file or ""), int(line or 0))
        return CodeLocation()


def _seconds(record: Record) -> float:
    return float(record.fields.get("duration_us") or 0) / 1e6
