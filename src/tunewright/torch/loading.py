"""Loading of shipped models, after their signer and their compatibility with this machine were checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from tunewright.errors import BundleError, SettingsError, SignatureError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.settings import Settings
from tunewright.stores import serialization
from tunewright.stores.bundle.store import BundleStore
from tunewright.stores.seal import SEAL
from tunewright.torch import compatibility
from tunewright.torch.calls import Call, describe_leaves, tensors_of
from tunewright.torch.compatibility import ALLOWABLE, Difference
from tunewright.torch.inductor import packages, separate_weights
from tunewright.torch.inductor.separate_weights import KeptTensors
from tunewright.torch.shipping import CACHES, KIND, MANIFEST, WEIGHTS, ModelManifest, code_name, package_name

log = LazyLogger(__name__)


class Shipped:
    """A model from a bundle; a call with other sizes, strides or dtypes than it was compiled for is refused."""

    def __init__(self, store: BundleStore, manifest: ModelManifest) -> None:
        self.manifest = manifest
        self._counts_before = packages.compile_counts()
        self._packages: dict[tuple[str, ...], packages.LoadedPackage] = {}
        weights = _weights(store, manifest)
        for call in manifest.calls:
            content = store.view_attachment(KIND, code_name(call) if call in weights else package_name(call))
            if content is None:
                raise BundleError(f"{store.path} lacks the package for {_join(call)}; build it again")
            self._packages[call] = packages.LoadedPackage(content, weights.get(call))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Returns the model's results."""
        leaves = Call(*arguments, **keywords).leaves()
        call = describe_leaves(leaves)
        package = self._packages.get(call)
        if package is None:
            known = "; ".join(map(_join, self._packages))
            raise SignatureError(
                f"{self.manifest.name} was compiled for {known}, and is called with {_join(call)}: "
                "change the call, or build the bundle with such a call too"
            )
        return package(tensors_of(leaves))

    @property
    def counts(self) -> Counter[str]:
        """What this process has compiled and autotuned since the model was loaded: `compiles`, `autotunes`."""
        return packages.compile_counts() - self._counts_before


def load(
    path: Path | str,
    *,
    signers: Path | str | None = None,
    pin: str | None = None,
    model: Any = None,
    allow: Collection[str] = (),
    otherwise: Callable[[], Any] | None = None,
) -> Any:
    """Loads the model in the bundle at `path`, signed by one of those in the file `signers`, or with the digest `pin`.

    Checks first what its code depends on: the release of PyTorch, the processor and its instruction sets, threads,
    and with `model`, its source and weights. Differences that are not in `allow` are refused; or `otherwise` is
    called, such as `lambda: torch.compile(model)`.
    """
    if unknown := set(allow) - set(ALLOWABLE):
        raise SettingsError(f"{unknown.pop()!r} cannot be allowed; choose from {', '.join(ALLOWABLE)}")
    store, manifest = open_bundle(path, signers, pin)
    differences = [difference for difference in find_differences(manifest, model) if difference.name not in allow]
    if not differences:
        return Shipped(store, manifest) if not manifest.caches else _compile_from_caches(store, manifest, model)
    message = f"{path} was compiled for another environment: " + " | ".join(map(str, differences))
    if otherwise is None:
        raise BundleError(message)
    log.warning("%s; it is compiled here instead", message)
    SEAL.check("compiles", f"{manifest.name} is compiled, since its bundle is for another environment")
    return otherwise()


def open_bundle(path: Path | str, signers: Path | str | None, pin: str | None) -> tuple[BundleStore, ModelManifest]:
    """Returns a trusted bundle and the manifest of its model."""
    store = BundleStore.open_trusted(path, signers, pin)
    store.require_fresh(Settings.read().cache_path)
    content = store.read_attachment(KIND, MANIFEST)
    if content is None:
        raise BundleError(f"there is no model in {path}; make it with `tunewright torch bundle`")
    try:
        return store, serialization.decode(content, ModelManifest)
    except WireError as error:
        raise BundleError(f"the manifest of the model in {path} cannot be read: {error}; build it again") from error


def find_differences(manifest: ModelManifest, model: Any = None) -> list[Difference]:
    """Returns what shipped code depends on and is different here."""
    return compatibility.differences(manifest.compatibility, compatibility.current(model))


def _weights(store: BundleStore, manifest: ModelManifest) -> dict[tuple[str, ...], KeptTensors]:
    """Returns the weights of each call as they lie in the verified content; none if they are in the packages."""
    if not manifest.weights:
        return {}
    content = store.view_attachment(KIND, WEIGHTS)
    if content is None or len(manifest.weights) != len(manifest.calls):
        raise BundleError(f"{store.path} lacks its weights; build it again")
    block = separate_weights.make_block(content)
    made = [separate_weights.make_weights(block, layouts) for layouts in manifest.weights]
    return dict(zip(manifest.calls, made, strict=True))


def _compile_from_caches(store: BundleStore, manifest: ModelManifest, model: Any) -> Any:
    """Returns the model compiled from cache artifacts, which are unpickled only now that they are trusted."""
    if model is None:
        raise BundleError(f"{store.path} holds caches, no machine code; give the model they are for: load(..., model=)")
    content = store.read_attachment(KIND, CACHES)
    if content is None:
        raise BundleError(f"{store.path} lacks its cache artifacts; build it again")
    packages.load_caches(content)
    return torch.compile(model, options=dict(manifest.settings))


def _join(call: Sequence[str]) -> str:
    return "(" + ", ".join(call) + ")"
