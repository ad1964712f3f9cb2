"""Packages: what AOTInductor compiles for production, made and loaded; caches as one piece; what a process compiled."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tunewright.backends.inductor.adapter import hook
from tunewright.errors import BackendError

SUFFIX = ".pt2"
_COUNTERS = "torch._dynamo.utils.counters"


def package(model: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> bytes:
    """A model compiled for arguments like these, with its weights, as one piece of machine code."""
    module = model if isinstance(model, torch.nn.Module) else _Wrapped(model)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # parts of PyTorch call other parts deprecated
        program = torch.export.export(module, tuple(arguments))
        made = hook("torch._inductor.aoti_compile_and_package")(
            program, package_path=os.path.join(folder, f"model{SUFFIX}"), inductor_configs=dict(options)
        )
        return Path(made).read_bytes()


class _Wrapped(torch.nn.Module):  # type: ignore[misc]
    """A function as a module, since only those are exported."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        """What the function does."""
        return self.function(*arguments)


class Compiled:
    """A package that was loaded: called as the model, without a compiler.

    PyTorch's own loader compiles small programs to find out what this processor can do, and reads the shape of the
    arguments from JSON in every call; neither is needed where a manifest was checked first.
    """

    def __init__(self, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / f"model{SUFFIX}"
            place.write_bytes(content)
            try:
                self._loader = hook("torch._C._aoti.AOTIModelPackageLoader")(str(place), "model", False, 1, -1)
            except RuntimeError as error:
                raise BackendError(f"the package cannot be loaded: {error}; build the bundle again") from error
        read = hook("torch.utils._pytree.treespec_loads")
        _, results = self._loader.get_call_spec()
        self._results = read(results)
        self._joined = hook("torch.utils._pytree.tree_unflatten")

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The results for flat arguments."""
        return self._joined(self._loader.boxed_run(list(leaves)), self._results)


def flat(arguments: Any) -> list[Any]:
    """The leaves of nested arguments."""
    leaves: list[Any] = _flattener()(arguments)
    return leaves


@cache
def _flattener() -> Callable[[Any], list[Any]]:
    """Found once, since it is needed in every call."""
    found: Callable[[Any], list[Any]] = hook("torch.utils._pytree.tree_leaves")
    return found


def saved_caches() -> bytes:
    """What this process compiled, as PyTorch's own cache artefacts; they hold pickles."""
    found = torch.compiler.save_cache_artifacts()
    if found is None:
        raise BackendError("nothing was compiled that PyTorch's caches keep; `tunewright torch doctor` says why")
    return bytes(found[0])


def load_caches(content: bytes) -> None:
    """Put cache artefacts where PyTorch looks; only for what somebody vouches for, since it unpickles them."""
    if torch.compiler.load_cache_artifacts(content) is None:
        raise BackendError("PyTorch does not take these cache artefacts; build the bundle again with this release")


def compiled_so_far() -> Counter[str]:
    """What this process compiled and autotuned; nothing, where the compiler was never even loaded."""
    if "torch._dynamo.utils" not in sys.modules:
        return Counter()
    counters = hook(_COUNTERS)
    inductor = counters["inductor"]
    timed = sum(count for name, count in inductor.items() if name.startswith("benchmarking."))
    return Counter(
        compiles=counters["stats"]["unique_graphs"]
        + inductor["fxgraph_cache_miss"]
        + counters["aot_autograd"]["total"],
        autotunes=inductor["select_algorithm_autotune"] + timed,
    )
