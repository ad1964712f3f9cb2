"""Compiled code of a graph: captured with its constants when it is loaded, and loaded again with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import BackendError
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.patching import replaced_attribute, replaced_hook

_LOADER = "torch._inductor.codecache.PyCodeCache"
_SETTINGS = "torch._inductor.config"
_ISA = "torch._inductor.cpu_vec_isa"

PythonCode = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph as PyTorch generates it."""


@dataclass(frozen=True)
class LoadedCode:
    """The file that PyTorch has generated for a graph, and its constants by name."""

    path: Path
    constants: Mapping[str, Any]

    @property
    def source(self) -> str:
        """What PyTorch has generated."""
        return self.path.read_text()


@contextmanager
def capture_code() -> Iterator[list[LoadedCode]]:
    """Collects the code of all graphs that is loaded while the context is open."""
    loader, codes = hook(_LOADER), []  # type: tuple[Any, list[LoadedCode]]
    load = loader.load_by_key_path

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
        if (constants := kwargs.get("attrs")) is not None:
            codes.append(LoadedCode(Path(path), dict(constants)))
        return load(key, path, *args, **kwargs)

    with replaced_attribute(loader, "load_by_key_path", load_by_key_path):
        yield codes


class InstructionSet(msgspec.Struct, frozen=True):
    """The instruction set that C++ code is compiled for: its name for PyTorch, and the features found beside it."""

    name: str
    features: dict[str, bool]

    @classmethod
    def picked(cls, settings: Mapping[str, Any]) -> InstructionSet:
        """Returns what PyTorch picks with these settings."""
        with hook(f"{_SETTINGS}.patch")(dict(settings)):
            picked = hook(f"{_ISA}.pick_vec_isa")()
        return cls(str(picked), {name: value for name, value in vars(picked).items() if isinstance(value, bool)})

    def enable(self) -> Any:
        """Returns it as PyTorch has it, ready to be used by this process."""
        known = [*hook(f"{_ISA}.supported_vec_isa_list"), hook(f"{_ISA}.invalid_vec_isa")]
        instructions = next((copy.copy(known_set) for known_set in known if str(known_set) == self.name), None)
        if instructions is None:
            raise BackendError(f"this PyTorch has no instruction set {self.name!r}")
        vars(instructions).update(self.features)
        if "amx" in self.name and not hook("torch.cpu._init_amx")():
            raise BackendError("the system does not let this process use AMX")
        return instructions


def load_code(
    source: str, constants: Mapping[str, Any], settings: Mapping[str, Any], isa: InstructionSet
) -> PythonCode:
    """Returns the compiled graph whose code this is; it takes a list of its inputs, which it empties.

    The C++ code in it is compiled again only if PyTorch has kept none that was compiled with these settings for this
    instruction set. By itself, PyTorch would start a dozen processes first, to find out which instruction set it is
    and to preprocess the headers that compilations need.
    """
    loader, instructions = hook(_LOADER), isa.enable()
    picked = replaced_hook("torch._inductor.codecache.pick_vec_isa", lambda: instructions)
    no_headers = replaced_hook("torch._inductor.codecache._precompile_header", lambda *_, **__: "")
    with hook(f"{_SETTINGS}.patch")(dict(settings)), picked, no_headers:
        key, path = loader.write(source)
        call: PythonCode = loader.load_by_key_path(key, path, attrs=dict(constants)).call
    return call


def cache_folder() -> Path | None:
    """Returns where PyTorch keeps compiled code; None if it is told not to."""
    settings = hook(_SETTINGS)
    if settings.force_disable_caches or not settings.fx_graph_cache:
        return None
    return Path(hook("torch._inductor.runtime.cache_dir_utils.cache_dir")())
