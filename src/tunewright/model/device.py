"""Devices and toolchains: what must be equal for times to be comparable."""

from __future__ import annotations

import msgspec

Toolchain = dict[str, str]
"""Names and versions of the compilers: `{"gcc": "12.2.0"}`."""


class Device(msgspec.Struct, frozen=True):
    """A model of processor, not one particular card: two of the same model are equal.

    `kind` is the platform (cpu, cuda, hip, opencl), `model` the vendor's name, `architecture` the compilation target,
    `features` the instruction sets, and `limits` the sizes of its resources.
    """

    kind: str
    model: str
    architecture: str
    features: tuple[str, ...] = ()
    limits: dict[str, int] = {}

    def __str__(self) -> str:
        name = self.model.replace("(R)", "").partition(" family ")[0]
        return f"{name}, {self.limits['cores']} cores" if "cores" in self.limits else name
