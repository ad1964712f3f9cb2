"""Remote: graphs that one machine compiled, for others of its kind, on a shelf of a store; signed, being pickles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunewright.backends.inductor import adapter, remote
from tunewright.errors import BundleError, SettingsError, StoreError
from tunewright.fronts.torch import premises
from tunewright.remarks import Remarks
from tunewright.sharing.offers import Shelves
from tunewright.stores import places
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.layout import TRAILER

log = Remarks(__name__)

SHELF = "torch"
_PURPOSE = b"tunewright torch cache\n"
"""What is signed begins with what it is for: no signature of a bundle can be taken for one of these."""


class Vault:
    """Entries of a shelf, each signed together with its name; what nobody on the list signed is a miss.

    Whoever may write to the store could otherwise run code in every process that reads from it.
    """

    def __init__(self, shelf: Shelves, signers: Mapping[bytes, str], key: Any, tag: str) -> None:
        self._shelf, self._signers, self._key, self._tag = shelf, signers, key, tag
        self.counts: Counter[str] = Counter()

    def fetch(self, name: str) -> bytes | None:
        """The entry called so for machines like this one; None where there is none that can be believed."""
        named = self._name(name)
        try:
            found = self._shelf.fetch(SHELF, [named]).get(named)
        except StoreError as error:
            self._note("away", error)
            return None
        if found is None:
            self.counts["misses"] += 1
            return None
        body, end = found[:-TRAILER], found[-TRAILER:]
        try:
            by = signing.signer(end, _digest(named, body)) if len(end) == TRAILER else None
        except BundleError as error:
            self._note("refused", error)
            return None
        if by not in self._signers:
            self._note("refused", "it is not signed by anybody on the list of signers")
            return None
        self.counts["hits"] += 1
        return body

    def keep(self, name: str, body: bytes) -> None:
        """Keep an entry, if this process has a key to sign it with."""
        if self._key is None:
            return
        named = self._name(name)
        try:
            self._shelf.keep(SHELF, named, body + signing.trailer(_digest(named, body), self._key))
            self.counts["kept"] += 1
        except StoreError as error:
            self._note("away", error)

    def _name(self, name: str) -> str:
        return f"{self._tag}:{name}"

    def _note(self, kind: str, why: object) -> None:
        """Count a failure; the first of its kind is said aloud."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            log.warning("a compiled graph on the shelf %r is not used: %s", SHELF, why)


@contextmanager
def remote_cache(location: str, *, signers: Path | str, sign: Path | str | None = None) -> Iterator[Counter[str]]:
    """While this is open, `torch.compile` looks for graphs in the store at `location`, and keeps its own there.

    Yields counts: `hits`, `misses`, `kept`, `refused`, `away`. Entries are for machines like this one alone: release
    of PyTorch, processor and instruction sets are part of every key. Those signed by somebody on the list `signers` are
    used; without `sign`, a private key, nothing is kept. A store that is away is a miss.
    """
    adapter.trusted()
    store = places.opened(location, None)
    if not isinstance(store, Shelves):
        raise SettingsError(f"{location} keeps decisions alone; take PostgreSQL, Redis or a file, which have shelves")
    listed = signing.allowed(Path(signers))
    if not listed:
        raise SettingsError(f"{signers} lists no signer; put the public keys there of those whom you trust")
    tag = premises.tag()
    vault = Vault(store, listed, signing.private_key(Path(sign)) if sign else None, tag)
    with remote.kept(vault.fetch, vault.keep, tag):
        yield vault.counts


def _digest(name: str, body: bytes) -> bytes:
    return sha256(_PURPOSE + len(name.encode()).to_bytes(8, "little") + name.encode() + body).digest()
