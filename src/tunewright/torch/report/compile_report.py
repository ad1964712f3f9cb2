"""Compile report: one model from Python to machine code, as values and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tunewright.report import formatting
from tunewright.report.roofline import Roofline
from tunewright.torch.report.diagnosis import CodeLocation

VIEWS = frozenset(
    ("permute", "view", "reshape", "expand", "getitem", "unsqueeze", "squeeze", "slice", "select", "t", "unbind",
     "transpose", "as_strided", "alias", "split")
)  # fmt: skip
"""Operations that only look at the same memory in another shape."""


@dataclass(frozen=True)
class GraphOperation:
    """An operation of a graph: its name, what it calls, returns (`f32[8, 64]`) and reads, and its line of Python."""

    name: str
    call: str
    result: str = ""
    reads: tuple[str, ...] = ()
    place: CodeLocation = field(default_factory=CodeLocation)


@dataclass(frozen=True)
class PassChange:
    """What a pass did to a graph: the number of operations before and after, those removed and those added."""

    name: str
    before: int
    after: int
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelReport:
    """A generated kernel or a library call: its operations, times, bytes moved and arithmetic.

    `seconds` is the median of its times and `best` the shortest; `least` is the time by the roofline of this machine.
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
        """Whether it is a library call rather than generated code."""
        return not self.code

    @property
    def share(self) -> float:
        """The share of the roofline that it reaches at its best."""
        return self.least / self.best if self.best else 0.0


@dataclass(frozen=True)
class AutotuneResult:
    """A choice among implementations of an operation: the seconds of each, fastest first, and who timed them."""

    operation: str
    seconds: tuple[tuple[str, float], ...]
    by: str = "Inductor"


@dataclass(frozen=True)
class BufferLifetime:
    """A buffer between kernels: its bytes, first and last step, and the buffer whose memory it takes over."""

    name: str
    bytes: int
    born: int
    dies: int
    reuses: str = ""


@dataclass(frozen=True)
class CompileReport:
    """Everything that the page of one compiled model shows."""

    name: str
    source: tuple[tuple[CodeLocation, str], ...]
    captured: tuple[GraphOperation, ...]
    lowered: tuple[GraphOperation, ...]
    final: tuple[GraphOperation, ...]
    origins: dict[str, tuple[str, ...]]
    changes: tuple[PassChange, ...]
    idle: tuple[str, ...]
    loops: int
    kernels: tuple[KernelReport, ...]
    contests: tuple[AutotuneResult, ...]
    buffers: tuple[BufferLifetime, ...]
    roof: Roofline
    times: dict[str, float]
    setting: str = ""
    notes: tuple[str, ...] = ()


def peak_memory(buffers: tuple[BufferLifetime, ...]) -> tuple[int, int]:
    """Returns the most bytes needed at once, and what would be needed without reuse."""
    steps = {step for buffer in buffers for step in (buffer.born, buffer.dies)}
    held = (sum(buffer.bytes for buffer in buffers if buffer.born <= step <= buffer.dies) for step in steps)
    return max(held, default=0), sum(buffer.bytes for buffer in buffers)


def as_dict(report: CompileReport) -> dict[str, Any]:
    """Returns a report as one JSON object, with the roofline share of each kernel."""
    content = asdict(report)
    for fields, kernel in zip(content["kernels"], report.kernels, strict=True):
        fields["share"] = kernel.share
    return content


def describe(report: CompileReport) -> Iterator[str]:
    """Yields a report as a few lines of text."""
    yield (
        f"{report.name}: {formatting.counted(len(report.captured), 'operation')} captured, "
        f"{len(report.lowered)} lowered, {len(report.final)} after passes, "
        f"{formatting.counted(report.loops, 'loop nest')}, {formatting.counted(len(report.kernels), 'kernel')}"
    )
    total = sum(kernel.seconds for kernel in report.kernels) or 1.0
    for kernel in sorted(report.kernels, key=lambda kernel: -kernel.seconds):
        yield (
            f"  {kernel.label:<32} {formatting.seconds(kernel.seconds):>8} {100 * kernel.seconds / total:4.0f} %   "
            f"roofline {100 * kernel.share:3.0f} % ({kernel.bound})"
        )
    for note in report.notes:
        yield f"note: {note}"
