"""What a stage of the acceptance kit finds out: findings, figures and samples."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

PASSED, FAILED, SKIPPED, HUNG, DIED = "passed", "failed", "skipped", "hung", "died"


class StageResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict of a stage, what is wrong, what was measured, how long it took and what it wrote."""

    name: str
    verdict: str
    findings: list[str] = []
    figures: dict[str, Any] = {}
    samples: dict[str, list[float]] = {}
    seconds: float = 0.0
    log: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict in (PASSED, SKIPPED)


class StageNotes:
    """Collects what a stage finds out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.findings: list[str] = []
        self.figures: dict[str, Any] = {}
        self.samples: dict[str, list[float]] = {}
        self.skipped = ""

    def expect(self, holds: bool, otherwise: str) -> bool:
        """Notes a finding unless something holds, and returns whether it does."""
        if not holds:
            self.findings.append(otherwise)
        return bool(holds)

    def skip(self, reason: str) -> None:
        """Says why there is nothing to test."""
        self.skipped = reason

    def result(self) -> StageResult:
        """Returns the result so far."""
        verdict = FAILED if self.findings else SKIPPED if self.skipped else PASSED
        figures = {**self.figures, **({"skipped": self.skipped} if self.skipped else {})}
        samples = {name: [value for value in values if isfinite(value)] for name, values in self.samples.items()}
        return StageResult(self.name, verdict, self.findings, _plain(figures), samples)


def _plain(value: Any) -> Any:
    """Returns a figure as JSON can have it: what is not finite becomes text."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
