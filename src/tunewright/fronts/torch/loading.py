"""Loading: a shipped model, once its signer and its premises are found good; nothing of it is believed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from tunewright.backends.inductor import adapter, packages
from tunewright.errors import BundleError, SettingsError, SignatureError, WireError
from tunewright.fronts.torch import premises
from tunewright.fronts.torch.premises import FORGIVEN, Difference
from tunewright.fronts.torch.shipping import CACHES, KIND, SHIPMENT, Shipment, described, package_name
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.sealing import SEAL
from tunewright.stores.bundle.store import BundleStore

log = Remarks(__name__)


class Shipped:
    """A model from a bundle, called as it was compiled; a call of another kind is refused rather than miscomputed."""

    def __init__(self, store: BundleStore, shipment: Shipment) -> None:
        self.shipment = shipment
        self._before = packages.compiled_so_far()
        self._code: dict[tuple[str, ...], packages.Compiled] = {}
        for call in shipment.calls:
            content = store.enclosed(KIND, package_name(call))
            if content is None:
                raise BundleError(f"{store.path} lacks the package for {_shown(call)}; build it again")
            self._code[call] = packages.Compiled(content)

    def __call__(self, *arguments: Any) -> Any:
        """The model's results."""
        leaves = packages.flat(arguments)
        kind = described(leaves)
        code = self._code.get(kind)
        if code is None:
            known = "; ".join(map(_shown, self._code))
            raise SignatureError(
                f"{self.shipment.name} was compiled for {known}, and is called with {_shown(kind)}: "
                "make the call alike, or build the bundle with such a call too"
            )
        return code([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])

    @property
    def counts(self) -> Counter[str]:
        """What this process has compiled and autotuned since the model was loaded: `compiles`, `autotunes`."""
        return packages.compiled_so_far() - self._before


def load(
    path: Path | str,
    *,
    signers: Path | str | None = None,
    pin: str | None = None,
    model: Any = None,
    allow: Collection[str] = (),
    otherwise: Callable[[], Any] | None = None,
) -> Any:
    """The model in the bundle at `path`, signed by one of those in the file `signers`, or with the digest `pin`.

    What its code takes for granted is checked first: the release of PyTorch, the processor and its instruction sets,
    threads, and, where the `model` is given, its source and weights. Where something differs it is refused with all
    that differs, but for what is in `allow`; or `otherwise` is called, such as `lambda: torch.compile(model)`.
    """
    if unknown := set(allow) - set(FORGIVEN):
        raise SettingsError(f"{unknown.pop()!r} cannot be allowed; there are {', '.join(FORGIVEN)}")
    store, shipment = opened(path, signers, pin)
    found = [one for one in compared(shipment, model) if one.name not in allow]
    if not found:
        return Shipped(store, shipment) if not shipment.caches else _warmed(store, shipment, model)
    said = f"{path} was compiled for another place: " + " | ".join(map(str, found))
    if otherwise is None:
        raise BundleError(said)
    log.warning("%s; it is compiled here instead", said)
    SEAL.note("compiles", f"{shipment.name} is compiled, since its bundle is for another place")
    return otherwise()


def opened(path: Path | str, signers: Path | str | None, pin: str | None) -> tuple[BundleStore, Shipment]:
    """A bundle that somebody vouches for, and what it says of the model in it."""
    adapter.trusted()
    store = BundleStore.trusted(path, signers, pin)
    content = store.enclosed(KIND, SHIPMENT)
    if content is None:
        raise BundleError(f"there is no model in {path}; make it with `tunewright torch bundle`")
    try:
        return store, wire.decode(content, Shipment)
    except WireError as error:
        raise BundleError(f"{path}: what it says of its model cannot be read: {error}; build it again") from error


def compared(shipment: Shipment, model: Any = None) -> list[Difference]:
    """Which premises of shipped code do not hold here."""
    return premises.differences(shipment.premises, premises.here(model))


def _warmed(store: BundleStore, shipment: Shipment, model: Any) -> Any:
    """The model compiled from cache artefacts, which are unpickled only now that somebody vouches for them."""
    if model is None:
        raise BundleError(
            f"{store.path} holds caches, no machine code; give the model that they are for: load(..., model=)"
        )
    content = store.enclosed(KIND, CACHES)
    if content is None:
        raise BundleError(f"{store.path} lacks its cache artefacts; build it again")
    packages.load_caches(content)
    return torch.compile(model, options=dict(shipment.settings))


def _shown(call: Sequence[str]) -> str:
    return "(" + ", ".join(call) + ")"
