"""Patient: what is to be looked at: a model, the calls it gets, and how it is compiled."""

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

from tunewright.backends.inductor import adapter
from tunewright.backends.inductor.adapter import Record
from tunewright.report.diagnosis import Place

_HOME = str(Path(torch.__file__).parent)


def is_torchs(place: Place) -> bool:
    """Whether a line is PyTorch's own."""
    return place.file.startswith(_HOME)


@dataclass(frozen=True)
class Patient:
    """A model, the arguments of one call or more, what `torch.compile` is told, and where that was asked for."""

    fn: Any
    calls: tuple[tuple[Any, ...], ...]
    how: Mapping[str, Any] = field(default_factory=dict)
    asked: Place = field(default_factory=Place)

    @property
    def name(self) -> str:
        """What people call it."""
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    @property
    def backend(self) -> str:
        """The name of the backend; empty for one that has none."""
        named = self.how.get("backend", "inductor")
        return named if isinstance(named, str) else ""

    def place(self) -> Place:
        """Where the model is defined; where it was asked for, if that is inside PyTorch."""
        inner = type(self.fn) if isinstance(self.fn, torch.nn.Module) else self.fn
        try:
            found = Place(inspect.getsourcefile(inner) or "", inspect.getsourcelines(inner)[1])
        except (TypeError, OSError):
            return self.asked
        return self.asked if is_torchs(found) else found

    def own(self, place: Place) -> Place:
        """A place, or that of the model where it is none of its author's."""
        return self.place() if not place.file or is_torchs(place) else place

    def fresh(self) -> Any:
        """The model as it was given, so that one look at it does not change the next."""
        return copy.deepcopy(self.fn) if isinstance(self.fn, torch.nn.Module) else self.fn

    def compiled(self, **changed: Any) -> Any:
        """The model compiled, as it was asked for or with something changed."""
        return torch.compile(self.fresh(), **{**self.how, **changed})


@dataclass
class Visit:
    """What was heard while a patient made its calls, and what the last of them returned."""

    records: list[Record] = field(default_factory=list)
    compiled: Any = None
    results: Any = None


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the model prints, and without warnings that say in passing what a diagnosis says in full."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


def visit(patient: Patient, **changed: Any) -> Visit:
    """Compile the model from scratch and make its calls under observation."""
    torch.compiler.reset()
    found = Visit()
    with quietly(), adapter.overheard() as heard:
        found.compiled = patient.compiled(**changed)
        for arguments in patient.calls:
            found.results = found.compiled(*arguments)
    found.records = heard
    return found
