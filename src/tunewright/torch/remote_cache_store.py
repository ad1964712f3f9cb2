"""Remote cache of compiled graphs in a store, shared by machines of one kind; entries are signed, being pickles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunewright.errors import BundleError, SettingsError, StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.stores import locations, namespaces
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.layout import TRAILER
from tunewright.stores.bundle.signers import read_signers
from tunewright.stores.capabilities import KeepsNamespaces
from tunewright.torch import compatibility
from tunewright.torch.inductor import releases, remote

log = LazyLogger(__name__)

NAMESPACE = namespaces.TORCH_CACHE.name
_PURPOSE = b"tunewright torch cache\n"
"""Start of what is signed, so that no signature of a bundle can pass for one of these."""


class SignedCache:
    """Entries of a namespace, each signed together with its name; one without a trusted signature is a miss.

    Otherwise whoever may write to the store could run code in every process that reads from it.
    """

    def __init__(self, store: KeepsNamespaces, signers: Mapping[bytes, str], key: Any, tag: str) -> None:
        self._store, self._signers, self._key, self._tag = store, signers, key, tag
        self.counts: Counter[str] = Counter()

    def fetch(self, name: str) -> bytes | None:
        """Returns the entry of that name for machines like this one; None if there is no trusted one."""
        tagged = self._tagged(name)
        try:
            entry = self._store.fetch(NAMESPACE, [tagged]).get(tagged)
        except StoreError as error:
            self._record_failure("away", error)
            return None
        if entry is None:
            self.counts["misses"] += 1
            return None
        body, trailer = entry[:-TRAILER], entry[-TRAILER:]
        try:
            signer = signing.verify_signer(trailer, _digest(tagged, body)) if len(trailer) == TRAILER else None
        except BundleError as error:
            self._record_failure("refused", error)
            return None
        if signer not in self._signers:
            self._record_failure("refused", "it is not signed by anybody on the list of signers")
            return None
        self.counts["hits"] += 1
        return body

    def keep(self, name: str, body: bytes) -> None:
        """Stores an entry, if this process has a key to sign it with."""
        if self._key is None:
            return
        tagged = self._tagged(name)
        try:
            self._store.keep(NAMESPACE, tagged, body + signing.make_trailer(_digest(tagged, body), self._key))
            self.counts["kept"] += 1
        except StoreError as error:
            self._record_failure("away", error)

    def _tagged(self, name: str) -> str:
        return f"{self._tag}:{name}"

    def _record_failure(self, kind: str, reason: object) -> None:
        """Counts a failure, and logs the first of its kind."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            log.warning("a compiled graph in the namespace %r is not used: %s", NAMESPACE, reason)


@contextmanager
def remote_cache(location: str, *, signers: Path | str, sign: Path | str | None = None) -> Iterator[Counter[str]]:
    """Lets `torch.compile` look up and store compiled graphs in the store at `location` while the context is open.

    Yields counts: `hits`, `misses`, `kept`, `refused`, `away`. Release of PyTorch, processor and instruction sets are
    part of every key. Only entries signed by somebody on the list `signers` are used; without the private key `sign`
    nothing is stored. An unavailable store is a miss.
    """
    releases.require_supported()
    store = locations.open_store(location, None)
    if not isinstance(store, KeepsNamespaces):
        raise SettingsError(f"{location} only stores decisions; use PostgreSQL, Redis or a file")
    trusted = read_signers(Path(signers)).require_single(signers)
    if not trusted:
        raise SettingsError(f"{signers} lists no signer; add the public keys of those whom you trust")
    tag = compatibility.cache_tag()
    cache = SignedCache(store, trusted, signing.load_private_key(Path(sign)) if sign else None, tag)
    with remote.use_remote_cache(cache.fetch, cache.keep, tag):
        yield cache.counts


def _digest(name: str, body: bytes) -> bytes:
    return sha256(_PURPOSE + len(name.encode()).to_bytes(8, "little") + name.encode() + body).digest()
