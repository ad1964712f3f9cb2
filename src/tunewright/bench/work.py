"""Work: how much a call computes, and what this machine can do at best: the roof over every implementation."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import msgspec

from tunewright.bench.calls import Call

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
"""Operations of the standard operators as they are usually counted: an exponential is one."""

DENSE = 8.0
"""Operations a byte from which the processor limits a call, not its memory, nearly everywhere."""

NEAR = 32 << 20
"""Bytes up to which caches hold most of a call: how busy others keep the memory says little of it."""


class Work(msgspec.Struct, frozen=True):
    """What a call takes at least: operations (None where nobody knows), and bytes read and written once."""

    flops: float | None
    bytes: int

    @classmethod
    def of(cls, call: Call, nbytes: int) -> Work:
        """By the call's sizes and the bytes of all its arrays."""
        count = FLOPS.get(call.operator)
        return cls(float(count(**call.sizes)) if count else None, nbytes)

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return None if self.flops is None else self.flops / max(1, self.bytes)

    @property
    def is_dense(self) -> bool:
        """Whether the processor, and not its memory, is what limits it."""
        return self.bytes <= NEAR or (self.intensity or 0) >= DENSE


class Roof(msgspec.Struct, frozen=True, omit_defaults=True):
    """What this machine reached: bytes a second by how many there are in all, operations a second by dtype."""

    bandwidths: tuple[tuple[int, float], ...] = ()
    peaks: dict[str, float] = {}

    @property
    def bandwidth(self) -> float:
        """Of what no cache holds."""
        return self.bandwidths[-1][1] if self.bandwidths else 0.0

    def _bandwidth(self, nbytes: int) -> float:
        """Of the caches that so many bytes just fit into."""
        return next((rate for size, rate in self.bandwidths if size >= nbytes), self.bandwidth)

    def seconds(self, work: Work, dtype: str) -> float | None:
        """The least that such work takes here by these two limits; None if a limit is not known."""
        if not self.bandwidth or work.flops is None or (work.flops and dtype not in self.peaks):
            return None
        return max(work.bytes / self._bandwidth(work.bytes), work.flops / self.peaks[dtype] if work.flops else 0.0)


def volume(call: Call) -> int:
    """A number that grows with a call's sizes, to put calls of one operator in order."""
    return prod(call.sizes.values())
