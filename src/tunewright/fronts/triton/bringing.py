"""Bringing: compiled configs from a bundle, put where Triton looks before it compiles; and what is compiled all the
same, counted.
"""

from __future__ import annotations

from functools import cache

from tunewright.backends.triton import adapter
from tunewright.backends.triton.artefacts import SUFFIX, install_into_triton_cache
from tunewright.remarks import Remarks
from tunewright.session import Session, current_session
from tunewright.sharing.sealing import SEAL

log = Remarks(__name__)


def bring(session: Session, kernel: str) -> int:
    """Put what the session's store brings for `kernel` and this device into Triton's cache; how much that was."""
    architecture = adapter.device().architecture
    count = install_into_triton_cache(session.supply.contents(kernel, SUFFIX, architecture))
    if count:
        log.info("%s: %d compiled configs are brought for %s", kernel, count, architecture)
    return count


@cache
def listen() -> None:
    """Count what Triton compiles from now on; what it finds in its cache does not count."""
    adapter.hear_compiles(_heard)


def _heard(name: str) -> None:
    current_session().counts["compiles"] += 1
    SEAL.note("compiles", f"{name} was compiled")
