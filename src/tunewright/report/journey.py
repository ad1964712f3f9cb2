"""Journey: one model on its way from Python to machine code: operations, passes, kernels, memory, times; as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tunewright.report import words
from tunewright.report.diagnosis import Place

VIEWS = frozenset(
    ("permute", "view", "reshape", "expand", "getitem", "unsqueeze", "squeeze", "slice", "select", "t", "unbind",
     "transpose", "as_strided", "alias", "split")
)  # fmt: skip
"""Operations that look at the same memory in another shape, and compute nothing."""


@dataclass(frozen=True)
class Operation:
    """One operation of a graph: what it is called, calls, returns (`f32[8, 64]`) and reads, and its line of Python."""

    name: str
    call: str
    result: str = ""
    reads: tuple[str, ...] = ()
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class Change:
    """What a pass did to a graph: the operations it took out and put in."""

    name: str
    before: int
    after: int
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """What runs: generated code or a call of a library, made of so many loops, with what it takes and could take.

    `seconds` is the median of its times and `best` the least; `least` is what this machine needs at least to move the
    bytes, or to do the arithmetic, whichever is more.
    """

    name: str
    operations: tuple[str, ...]
    label: str = ""
    loops: int = 1
    code: str = ""
    call: str = ""
    seconds: float = 0.0
    best: float = 0.0
    moved: int = 0
    flops: float = 0.0
    least: float = 0.0
    bound: str = ""

    @property
    def library(self) -> bool:
        """Whether it is a call of a library rather than generated code."""
        return not self.code

    @property
    def share(self) -> float:
        """The share of the roofline that it reaches at its best."""
        return self.least / self.best if self.best else 0.0


@dataclass(frozen=True)
class Contest:
    """A choice among implementations: of what, the seconds of each, fastest first, and by whom it was raced."""

    operation: str
    seconds: tuple[tuple[str, float], ...]
    by: str = "Inductor"


@dataclass(frozen=True)
class Buffer:
    """Memory between kernels: bytes, the first and the last step that needs it, and the buffer it takes over from."""

    name: str
    bytes: int
    born: int
    dies: int
    reuses: str = ""


@dataclass(frozen=True)
class Roof:
    """What this machine can do, measured: floating-point operations a second, and bytes a second by working set."""

    peak: float
    bandwidth: tuple[tuple[int, float], ...]

    def speed(self, size: int) -> float:
        """Bytes a second for so many bytes: that of the smallest working set measured which holds them."""
        return next((speed for limit, speed in self.bandwidth if size <= limit), self.bandwidth[-1][1])


@dataclass(frozen=True)
class Journey:
    """Everything that a page tells of one model."""

    name: str
    source: tuple[tuple[Place, str], ...]
    captured: tuple[Operation, ...]
    lowered: tuple[Operation, ...]
    final: tuple[Operation, ...]
    origins: dict[str, tuple[str, ...]]
    changes: tuple[Change, ...]
    idle: tuple[str, ...]
    loops: int
    kernels: tuple[Kernel, ...]
    contests: tuple[Contest, ...]
    buffers: tuple[Buffer, ...]
    roof: Roof
    times: dict[str, float]
    setting: str = ""
    notes: tuple[str, ...] = ()


def peak_memory(buffers: tuple[Buffer, ...]) -> tuple[int, int]:
    """The most bytes that are needed at once, and what they would be without reuse."""
    steps = {step for one in buffers for step in (one.born, one.dies)}
    most = max((sum(one.bytes for one in buffers if one.born <= step <= one.dies) for step in steps), default=0)
    return most, sum(one.bytes for one in buffers)


def plain(found: Journey) -> dict[str, Any]:
    """A journey as one JSON object, with the share of the roofline of each kernel."""
    told = asdict(found)
    for kernel, one in zip(told["kernels"], found.kernels, strict=True):
        kernel["share"] = one.share
    return told


def told(found: Journey) -> Iterator[str]:
    """A journey in a few lines."""
    yield (
        f"{found.name}: {words.counted(len(found.captured), 'operation')} captured, {len(found.lowered)} lowered, "
        f"{len(found.final)} after passes, {words.counted(found.loops, 'loop nest')}, "
        f"{words.counted(len(found.kernels), 'kernel')}"
    )
    whole = sum(kernel.seconds for kernel in found.kernels) or 1.0
    for kernel in sorted(found.kernels, key=lambda one: -one.seconds):
        yield (
            f"  {kernel.label:<32} {words.seconds(kernel.seconds):>8} {100 * kernel.seconds / whole:4.0f} %   "
            f"roofline {100 * kernel.share:3.0f} % ({kernel.bound})"
        )
    for note in found.notes:
        yield f"note: {note}"
