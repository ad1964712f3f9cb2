"""Filed: reports that other commands write as JSON, known by what is in them, handed over or on a shelf of a store."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, cast

import msgspec

from tunewright.errors import SettingsError, WireError
from tunewright.report.journey import Journey
from tunewright.sharing import wire
from tunewright.sharing.offers import Shelves

SHELF = "reports"
"""Where a store keeps reports, named by a digest of what they say."""


class Taken(msgspec.Struct, frozen=True):
    """What a compiled config takes of a GPU."""

    registers: int
    stack: int
    shared: int
    occupancy: float


class Judged(msgspec.Struct, frozen=True):
    """A config on a target: kept or dropped, why, and what it takes if it was compiled."""

    target: str
    config: dict[str, str | int | float | bool | None]
    keep: bool
    reasons: tuple[str, ...] = ()
    resources: Taken | None = None


class Prebuild(msgspec.Struct, frozen=True):
    """What `tunewright triton prebuild --json` writes, as far as it is shown."""

    kernel: str
    planned: int
    rows: tuple[Judged, ...]
    dropped_before_compiling: int = 0


class Step(msgspec.Struct, frozen=True):
    """A program after a step of a schedule, as `tunewright mlir steps --json` writes it."""

    name: str
    script: str
    code: str


class Spot(msgspec.Struct, frozen=True):
    """A line of somebody's source."""

    file: str = ""
    line: int = 0


class Sign(msgspec.Struct, frozen=True):
    """A symptom: where, what, what to change, and the seconds at stake."""

    cause: str
    kind: str
    wrong: str
    remedy: str
    place: Spot = Spot()
    stake: float = 0.0


class Diagnosed(msgspec.Struct, frozen=True):
    """What `tunewright torch doctor --json` writes, as far as it is shown."""

    name: str
    calls: int
    symptoms: tuple[Sign, ...]
    phases: dict[str, float]
    times: dict[str, float] = {}
    notes: tuple[str, ...] = ()


KINDS: dict[str, tuple[Any, str]] = {
    "resources": (Prebuild, "tunewright triton prebuild --json"),
    "schedule": (tuple[Step, ...], "tunewright mlir steps --json"),
    "diagnosis": (Diagnosed, "tunewright torch doctor --json"),
    "journey": (Journey, "tunewright torch journey --json"),
}
"""Kinds of reports: what is in them, and what writes them."""


class Filed(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A report: its kind, a title, what it says as it was written, and when it was filed."""

    kind: str
    title: str
    content: Any
    when: str = ""

    @property
    def name(self) -> str:
        """What it is called on a shelf, and in an address."""
        return sha256(wire.encode([self.kind, self.title, self.content])).hexdigest()[:24]

    @cached_property
    def said(self) -> Any:
        """What it says, as a value of its kind; a WireError if it is none."""
        found: Any = wire.decode(wire.encode(self.content), KINDS[self.kind][0])
        return found

    @classmethod
    def read(cls, body: bytes, title: str) -> Filed:
        """The report that a command wrote, whatever its kind."""
        try:
            content: Any = wire.decode(body, cast(type[Any], Any))
        except WireError as error:
            raise SettingsError(f"{title} is no JSON ({error}); file what a command writes with --json") from error
        now = datetime.now(UTC).isoformat(timespec="seconds")
        found = [one for kind in KINDS if (one := cls(kind, title, content, now)).sound]
        if not found:
            makers = ", ".join(maker for _, maker in KINDS.values())
            raise SettingsError(f"{title} is no report we know; file what one of these writes: {makers}")
        return found[0]

    @classmethod
    def kept(cls, body: bytes) -> Filed | None:
        """The report on a shelf; None if it cannot be read, or is not what it says."""
        try:
            found = wire.decode(body, cls)
        except WireError:
            return None
        return found if found.kind in KINDS and found.sound else None

    @property
    def sound(self) -> bool:
        """Whether it is what its kind says, and says anything."""
        try:
            return bool(self.said)
        except WireError:
            return False

    def keep(self, store: Shelves) -> None:
        """Put it on the shelf of a store."""
        store.keep(SHELF, self.name, wire.encode(self))
