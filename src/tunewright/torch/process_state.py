"""What a process sets for all of its models: the precision of products, determinism, and whether oneDNN is used."""

from __future__ import annotations

from typing import Self

import msgspec
import torch


class ProcessState(msgspec.Struct, frozen=True):
    """Settings on which times and results of every model depend; the defaults are those of PyTorch."""

    matmul_precision: str = "highest"
    deterministic: bool = False
    onednn: bool = True

    @classmethod
    def read(cls) -> Self:
        """Returns that of this process."""
        return cls(
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            bool(torch.backends.mkldnn.enabled),
        )

    def apply(self) -> None:
        """Sets this process to it."""
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic)
        torch.backends.mkldnn.enabled = self.onednn

    def changes(self) -> dict[str, str]:
        """Returns what is no default, for a key."""
        usual = msgspec.structs.asdict(ProcessState())
        return {name: str(value) for name, value in msgspec.structs.asdict(self).items() if value != usual[name]}
