"""The work of a call in operations and bytes, and the roofline of this machine."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import msgspec

from tunewright.bench.calls import OperatorCall
from tunewright.report.roofline import Roofline

FLOPS: dict[str, Callable[..., float]] = {
    "gemm": lambda M, K, N: 2 * M * K * N,
    "batched_gemm": lambda B, M, K, N: 2 * B * M * K * N,
    "conv2d": lambda I, C, H, W, F, R, S: 2 * I * C * F * R * S * (H - R + 1) * (W - S + 1),
    "softmax": lambda M, N: 4 * M * N,
    "layer_norm": lambda M, N: 8 * M * N,
    "attention": lambda H, L, D, S: 4 * H * L * S * D + 4 * H * L * S,
    "transpose": lambda M, N: 0,
    "reduce": lambda M, N: M * N,
}
"""Operations of the standard operators, as usually counted: an exponential is one."""

DENSE_INTENSITY = 8.0
"""Operations a byte from which nearly every machine is limited by its processor, not its memory."""

CACHED_BYTES = 32 << 20
"""Bytes up to which caches hold most of a call, so that other programs' use of the memory matters little."""


class CallWork(msgspec.Struct, frozen=True):
    """The least work of a call: operations (None if unknown), and bytes read and written once."""

    flops: float | None
    bytes: int

    @classmethod
    def of(cls, call: OperatorCall, nbytes: int) -> CallWork:
        """Returns the work of a call, by its sizes and the bytes of all its arrays."""
        count = FLOPS.get(call.operator)
        return cls(float(count(**call.sizes)) if count else None, nbytes)

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return None if self.flops is None else self.flops / max(1, self.bytes)

    @property
    def is_dense(self) -> bool:
        """Whether the processor, not the memory, limits the call."""
        return self.bytes <= CACHED_BYTES or (self.intensity or 0) >= DENSE_INTENSITY


class MachineRoofline(msgspec.Struct, frozen=True, omit_defaults=True):
    """What this machine reaches: bytes a second by working set, and operations a second by dtype."""

    bandwidths: tuple[tuple[int, float], ...] = ()
    peaks: dict[str, float] = {}

    @property
    def bandwidth(self) -> float:
        """Bytes a second of the largest working set, which no cache holds; 0 if none was measured."""
        return self.bandwidths[-1][1] if self.bandwidths else 0.0

    def seconds(self, work: CallWork, dtype: str) -> float | None:
        """Returns the least time that `work` takes here; None if one of its limits was not measured."""
        if not self.bandwidth or work.flops is None or (work.flops and dtype not in self.peaks):
            return None
        return Roofline(self.peaks.get(dtype, 0.0), self.bandwidths).least_seconds(work.bytes, work.flops)[0]


def call_volume(call: OperatorCall) -> int:
    """Returns a number that grows with a call's sizes, to sort calls of one operator."""
    return prod(call.sizes.values())
