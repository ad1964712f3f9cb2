"""Build: a bundle made of decisions and artefacts; the same contents make the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.model.decision import Decision
from tunewright.sharing import choices, files, wire
from tunewright.sharing.artefacts import Label
from tunewright.stores.bodies import kin_of, seal
from tunewright.stores.bundle.layout import Body, packed
from tunewright.stores.bundle.store import Enclosed, Manifest
from tunewright.version import __version__


class Enclosure(NamedTuple):
    """Something to come along: a `build` with its label, or the transcript of a `race` by its key's digest."""

    kind: str
    name: str
    content: bytes
    label: Label | None = None


def build(decisions: Iterable[Decision], enclosures: Iterable[Enclosure] = (), *, note: str = "") -> bytes:
    """A bundle without its trailer."""
    every = sorted({decision.key: decision for decision in decisions}.values(), key=lambda one: one.key.digest)
    packed_in = sorted({(one.kind, one.name): one for one in enclosures}.values(), key=lambda one: one[:2])
    blobs = {sha256(one.content).digest(): one.content for one in packed_in}
    listed = wire.encode([Enclosed(o.kind, o.name, sha256(o.content).hexdigest(), o.label) for o in packed_in])
    if packed_in:
        blobs[sha256(listed).digest()] = listed
    toolchains = {wire.encode(decision.key.toolchain): decision.key.toolchain for decision in every}
    manifest = Manifest(
        made_by=f"tunewright {__version__}",
        decisions=len(every),
        artefacts=len(packed_in),
        choice=choices.digest((decision.key, decision.config) for decision in every),
        enclosed=sha256(listed).hexdigest() if packed_in else "",
        kernels=dict(sorted(Counter(decision.key.kernel for decision in every).items())),
        devices=dict(sorted(Counter(str(decision.key.device) for decision in every).items())),
        toolchains=tuple(toolchains[text] for text in sorted(toolchains)),
        note=note,
    )
    return packed(wire.encode(manifest), [_body(decision) for decision in every], blobs)


def _body(decision: Decision) -> Body:
    digest, body = bytes.fromhex(decision.key.digest), wire.dump_decision(decision)
    return Body(digest, kin_of(decision.key), body, seal(body, digest))


def write(path: Path, content: bytes, key: Any = None) -> str:
    """Write a bundle, signed if a key is given, at once or not at all; its digest."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    digest = sha256(content).digest()
    files.put(path, content, signing.trailer(digest, key), lasting=True)
    return digest.hex()
