"""Packing: what goes into a bundle: decisions, what was built for them, the transcripts of their races."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tunewright.backends.triton import artefacts as triton
from tunewright.backends.triton.figures import misfits
from tunewright.backends.triton.targets import target
from tunewright.errors import BackendError
from tunewright.fronts.tuned import Tuned
from tunewright.model.decision import Decision
from tunewright.model.signature import Signature
from tunewright.remarks import Remarks
from tunewright.session import Session
from tunewright.sharing import artefacts, transcripts
from tunewright.spaces.config import VARIANT, Config
from tunewright.stores.bundle.build import Enclosure

log = Remarks(__name__)


def build_all(kernel: Tuned, decisions: Iterable[Decision]) -> None:
    """Build what is decided for this machine, and the default beside it: production may fall back to it."""
    for decision in decisions:
        signature = decision.key.signature
        if kernel.backend.key(kernel.kernel, signature, decision.key.mode) != decision.key:
            continue
        for config in {decision.config, kernel.default}:
            try:
                kernel.backend.build(kernel.kernel, config, signature)
            except BackendError as error:
                log.warning("%s: %s is not built and does not come along: %s", kernel.name, config, error)


def prebuilt(session: Session, kernels: Collection[str]) -> Iterator[Enclosure]:
    """What was prebuilt of Triton kernels with these names, or of all, and fits."""
    shelf = triton.Shelf(session.settings.cache_path)
    for found in shelf.labels():
        if found.resources is None or misfits(found.resources, target(found.target)):
            continue
        if not kernels or found.kernel in kernels:
            name, toolchain = f"{found.key}{triton.SUFFIX}", {"triton": found.triton, "target": found.target}
            label = artefacts.Label(name, found.kernel, "", Config(found.config), Signature(), toolchain)
            yield Enclosure("build", name, shelf.body(found.key), label)


def enclosures(session: Session, decisions: Sequence[Decision], kernels: Iterable[Tuned] = ()) -> Iterator[Enclosure]:
    """What comes along: what was built here of the configs decided, and of `kernels`' defaults; the races."""
    wanted = {(decision.key.kernel, _knobs(decision.config)) for decision in decisions}
    wanted |= {(kernel.name, _knobs(kernel.default)) for kernel in kernels}
    sources = {decision.key.source for decision in decisions if VARIANT not in decision.config}
    several = {decision.key.kernel for decision in decisions if VARIANT in decision.config}
    cache = session.settings.cache_path
    for label in artefacts.labels(cache):
        # A choice among implementations has a source of its own; theirs cannot be told from it.
        current = label.source in sources or label.kernel in several
        if current and (label.kernel, _knobs(label.config)) in wanted:
            yield Enclosure("build", label.name, artefacts.place(cache, label.name).read_bytes(), label)
    for decision in decisions:
        if (body := transcripts.enclosable(session.store, decision)) is not None:
            yield Enclosure("race", decision.key.digest, body)


def _knobs(config: Config) -> Config:
    return Config({name: value for name, value in config.items() if name != VARIANT})
