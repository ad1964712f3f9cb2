"""Device, Toolchain: what must be equal for a time to mean the same."""

from __future__ import annotations

import msgspec

Toolchain = dict[str, str]
"""Names and versions of everything that turns source into machine code: `{"gcc": "12.2.0"}`."""


class Device(msgspec.Struct, frozen=True):
    """A kind of processor, not one particular card: two of the same kind are equal.

    `kind` is what runs kernels (cpu, cuda, hip, opencl), `model` the name its maker gives it, `architecture` what
    code is compiled for, `features` the instruction sets it has, `limits` the sizes that decide what fits.
    """

    kind: str
    model: str
    architecture: str
    features: tuple[str, ...] = ()
    limits: dict[str, int] = {}

    def __str__(self) -> str:
        name = self.model.replace("(R)", "").partition(" family ")[0]
        return f"{name}, {self.limits['cores']} cores" if "cores" in self.limits else name
