"""Build: a bundle made of decisions and artefacts; the same contents make the same bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunewright.model.decision import Decision
from tunewright.sharing import wire
from tunewright.stores.bodies import kin_of, seal
from tunewright.stores.bundle.layout import Body, packed
from tunewright.stores.bundle.store import Manifest
from tunewright.version import __version__


def choice_digest(decisions: Iterable[Decision]) -> str:
    """A digest over what was chosen, whoever found it and when: equal on two machines that run the same configs."""
    chosen = sorted((decision.key.digest, wire.encode(decision.config)) for decision in decisions)
    return sha256(b"".join(digest.encode() + body for digest, body in chosen)).hexdigest()


def build(decisions: Iterable[Decision], artefacts: Mapping[str, bytes] | None = None, *, note: str = "") -> bytes:
    """A bundle without its trailer."""
    every = sorted({decision.key: decision for decision in decisions}.values(), key=lambda one: one.key.digest)
    blobs = {sha256(content).digest(): content for content in (artefacts or {}).values()}
    toolchains = {wire.encode(decision.key.toolchain): decision.key.toolchain for decision in every}
    manifest = Manifest(
        made_by=f"tunewright {__version__}",
        decisions=len(every),
        artefacts=len(blobs),
        choice=choice_digest(every),
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
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    with scratch.open("wb") as file:
        file.write(content)
        file.write(signing.trailer(digest, key))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    return digest.hex()
