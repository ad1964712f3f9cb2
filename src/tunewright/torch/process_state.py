"""What a process sets for all of its models: the precision of float32, determinism, oneDNN, options of Inductor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import msgspec
import torch

from tunewright.torch.inductor import graphs

EXACT = "ieee"
"""The precision of float32 unless it is set; PyTorch says "none" then, too."""

_VARIABLE = "TORCHINDUCTOR_"
"""Variables of the environment that begin with it are the defaults of Inductor's settings."""

_NO_CODE = re.compile("CACHE|COMPILE_THREADS|WORKER|LOG|TIMEOUT|DEBUG|PROFILE|PROTON|METRIC|DISPLAYED|REPORT|SAVE_ARGS")
"""Variables with such a word in their names say where things are kept, logged or compiled, not which code is made."""


class ProcessState(msgspec.Struct, frozen=True):
    """Settings on which times and results of every model depend; the defaults are those of PyTorch.

    `legacy` is the precision of products as `set_float32_matmul_precision` takes it, empty if it was set otherwise.
    `variables` are those of Inductor in the environment, which a child process inherits.
    """

    matmul_precision: str = EXACT
    conv_precision: str = EXACT
    rnn_precision: str = EXACT
    deterministic: bool = False
    warn_only: bool = False
    onednn: bool = True
    legacy: str = "highest"
    inductor: dict[str, Any] = {}
    variables: dict[str, str] = {}

    @classmethod
    def read(cls) -> ProcessState:
        """Returns that of this process."""
        if (state := _HELD.get()) is not None:
            return state
        legacy = ""
        with suppress(RuntimeError):  # precisions that are set for each backend have no common name
            legacy = torch.get_float32_matmul_precision()
        onednn = torch.backends.mkldnn
        return cls(
            matmul_precision=_precision(onednn.matmul),
            conv_precision=_precision(onednn.conv),
            rnn_precision=_precision(onednn.rnn),
            deterministic=torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            onednn=bool(onednn.enabled),
            legacy=legacy,
            inductor=graphs.changed_settings(),
            variables=_variables(),
        )

    def apply(self) -> None:
        """Sets this process to it."""
        if self.legacy:
            torch.set_float32_matmul_precision(self.legacy)
        else:
            torch.backends.mkldnn.matmul.fp32_precision = self.matmul_precision
        torch.backends.mkldnn.conv.fp32_precision = self.conv_precision
        torch.backends.mkldnn.rnn.fp32_precision = self.rnn_precision
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        torch.backends.mkldnn.enabled = self.onednn
        graphs.change_settings(self.inductor)

    def changes(self) -> dict[str, str]:
        """Returns what is no default, for a key."""
        usual = msgspec.structs.asdict(ProcessState(legacy=self.legacy))
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value != usual[name]}
        own.pop("variables", None)
        settings = own.pop("inductor", {})
        named = {f"option {name}": graphs.describe_setting(value) for name, value in sorted(settings.items())}
        return {name: str(value) for name, value in own.items()} | named | self.variables


def _variables() -> dict[str, str]:
    variables = sorted(os.environ.items())  # noqa: TID251 - the settings of PyTorch, not ours
    return {name: value for name, value in variables if name.startswith(_VARIABLE) and not _NO_CODE.search(name)}


def _precision(operations: Any) -> str:
    return EXACT if operations.fp32_precision == "none" else str(operations.fp32_precision)


_HELD: ContextVar[ProcessState | None] = ContextVar("process_state", default=None)


@contextmanager
def held_state() -> Iterator[ProcessState]:
    """Lets `read` return what it returns now: while a candidate is compiled, Inductor's settings are its own."""
    token = _HELD.set(ProcessState.read())
    try:
        yield ProcessState.read()
    finally:
        _HELD.reset(token)
