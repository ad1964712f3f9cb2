"""The attachments of a bundle: artifacts built for its decisions, and transcripts of their races."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tunewright.errors import BackendError
from tunewright.kernel.tuned import Tuned
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision
from tunewright.model.signature import Signature
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores import artifacts, transcripts
from tunewright.stores.bundle.build import Attachment

log = LazyLogger(__name__)


def build_all(kernel: Tuned, decisions: Iterable[Decision]) -> None:
    """Builds the decided configs of this machine, and the default, which production may fall back to."""
    for decision in decisions:
        signature = decision.key.signature
        if decision.evidence is not None and decision.evidence.rule is not None:
            continue  # its configs are those of other decisions, or are built where they are used
        if kernel.backend.key(kernel.kernel, signature, decision.key.mode) != decision.key:
            continue
        for config in {decision.config, kernel.default}:
            try:
                kernel.backend.build(kernel.kernel, config, signature)
            except BackendError as error:
                log.warning("%s: %s cannot be built and is not packed: %s", kernel.name, config, error)


def triton_artifacts(session: Session, kernels: Collection[str]) -> Iterator[Attachment]:
    """Yields the prebuilt artifacts of Triton kernels with these names, or of all, that fit their target."""
    try:
        from tunewright.triton.static import artifacts as triton  # noqa: PLC0415 - only where Triton kernels are packed
        from tunewright.triton.static.resources import find_misfits  # noqa: PLC0415
        from tunewright.triton.static.targets import find_target  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tunewright.triton"):
            raise
        return  # without the extension there are no such artifacts
    cache = triton.ArtifactCache(session.settings.cache_path)
    for record in cache.records():
        if record.resources is None or find_misfits(record.resources, find_target(record.target)):
            continue
        if not kernels or record.kernel in kernels:
            name, toolchain = f"{record.key}{triton.SUFFIX}", {"triton": record.triton, "target": record.target}
            label = artifacts.ArtifactLabel(name, record.kernel, "", Config(record.config), Signature(), toolchain)
            yield Attachment("build", name, cache.read(record.key), label)


def attachments(session: Session, decisions: Sequence[Decision], kernels: Iterable[Tuned] = ()) -> Iterator[Attachment]:
    """Yields the artifacts built here for decided configs and for the defaults of `kernels`, and transcripts."""
    packed = {(decision.key.kernel, _knobs(config)) for decision in decisions for config in _configs(decision)}
    packed |= {(kernel.name, _knobs(kernel.default)) for kernel in kernels}
    sources = {decision.key.source for decision in decisions if VARIANT not in decision.config}
    with_variants = {decision.key.kernel for decision in decisions if VARIANT in decision.config}
    cache = session.settings.cache_path
    for label in artifacts.read_labels(cache):
        # A kernel with variants has a source of its own, from which those of its variants cannot be told.
        is_current = label.source in sources or label.kernel in with_variants
        if not is_current or (label.kernel, _knobs(label.config)) not in packed:
            continue
        if (kept := artifacts.read_intact(artifacts.artifact_path(cache, label.name))) is not None:
            yield Attachment("build", label.name, *kept)
    for decision in decisions:
        if (body := transcripts.encode_for_bundle(session.store, decision)) is not None:
            yield Attachment("race", decision.key.digest, body)


def _configs(decision: Decision) -> list[Config]:
    """Returns the config of a decision, and those of its rule if it has one."""
    rule = decision.evidence.rule if decision.evidence is not None else None
    return [decision.config, *(Config(leaf.config) for leaf in (rule.leaves() if rule else ()))]


def _knobs(config: Config) -> Config:
    return Config({name: value for name, value in config.items() if name != VARIANT})
