"""AOTInductor packages built and loaded, PyTorch's cache artifacts, and counts of compilations."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tunewright.errors import BackendError
from tunewright.torch.inductor import separate_weights
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.separate_weights import KeptTensors

SUFFIX = ".pt2"
_COUNTERS = "torch._dynamo.utils.counters"


def build_package(
    model: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    options: Mapping[str, Any],
    change: Callable[[Any], None] | None = None,
) -> bytes:
    """Compiles a model for arguments like these; returns machine code with its weights.

    `change` is called with the exported graph and may rewrite it.
    """
    module = model if isinstance(model, torch.nn.Module) else _FunctionModule(model)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # PyTorch's own deprecation warnings
        program = torch.export.export(module, tuple(arguments), dict(keywords))
        if change is not None:
            exported = program.module()
            change(exported)
            program = torch.export.export(exported, tuple(arguments), dict(keywords))
        path = hook("torch._inductor.aoti_compile_and_package")(
            program,
            package_path=os.path.join(folder, f"model{SUFFIX}"),
            inductor_configs={**separate_weights.settings(), **options},
        )
        return Path(path).read_bytes()


class _FunctionModule(torch.nn.Module):  # type: ignore[misc]
    """A function as a module, since only modules are exported."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Calls the function."""
        return self.function(*arguments, **keywords)


class LoadedPackage:
    """A loaded package, called as the model, without a compiler.

    PyTorch's own loader compiles small programs to find out what this processor can do, and parses the structure of
    the arguments from JSON in every call; neither is needed once a manifest was checked.
    """

    def __init__(self, content: bytes | memoryview, weights: KeptTensors | None = None) -> None:
        """Loads machine code, with `weights` that it uses in place if they are not in it."""
        self._weights = weights  # with their memory: for what is packed, the loader has an address alone
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"model{SUFFIX}"
            path.write_bytes(content)
            try:
                self._loader = hook("torch._C._aoti.AOTIModelPackageLoader")(str(path), "model", False, 1, -1)
                if weights is not None:
                    self._use(weights)
            except RuntimeError as error:
                raise BackendError(f"the package cannot be loaded: {error}; build the bundle again") from error
        _, structure = self._loader.get_call_spec()
        self._structure = hook("torch.utils._pytree.treespec_loads")(structure)
        self._unflatten = hook("torch.utils._pytree.tree_unflatten")

    def _use(self, weights: KeptTensors) -> None:
        """Runs with these weights, in place; raises RuntimeError if they are not those that the code needs."""
        needed, known = Counter(self._loader.get_constant_fqns()), Counter(list(weights))
        if wrong := [*(needed - known), *(known - needed)]:
            raise RuntimeError(f"its weights differ from what its code needs, such as {min(wrong)}")
        if weights:
            self._loader.load_constants(weights, False, True, True)  # the active ones, all of them, not copied

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Returns the results for flat arguments."""
        return self._unflatten(self._loader.boxed_run(list(leaves)), self._structure)


def save_caches() -> bytes:
    """Returns what this process compiled as PyTorch's cache artifacts, which contain pickles."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise BackendError("PyTorch's caches kept nothing of what was compiled; `tunewright torch doctor` says why")
    return bytes(saved[0])


def load_caches(content: bytes) -> None:
    """Loads cache artifacts into PyTorch's caches; only for trusted content, since PyTorch unpickles it."""
    if torch.compiler.load_cache_artifacts(content) is None:
        raise BackendError("PyTorch does not accept these cache artifacts; build the bundle again with this release")


def compile_counts() -> Counter[str]:
    """Returns how much this process compiled and autotuned; empty where the compiler was never loaded."""
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
