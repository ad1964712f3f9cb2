"""The model under diagnosis: its calls, how it is compiled, and one observed run."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from tunewright.torch.calls import Call
from tunewright.torch.inductor import adapter
from tunewright.torch.inductor.adapter import Record
from tunewright.torch.report.diagnosis import CodeLocation

_TORCH_FOLDER = str(Path(torch.__file__).parent)


def is_in_torch(location: CodeLocation) -> bool:
    """Whether a line is in PyTorch's own source."""
    return location.file.startswith(_TORCH_FOLDER)


@dataclass(frozen=True)
class Subject:
    """A model, its calls, the options of `torch.compile`, and the line that asked for a diagnosis."""

    fn: Any
    calls: tuple[Call, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    caller: CodeLocation = field(default_factory=CodeLocation)

    @property
    def name(self) -> str:
        """The name of the function or of the module's class."""
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    @property
    def backend(self) -> str:
        """The name of the backend; empty for one without a name."""
        backend = self.options.get("backend", "inductor")
        return backend if isinstance(backend, str) else ""

    def location(self) -> CodeLocation:
        """Returns where the model is defined; the caller's line if that is in PyTorch."""
        inner = type(self.fn) if isinstance(self.fn, torch.nn.Module) else self.fn
        try:
            location = CodeLocation(inspect.getsourcefile(inner) or "", inspect.getsourcelines(inner)[1])
        except (TypeError, OSError):
            return self.caller
        return self.caller if is_in_torch(location) else location

    def own_location(self, location: CodeLocation) -> CodeLocation:
        """Returns a location, or that of the model where it is unknown or in PyTorch."""
        return self.location() if not location.file or is_in_torch(location) else location

    def fresh(self) -> Any:
        """Returns a copy of the model, so that one run does not change the next."""
        return copy.deepcopy(self.fn) if isinstance(self.fn, torch.nn.Module) else self.fn

    def compiled(self, **changes: Any) -> Any:
        """Returns the model compiled with its options, some of them changed."""
        return torch.compile(self.fresh(), **{**self.options, **changes})

    def isolated(self, **changes: Any) -> Any:
        """Returns the same with compiled code that is shared with no other."""
        return adapter.compile_isolated(self.fresh(), **{**self.options, **changes})


@dataclass
class Observation:
    """The compiler's records while a subject made its calls, and what the last of them returned."""

    records: list[Record] = field(default_factory=list)
    compiled: Any = None
    results: Any = None


@contextmanager
def suppress_output() -> Iterator[None]:
    """Suppresses what the model prints, and warnings that a diagnosis reports in full."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


def observe(subject: Subject, *, isolated: bool = False, **changes: Any) -> Observation:
    """Compiles the model from scratch and makes its calls, recording the compiler's trace."""
    torch.compiler.reset()
    observation = Observation()
    with suppress_output(), adapter.capture_records() as records:
        observation.compiled = (subject.isolated if isolated else subject.compiled)(**changes)
        for call in subject.calls:
            observation.results = call.run(observation.compiled)
    observation.records = records
    return observation
