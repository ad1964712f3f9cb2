"""Opens stores by their locations: one or several, nearest first, none of which can block a launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunewright.errors import StoreError
from tunewright.ports import plugins
from tunewright.ports.store import Store
from tunewright.stores.capabilities import HasReleases, SupportsConsensus, SupportsDurability, SupportsQuarantine
from tunewright.stores.location_text import hide_secrets
from tunewright.stores.network_files import Probe, filesystem_type, host_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SEPARATOR = re.compile(rf"\s+(?={_SCHEME.pattern})")
MAX_DECISIONS = 100_000
"""Decisions that a process holds in memory, in front of its store; the oldest are dropped."""

_LOCAL_PLUGINS = ("memory", "sqlite")


def open_single(location: str) -> Store:
    """Opens the one store at `location`, without any wrapper."""
    store: Store = plugins.load("stores", _plugin_name(location)).at(location)
    return store


def open_authoritative(location: str) -> Store:
    """Opens the record of truth, the last store of `location`, without any wrapper: its errors are raised."""
    return open_single(_split(location)[-1])


def make_durable(store: Store) -> Store:
    """Returns the same store, whose acknowledged writes survive a power cut; a server keeps to its own settings."""
    return store.durable() if isinstance(store, SupportsDurability) else store


def open_each(location: str) -> list[Store]:
    """Opens the stores of `location`, nearest first, without any wrapper."""
    return [_open(part) for part in _split(location)]


def mirror_path(location: str, cache: Path, probe: Probe = filesystem_type) -> Path:
    """Returns where a remote store is mirrored. Each has its own mirror: it must not answer for another.

    On a network file system each host has its own, too: SQLite in write-ahead mode cannot be shared by hosts.
    """
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a local store never needs

    remote = _split(location)[-1]
    if _plugin_name(remote) in ("http", "https"):
        remote = re.sub(r"(?<=://)[^/?#]*@", "", remote)  # the same service, whatever the token
    return host_path(cache / "mirrors" / f"{sha256(remote.encode()).hexdigest()[:12]}.sqlite", probe)


def open_cached(location: str, cache: Path, *, mirrors: bool, wrap: Callable[[Store], Store] | None = None) -> Store:
    """Opens the store of a process: memory in front of `location`, which is mirrored in the cache if it is remote.

    `wrap` puts something between the two, such as a check of signatures.
    """
    from tunewright.stores.memory import MemoryStore  # noqa: PLC0415 - as above
    from tunewright.stores.tiered import TieredStore  # noqa: PLC0415 - most processes need one kind of store

    mirror = mirror_path(location, cache) if mirrors and "://" in location else None
    store = open_store(location, mirror, cache / "store.sqlite")
    store = wrap(store) if wrap is not None else store
    # A store with consensus remembers by itself what was agreed on.
    return store if isinstance(store, SupportsConsensus) else TieredStore(MemoryStore(MAX_DECISIONS), store)


def open_store(location: str, mirror: Path | None, home: Path | None = None) -> Store:
    """Opens the store at `location`: one, or several separated by blanks, nearest first.

    `redis://cache:6379/0 postgresql://db/tunewright` is a cache in front of a record of truth. A store with a scheme
    (`name://`) is remote: it gets a circuit breaker, and the last one is mirrored in the SQLite file `mirror`, if any.
    Anything else is local: a path, which may have blanks, or `name:...`. `torch:` makes the ranks of a job agree, each
    with its own store at `home`. The quarantine of this machine is beside `home`, as is what it has seen of releases.
    """
    parts = _split(location)
    stores = [_open(part) for part in parts]
    for store in stores:
        if home is not None and isinstance(store, SupportsQuarantine):
            store.apply_quarantine(home.parent)
        if home is not None and isinstance(store, HasReleases):
            store.require_fresh(home.parent)
    if _plugin_name(location) == "torch":
        from tunewright.stores.consensus import ConsensusStore  # noqa: PLC0415 - for ranks alone
        from tunewright.stores.memory import MemoryStore  # noqa: PLC0415 - as above

        shared: Any = stores[0]
        return ConsensusStore(shared, open_single(str(home)) if home else MemoryStore())
    remote = [_is_remote(part) for part in parts]
    if len(stores) == 1 and not remote[0]:
        return stores[0]
    from tunewright.stores.circuit_breaker import CircuitBreakerStore  # noqa: PLC0415 - for remotes alone
    from tunewright.stores.mirror import MirrorStore  # noqa: PLC0415 - as above
    from tunewright.stores.tiered import TieredStore  # noqa: PLC0415 - as above

    for depth, store in enumerate(stores):
        if remote[depth]:
            stores[depth] = CircuitBreakerStore(store)
    if remote[-1] and mirror is not None:
        local: Any = open_single(str(mirror))
        stores[-1] = MirrorStore(stores[-1], local)
    return stores[0] if len(stores) == 1 else TieredStore(*stores)


def _split(location: str) -> list[str]:
    return _SEPARATOR.split(location.strip())


def _plugin_name(location: str) -> str:
    scheme, colon, _ = location.partition(":")
    return scheme if colon and len(scheme) > 1 else "sqlite"


def _is_remote(location: str) -> bool:
    return bool(_SCHEME.match(location)) and _plugin_name(location) not in _LOCAL_PLUGINS


def _open(location: str) -> Store:
    if _is_remote(location) and re.search(r"\s", location):
        shown = hide_secrets(location)
        raise StoreError(f"there is a blank in {shown!r}; of several stores, all but the first begin with `name://`")
    return open_single(location)
