"""Places: a location in words becomes stores, nearest first, none of which can hold up a launch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tunewright.errors import StoreError
from tunewright.ports import plugins
from tunewright.ports.store import Store
from tunewright.sharing.offers import Agreement, Heeding

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BETWEEN = re.compile(rf"\s+(?={_SCHEME.pattern})")
_LOCAL = ("memory", "sqlite")


def at(location: str) -> Store:
    """The one store at `location`, as it is."""
    store: Store = plugins.load("stores", _name(location)).at(location)
    return store


def truth(location: str) -> Store:
    """The record of truth of `location`, as it is: the farthest of its places. Its errors are errors."""
    return at(_BETWEEN.split(location.strip())[-1])


def each(location: str) -> list[Store]:
    """The stores at `location`, nearest first, as they are."""
    return [_store(place) for place in _BETWEEN.split(location.strip())]


def mirror_of(location: str, cache: Path) -> Path:
    """Where a remote is mirrored. Each has a mirror of its own: what one says is no answer to a question to another."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, which a store of this machine never needs

    farthest = _BETWEEN.split(location.strip())[-1]
    if _name(farthest) in ("http", "https"):
        farthest = re.sub(r"(?<=://)[^/?#]*@", "", farthest)  # a service is the same, whatever token opens it
    return cache / "mirrors" / f"{sha256(farthest.encode()).hexdigest()[:12]}.sqlite"


def remembered(location: str, cache: Path, *, mirrors: bool) -> Store:
    """What a process holds: memory over the store at `location`, which is mirrored in the cache if it is remote."""
    from tunewright.stores.layers import Layers  # noqa: PLC0415 - of several, few processes need more than one
    from tunewright.stores.memory import MemoryStore  # noqa: PLC0415 - as above

    mirror = mirror_of(location, cache) if mirrors and "://" in location else None
    inner = opened(location, mirror, cache / "store.sqlite")
    # Ranks that agree keep in mind themselves what they agreed on.
    return inner if isinstance(inner, Agreement) else Layers(MemoryStore(), inner)


def opened(location: str, mirror: Path | None, home: Path | None = None) -> Store:
    """The store at `location`: one place, or several with blanks between, nearest first.

    `redis://cache:6379/0 postgresql://db/tunewright` is a cache before a record of truth. What has a scheme (`name://`)
    is remote: guarded by a breaker, and the farthest one mirrored in a SQLite file, if a `mirror` is given. Anything
    else is a store of this machine: a path, which may have blanks in it, or `name:...`. `torch:` is what the ranks of
    a job agree on, each with a store of its own at `home`. What was found bad on this machine is told beside `home`.
    """
    places = _BETWEEN.split(location.strip())
    stores = [_store(place) for place in places]
    for store in stores:
        if home is not None and isinstance(store, Heeding):
            store.heed(home.parent)
    if _name(location) == "torch":
        from tunewright.stores.agreed import Agreed  # noqa: PLC0415 - for ranks alone
        from tunewright.stores.memory import MemoryStore  # noqa: PLC0415 - as above

        common: Any = stores[0]
        return Agreed(common, at(str(home)) if home else MemoryStore())
    remote = [_remote(place) for place in places]
    if len(stores) == 1 and not remote[0]:
        return stores[0]
    from tunewright.stores.guarded import Guarded  # noqa: PLC0415 - for remotes alone
    from tunewright.stores.layers import Layers  # noqa: PLC0415 - as above
    from tunewright.stores.mirrored import Mirrored  # noqa: PLC0415 - as above

    for depth, store in enumerate(stores):
        if remote[depth]:
            stores[depth] = Guarded(store)
    if remote[-1] and mirror is not None:
        local: Any = at(str(mirror))
        stores[-1] = Mirrored(stores[-1], local)
    return stores[0] if len(stores) == 1 else Layers(*stores)


def _name(place: str) -> str:
    """The plugin that a place belongs to."""
    scheme, colon, _ = place.partition(":")
    return scheme if colon and len(scheme) > 1 else "sqlite"


def _remote(place: str) -> bool:
    return bool(_SCHEME.match(place)) and _name(place) not in _LOCAL


def _store(place: str) -> Store:
    if _remote(place) and re.search(r"\s", place):
        raise StoreError(f"there is a blank in {place!r}; of several places, all but the first begin with `name://`")
    return at(place)
