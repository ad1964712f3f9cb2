"""Reports that other commands write as JSON, saved in a namespace of a store or passed to the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, cast

import msgspec

from tunewright.errors import SettingsError, TunewrightError, WireError
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces

REPORT_NAMESPACE = namespaces.REPORTS.name
"""The namespace of a store that holds reports, named by a digest of their content."""


class MissingReportExtension(TunewrightError):
    """Raised when a report needs an extension that is not installed; the message names it."""


@contextmanager
def requires_extension(name: str) -> Iterator[None]:
    """Turns an ImportError within it into a MissingReportExtension."""
    try:
        yield
    except ImportError as error:
        raise MissingReportExtension(
            f"This report needs the extension {name}, which is not installed here ({error}). "
            "Open the dashboard where it is installed."
        ) from error


class GpuResources(msgspec.Struct, frozen=True):
    """The GPU resources that a compiled config uses."""

    registers: int
    stack: int
    shared: int
    occupancy: float


class PrebuildRow(msgspec.Struct, frozen=True):
    """A config on a target: whether it is kept and why, and its resources if it was compiled."""

    target: str
    config: dict[str, str | int | float | bool | None]
    keep: bool
    reasons: tuple[str, ...] = ()
    resources: GpuResources | None = None


class PrebuildReport(msgspec.Struct, frozen=True):
    """The shown part of what `tunewright triton prebuild --json` writes."""

    kernel: str
    planned: int
    rows: tuple[PrebuildRow, ...]
    dropped_before_compiling: int = 0


class ScheduleStep(msgspec.Struct, frozen=True):
    """A program after a step of a schedule, as `tunewright mlir steps --json` writes it."""

    name: str
    script: str
    code: str


class SourceLocation(msgspec.Struct, frozen=True):
    """A line of a source file."""

    file: str = ""
    line: int = 0


class SymptomRow(msgspec.Struct, frozen=True):
    """A symptom: where it is, what is wrong, what to change, and the seconds it costs."""

    cause: str
    kind: str
    wrong: str
    remedy: str
    place: SourceLocation = SourceLocation()
    stake: float = 0.0


class DiagnosisReport(msgspec.Struct, frozen=True):
    """The shown part of what `tunewright torch doctor --json` writes."""

    name: str
    calls: int
    symptoms: tuple[SymptomRow, ...]
    phases: dict[str, float]
    times: dict[str, float] = {}
    notes: tuple[str, ...] = ()


class SourceText(msgspec.Struct, frozen=True):
    """A part of a source file, from line `first` on."""

    file: str
    first: int
    lines: tuple[str, ...]


class CountedConfig(msgspec.Struct, frozen=True):
    """A config that was executed in the emulator: its counts in total and by source line."""

    config: dict[str, str | int | float | bool | None] = {}
    outcome: str = ""
    counters: dict[str, int] = {}
    lines: tuple[dict[str, str | int], ...] = ()


class CountsReport(msgspec.Struct, frozen=True):
    """The shown part of what `tunewright cuda check --json` and `tunewright triton check --json` write."""

    kernel: str
    target: str
    rung: str
    source: tuple[SourceText, ...]
    configs: tuple[CountedConfig, ...] = ()
    config: dict[str, str | int | float | bool | None] = {}
    counters: dict[str, int] = {}
    lines: tuple[dict[str, str | int], ...] = ()

    @property
    def executed(self) -> tuple[CountedConfig, ...]:
        """The configs that have counts."""
        return tuple(config for config in self.configs if config.counters) or (
            CountedConfig(self.config, "", self.counters, self.lines),
        )


COMMANDS = {
    "resources": "tunewright triton prebuild --json",
    "schedule": "tunewright mlir steps --json",
    "diagnosis": "tunewright torch doctor --json",
    "journey": "tunewright torch report --json",
    "counts": "tunewright triton check --json",
}
"""Kinds of reports, and the commands that write them."""


def content_type(kind: str) -> Any:
    """Returns the type of the content of a report; raises MissingReportExtension if it belongs to one."""
    if kind == "journey":
        with requires_extension("tunewright.torch"):
            from tunewright.torch.report.compile_report import CompileReport  # noqa: PLC0415 - may be absent
        return CompileReport
    return {
        "resources": PrebuildReport,
        "schedule": tuple[ScheduleStep, ...],
        "diagnosis": DiagnosisReport,
        "counts": CountsReport,
    }[kind]


class SavedReport(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A report: its kind, title and content as written, and when it was saved."""

    kind: str
    title: str
    content: Any
    when: str = ""

    @property
    def name(self) -> str:
        """The name of the report in a store and in addresses."""
        return sha256(serialization.encode([self.kind, self.title, self.content])).hexdigest()[:24]

    @cached_property
    def value(self) -> Any:
        """The content as a value of its type; raises WireError if it does not match."""
        value: Any = serialization.decode(serialization.encode(self.content), content_type(self.kind))
        return value

    @classmethod
    def read(cls, body: bytes, title: str) -> SavedReport:
        """Returns the report that a command wrote, of whichever kind."""
        try:
            content: Any = serialization.decode(body, cast(type[Any], Any))
        except WireError as error:
            raise SettingsError(
                f"{title} is not valid JSON ({error}); save the output of a command with --json"
            ) from error
        now = datetime.now(UTC).isoformat(timespec="seconds")
        reports = [report for kind in COMMANDS if (report := cls(kind, title, content, now)).is_known]
        if not reports:
            commands = ", ".join(COMMANDS.values())
            raise SettingsError(f"{title} is not a known report; save the output of one of these: {commands}")
        return reports[0]

    @classmethod
    def decode(cls, body: bytes) -> SavedReport | None:
        """Returns a stored report, or None if it is damaged or its content does not match its kind."""
        try:
            report = serialization.decode(body, cls)
        except WireError:
            return None
        return report if report.kind in COMMANDS and report.is_valid else None

    @property
    def is_known(self) -> bool:
        """Whether the content matches the kind and is not empty."""
        try:
            return bool(self.value)
        except (WireError, MissingReportExtension):
            return False

    @property
    def is_valid(self) -> bool:
        """As `is_known`, but true if the content cannot be checked because an extension is missing."""
        try:
            return bool(self.value)
        except MissingReportExtension:
            return True
        except WireError:
            return False

    def save(self, store: KeepsNamespaces) -> None:
        """Stores the report."""
        store.keep(REPORT_NAMESPACE, self.name, serialization.encode(self))
