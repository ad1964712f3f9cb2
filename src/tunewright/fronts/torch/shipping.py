"""Shipping: a model compiled ahead, as one signed bundle: packages, cache artefacts, decisions, premises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from tunewright.backends.inductor import adapter, packages
from tunewright.errors import BackendError, SignatureError
from tunewright.fronts.torch import premises
from tunewright.fronts.torch.premises import Premises
from tunewright.model.decision import Decision
from tunewright.sharing import wire
from tunewright.stores.bundle import build, signing

KIND = "torch"
"""What enclosures of a bundle that belong to a compiled model are called."""

SHIPMENT, CACHES = "shipment", "caches"
_PLAIN = (str, int, float, bool, type(None))

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


class Shipment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a bundle says of the model in it: its name, what its code takes for granted, the calls it was made for."""

    name: str
    premises: Premises
    calls: tuple[tuple[str, ...], ...] = ()
    caches: bool = False
    settings: dict[str, str | int | float | bool | None] = {}


def described(leaves: Sequence[Any]) -> tuple[str, ...]:
    """What arguments look like, as far as code depends on it: types, sizes and strides; other values as they are."""
    return tuple(
        f"{str(leaf.dtype)[6:]}{list(leaf.shape)}/{list(leaf.stride())}@{leaf.device}"
        if isinstance(leaf, torch.Tensor)
        else repr(leaf)
        for leaf in leaves
    )


def package_name(call: Sequence[str]) -> str:
    """What the package for such a call is enclosed as."""
    return "package " + " ".join(call)


def enclosures(
    model: Any, calls: Sequence[tuple[Any, ...]], config: Mapping[str, Any], *, caches: bool = False
) -> list[build.Enclosure]:
    """What ships of a model: a package for each kind of call, or what PyTorch's caches hold after these calls."""
    adapter.trusted()
    inner, how = adapter.original(model)
    if not calls or not all(isinstance(call, tuple) for call in calls):
        raise SignatureError("a model is shipped for calls: give the arguments of each as a tuple")
    if getattr(inner, "training", False):
        raise SignatureError("a model in training mode is not shipped; call its eval() first")
    settings = {**how.get("options", {}), **config}
    if caches and settings.get("freezing"):
        raise SignatureError("PyTorch's caches do not keep frozen models; ship machine code, or do not freeze")
    if caches and (odd := [name for name, value in settings.items() if not isinstance(value, _PLAIN)]):
        raise SignatureError(f"the option {odd[0]} cannot travel with caches; ship machine code, or leave it out")
    made = {described(packages.flat(call)): call for call in calls}
    found = [] if caches else [_packaged(inner, call, name, settings) for name, call in made.items()]
    if caches:
        found.append(build.Enclosure(KIND, CACHES, _cached(inner, calls, settings)))
    said = Shipment(
        name=str(getattr(inner, "__name__", type(inner).__name__)),
        premises=premises.here(inner, settings),
        calls=tuple(sorted(made)),
        caches=caches,
        settings=settings if caches else {},  # machine code has them in it; what caches hold is found by them
    )
    return [build.Enclosure(KIND, SHIPMENT, wire.encode(said)), *found]


def bundle(
    path: Path | str,
    model: Any,
    *calls: tuple[Any, ...],
    sign: Path | str | None = None,
    caches: bool = False,
    decisions: Iterable[Decision] = (),
    **config: Any,
) -> str:
    """Compile a model for each of `calls` into a bundle at `path`, signed with the key at `sign`; its digest.

    `config` are settings of Inductor, such as `freezing=True`. With `caches` PyTorch's own cache artefacts are packed
    instead of machine code, for models that cannot be exported: they spare tracing and tuning, not the compiler.
    """
    content = build.build(decisions, enclosures(model, calls, config, caches=caches))
    return build.write(Path(path), content, signing.private_key(Path(sign)) if sign else None)


def _packaged(model: Any, call: tuple[Any, ...], name: tuple[str, ...], config: Mapping[str, Any]) -> build.Enclosure:
    try:
        content = packages.package(model, call, config)
    except _REFUSALS as error:
        first = str(error).strip().partition("\n")[0]
        raise BackendError(
            f"the model cannot be compiled ahead: {type(error).__name__}: {first}; `tunewright torch doctor` finds "
            "what breaks its graph, and caches alone can be shipped of any model (--caches)"
        ) from error
    return build.Enclosure(KIND, package_name(name), content)


def _cached(model: Any, calls: Sequence[tuple[Any, ...]], config: Mapping[str, Any]) -> bytes:
    torch.compiler.reset()
    with adapter.uncached(), adapter.configured(**config), torch.no_grad():
        compiled = torch.compile(model)
        for call in calls:
            compiled(*call)
        return packages.saved_caches()
