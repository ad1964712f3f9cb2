"""Shipping: models compiled ahead into signed bundles, with what their code depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from tunewright.errors import BackendError, SignatureError
from tunewright.model.decision import Decision
from tunewright.stores import serialization
from tunewright.stores.bundle import build, signing
from tunewright.torch import compatibility
from tunewright.torch.compatibility import Compatibility
from tunewright.torch.inductor import adapter, packages

KIND = "torch"
"""The kind of attachments of a bundle that belong to a compiled model."""

MANIFEST, CACHES = "shipment", "caches"
_PLAIN_TYPES = (str, int, float, bool, type(None))

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


class ModelManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest of a shipped model: its name, what its code depends on, and the calls it was compiled for."""

    name: str
    compatibility: Compatibility = msgspec.field(name="premises")
    calls: tuple[tuple[str, ...], ...] = ()
    caches: bool = False
    settings: dict[str, str | int | float | bool | None] = {}


def describe_arguments(leaves: Sequence[Any]) -> tuple[str, ...]:
    """Returns what code depends on of its arguments: dtypes, sizes and strides; other values as they are."""
    return tuple(
        f"{str(leaf.dtype)[6:]}{list(leaf.shape)}/{list(leaf.stride())}@{leaf.device}"
        if isinstance(leaf, torch.Tensor)
        else repr(leaf)
        for leaf in leaves
    )


def package_name(call: Sequence[str]) -> str:
    """Returns the name of the attachment with the package for a call."""
    return "package " + " ".join(call)


def make_attachments(
    model: Any, calls: Sequence[tuple[Any, ...]], config: Mapping[str, Any], *, caches: bool = False
) -> list[build.Attachment]:
    """Returns the manifest of a model with a package for each kind of call, or with PyTorch's caches after them."""
    adapter.require_supported()
    inner, options = adapter.unwrap_compiled(model)
    if not calls or not all(isinstance(call, tuple) for call in calls):
        raise SignatureError("a model is shipped for calls: give the arguments of each as a tuple")
    if getattr(inner, "training", False):
        raise SignatureError("a model in training mode is not shipped; call its eval() first")
    settings = {**options.get("options", {}), **config}
    if caches and settings.get("freezing"):
        raise SignatureError("PyTorch's caches do not keep frozen models; ship machine code, or do not freeze")
    if caches and (odd := [name for name, value in settings.items() if not isinstance(value, _PLAIN_TYPES)]):
        raise SignatureError(f"the option {odd[0]} cannot be shipped with caches; ship machine code, or leave it out")
    kinds = {describe_arguments(packages.flatten(call)): call for call in calls}
    if caches:
        content = [build.Attachment(KIND, CACHES, _compile_caches(inner, calls, settings))]
    else:
        content = [_compile_package(inner, call, kind, settings) for kind, call in kinds.items()]
    manifest = ModelManifest(
        name=str(getattr(inner, "__name__", type(inner).__name__)),
        compatibility=compatibility.current(inner, settings),
        calls=tuple(sorted(kinds)),
        caches=caches,
        settings=settings if caches else {},  # machine code contains them; cache entries are found by them
    )
    return [build.Attachment(KIND, MANIFEST, serialization.encode(manifest)), *content]


def bundle(
    path: Path | str,
    model: Any,
    *calls: tuple[Any, ...],
    sign: Path | str | None = None,
    caches: bool = False,
    decisions: Iterable[Decision] = (),
    **config: Any,
) -> str:
    """Compiles a model for each of `calls` into a bundle at `path`, signed with the key at `sign`; returns its digest.

    `config` are settings of Inductor, such as `freezing=True`. With `caches`, PyTorch's cache artifacts are packed
    instead of machine code, for models that cannot be exported: they save tracing and tuning, not the compiler.
    """
    content = build.build(decisions, make_attachments(model, calls, config, caches=caches))
    return build.write(Path(path), content, signing.load_private_key(Path(sign)) if sign else None)


def _compile_package(
    model: Any, call: tuple[Any, ...], kind: tuple[str, ...], config: Mapping[str, Any]
) -> build.Attachment:
    try:
        content = packages.build_package(model, call, config)
    except _REFUSALS as error:
        first = str(error).strip().partition("\n")[0]
        raise BackendError(
            f"the model cannot be compiled ahead: {type(error).__name__}: {first}; `tunewright torch doctor` finds "
            "what breaks its graph, and caches alone can be shipped of any model (--caches)"
        ) from error
    return build.Attachment(KIND, package_name(kind), content)


def _compile_caches(model: Any, calls: Sequence[tuple[Any, ...]], config: Mapping[str, Any]) -> bytes:
    torch.compiler.reset()
    with adapter.fresh_caches(), adapter.inductor_config(**config), torch.no_grad():
        compiled = torch.compile(model)
        for call in calls:
            compiled(*call)
        return packages.save_caches()
