"""Shipping: models compiled ahead into signed bundles, with what their code depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from tunewright.errors import BackendError, SettingsError, SignatureError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.session import Session
from tunewright.stores import serialization
from tunewright.stores.bundle import build, signing
from tunewright.torch import compatibility
from tunewright.torch.calls import Call, read_calls
from tunewright.torch.compatibility import Compatibility
from tunewright.torch.decided import DecidedModel, find_decided
from tunewright.torch.inductor import adapter, packages, releases, separate_weights
from tunewright.torch.inductor.constants import TensorLayout
from tunewright.torch.reduced_precision import FULL, check_names, reduce_products

log = LazyLogger(__name__)

KIND = "torch"
"""The kind of attachments of a bundle that belong to a compiled model."""

MANIFEST, CACHES, WEIGHTS = "shipment", "caches", "weights"
_PLAIN_TYPES = (str, int, float, bool, type(None))

_REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError)


class ModelManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest of a shipped model: its name, what its code depends on, and the calls it was compiled for.

    `weights` says for each call where its weights are in the attachment that has them all; empty if they are in the
    packages themselves.
    """

    name: str
    compatibility: Compatibility = msgspec.field(name="premises")
    calls: tuple[tuple[str, ...], ...] = ()
    caches: bool = False
    settings: dict[str, str | int | float | bool | None] = {}
    weights: tuple[dict[str, TensorLayout], ...] = ()


def package_name(call: Sequence[str]) -> str:
    """Returns the name of the attachment with the package for a call."""
    return "package " + " ".join(call)


def code_name(call: Sequence[str]) -> str:
    """Returns the same for a package without weights, which older versions must not load."""
    return "code " + " ".join(call)


def make_attachments(
    model: Any, calls: Sequence[Any], config: Mapping[str, Any], *, caches: bool = False, precision: str = FULL
) -> list[build.Attachment]:
    """Returns the manifest of a model with a package for each kind of call, or with PyTorch's caches after them.

    `precision` is that of the matrix products in packages.
    """
    releases.require_supported()
    inner, options = adapter.unwrap_compiled(model)
    read = read_calls(calls)
    if getattr(inner, "training", False):
        raise SignatureError("a model in training mode is not shipped; call its eval() first")
    settings = {**options.get("options", {}), **config}
    if caches and settings.get("freezing"):
        raise SignatureError("PyTorch's caches do not keep frozen models; ship machine code, or do not freeze")
    if caches and (odd := [name for name, value in settings.items() if not isinstance(value, _PLAIN_TYPES)]):
        raise SignatureError(f"the option {odd[0]} cannot be shipped with caches; ship machine code, or leave it out")
    kinds = {call.describe(): call for call in read}
    weights: tuple[dict[str, TensorLayout], ...] = ()
    if caches:
        content = [build.Attachment(KIND, CACHES, _compile_caches(inner, read, settings))]
    else:
        change = None if precision == FULL else partial(reduce_products, precision=precision)
        made = {kind: _compile_package(inner, kinds[kind], settings, change) for kind in sorted(kinds)}
        content, weights = _attach_packages(made)
    compiled = settings if precision == FULL else {**settings, "precision": precision}
    manifest = ModelManifest(
        name=str(getattr(inner, "__name__", type(inner).__name__)),
        compatibility=compatibility.current(inner, compiled),
        calls=tuple(sorted(kinds)),
        caches=caches,
        settings=settings if caches else {},  # machine code contains them; cache entries are found by them
        weights=weights,
    )
    return [build.Attachment(KIND, MANIFEST, serialization.encode(manifest)), *content]


def bundle(
    path: Path | str,
    model: Any,
    *calls: Any,
    sign: Path | str | None = None,
    caches: bool = False,
    session: Session | None = None,
    numerics: Sequence[str] = (),
    **config: Any,
) -> str:
    """Compiles a model for each of `calls` into a bundle at `path`, signed with the key at `sign`; returns its digest.

    A call is a tuple of arguments, a dict of keywords, or `Call(x, mask=y)`.
    It is compiled as was decided for its graphs, and those decisions are packed with it; a matrix product that was not
    decided is tuned, which is logged, or refused in a mode that does not tune. `numerics` are the reduced precisions
    that were allowed when it was tuned. `config`, settings of Inductor
    such as `freezing=True`, is used instead if it is given. With `caches`, PyTorch's cache artifacts are packed
    instead of machine code, for models that cannot be exported: they save tracing and tuning, not the compiler.
    """
    made = compile_bundle(model, calls, config, caches=caches, session=session, numerics=numerics)
    for note in made.notes:
        log.warning("%s: %s", path, note)
    return made.write(path, sign)


class CompiledBundle(NamedTuple):
    """The content of a bundle, the decisions in it, and what is to be said about it."""

    content: bytes
    decisions: Sequence[Decision]
    notes: Sequence[str]

    def write(self, path: Path | str, sign: Path | str | None) -> str:
        """Writes the bundle, signed with the key at `sign` if there is one; returns its digest."""
        return build.write(Path(path), self.content, signing.load_private_key(Path(sign)) if sign else None)


def compile_bundle(
    model: Any,
    calls: Sequence[Any],
    config: Mapping[str, Any],
    *,
    caches: bool = False,
    session: Session | None = None,
    numerics: Sequence[str] = (),
) -> CompiledBundle:
    """Compiles a model for each of `calls` as `bundle` does, and returns what it writes."""
    inner, options = adapter.unwrap_compiled(model)
    asked, allowed = bool(config or options.get("options") or caches), check_names(numerics)
    if allowed and asked:
        given = "caches" if caches else "the settings of Inductor"
        raise SettingsError(
            f"numerics says which decisions are looked up, and nothing is looked up with {given}: leave out either"
        )
    decided = DecidedModel() if asked else find_decided(inner, read_calls(calls), session, allowed)
    with decided.applied():
        settings = {**decided.settings, **config}
        attachments = make_attachments(model, calls, settings, caches=caches, precision=decided.precision)
    return CompiledBundle(build.build(decided.decisions, attachments), decided.decisions, decided.notes)


def _compile_package(model: Any, call: Call, config: Mapping[str, Any], change: Callable[[Any], None] | None) -> bytes:
    try:
        return packages.build_package(model, call.args, call.sorted().kwargs, config, change)
    except _REFUSALS as error:
        first = str(error).strip().partition("\n")[0]
        raise BackendError(
            f"the model cannot be compiled ahead: {type(error).__name__}: {first}; `tunewright torch doctor` finds "
            "what breaks its graph, and caches alone can be shipped of any model (--caches)"
        ) from error


def _attach_packages(
    made: Mapping[tuple[str, ...], bytes],
) -> tuple[list[build.Attachment], tuple[dict[str, TensorLayout], ...]]:
    """Returns packages as attachments, with their weights apart if that is possible, and where each weight is."""
    split: list[separate_weights.SplitPackage] = []
    for content in made.values():
        part = separate_weights.split(content, split[-1].end if split else 0)
        if part is None:
            return [build.Attachment(KIND, package_name(kind), content) for kind, content in made.items()], ()
        split.append(part)
    weights = b"".join(part.weights for part in split)
    attached = [build.Attachment(KIND, code_name(kind), part.code) for kind, part in zip(made, split, strict=True)]
    return [*attached, build.Attachment(KIND, WEIGHTS, weights)], tuple(part.layouts for part in split)


def _compile_caches(model: Any, calls: Sequence[Call], config: Mapping[str, Any]) -> bytes:
    torch.compiler.reset()
    with adapter.fresh_caches(), adapter.inductor_config(**config), torch.no_grad():
        compiled = torch.compile(model)
        for call in calls:
            call.run(compiled)
        return packages.save_caches()
