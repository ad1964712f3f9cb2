"""What can be wrong with a kernel that is executed, and where: a fault has a kind, a message and a source line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunewright.errors import BackendError


class FaultKind(StrEnum):
    """The kinds of faults."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    RACE = "data race"
    UNINITIALIZED = "uninitialized"
    MISSING_WAIT = "missing wait"
    DIVERGENT_BARRIER = "divergent barrier"
    DEADLOCK = "deadlock"
    STEP_LIMIT = "step limit"
    RESOURCES = "too many resources"
    ASSERTION = "assertion"
    DIVERGENT_WARP = "divergent warp"


@dataclass(frozen=True)
class Place:
    """An instruction: its text, its line in the PTX, and the source line it was compiled from (0 if not known)."""

    text: str
    ptx_line: int
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else f"PTX line {self.ptx_line}"
        return f"{where} ({self.text})"


@dataclass(frozen=True)
class PtxFault:
    """One thing that is wrong; `other` is the second access of a race."""

    kind: FaultKind
    message: str
    place: Place
    other: Place | None = None

    def __str__(self) -> str:
        return f"{self.kind} at {self.place}: {self.message}"


class FaultList:
    """The faults of a launch, each pair of places once."""

    def __init__(self) -> None:
        self.found: list[PtxFault] = []
        self._seen: set[tuple[FaultKind, int, int]] = set()

    def add(self, fault: PtxFault) -> None:
        """Adds a fault unless it is known."""
        key = fault.kind, fault.place.ptx_line, fault.other.ptx_line if fault.other else 0
        if key not in self._seen:
            self._seen.add(key)
            self.found.append(fault)


class KernelFault(Exception):
    """Ends an execution at a fault after which it cannot continue."""

    def __init__(self, fault: PtxFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class PtxError(BackendError):
    """Raised for text that is not PTX, and for launches that do not fit a kernel."""


class UnsupportedInstruction(PtxError):
    """Raised for an instruction that the emulator does not know; nothing is guessed."""

    def __init__(self, place: Place, detail: str = "") -> None:
        self.place = place
        said = f" ({detail})" if detail else ""
        super().__init__(
            f"the emulator does not know `{place.text}`{said}, PTX line {place.ptx_line}"
            + (f", from {place.file}:{place.line}" if place.line else "")
            + "; compile for another target, or without the feature that emits it"
        )
