"""Several stores as one, nearest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing.artefacts import Label
from tunewright.sharing.offers import Brings, Cache, Generations, Leases, Owing, Shelves, Upkeep, Wants
from tunewright.sharing.records import Bounds, Generation, Stats, Want

log = Remarks(__name__)


class Layers:
    """Reads stop at the first hit and fill the nearer layers. The farthest is the record of truth.

    Journals live in the farthest layer that takes them, and so does whatever else layers offer: leases, wants,
    generations, shelves, upkeep. A layer that fails is logged and skipped: a dead remote is a miss, not a crash. Where
    no layer can give a lease, everyone has it: the first decision published stands anyway.
    """

    def __init__(self, *stores: Store) -> None:
        self._stores = stores
        self._said: set[int] = set()

    def get(self, key: Key) -> Decision | None:
        """The nearest decision for exactly this key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, each layer asked once for what the nearer ones lack."""
        found: dict[Key, Decision] = {}
        for depth, store in enumerate(self._stores):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            if fresh := self._try(store, "get_many", missing):
                for nearer in self._stores[:depth]:
                    self._fill(nearer, list(fresh.values()))
                found |= fresh
        return found

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision` in every layer, farthest first, since what stands there stands for all."""
        kept = False
        for store in reversed(self._stores):
            standing = self._try(store, "put", decision, replace=replace or kept)
            if standing is not None:
                decision, kept = standing, True
        if not kept:
            raise StoreError(f"no layer kept the decision for {decision.key.kernel}; the log says why of each")
        return decision

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin in any layer, each key once, from the nearest that has it."""
        found: dict[Key, Decision] = {}
        for store in self._stores:
            for decision in self._try(store, "relatives", key, most) or ():
                found.setdefault(decision.key, decision)
        return iter(list(found.values())[:most])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, each key once, from the nearest layer that has it."""
        seen: set[Key] = set()
        for store in self._stores:
            for decision in self._try(store, "decisions", kernel) or ():
                if decision.key not in seen:
                    seen.add(decision.key)
                    yield decision

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal in the farthest layer that takes them."""
        for store in reversed(self._stores):
            try:
                return store.record(key, trials)
            except StoreError as error:
                self._skipped(store, error)
        raise StoreError(f"no layer kept {len(trials)} trials of {key.kernel}; the log says why of each")

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, from every layer that has a part of it."""
        for store in reversed(self._stores):
            yield from self._try(store, "trials", key) or ()

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial in any layer."""
        seen: dict[Key, None] = {}
        for store in self._stores:
            seen |= dict.fromkeys(self._try(store, "keys", kernel) or ())
        return iter(seen)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it."""
        return bool(self._farthest(Leases, "claim", True, name, owner, seconds))

    def release(self, name: str, owner: str) -> None:
        """Give the lease back, in every layer: while the farthest failed, a nearer one may have given it."""
        for store in self._stores:
            if isinstance(store, Leases):
                self._try(store, "release", name, owner)

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key."""
        self._farthest(Wants, "want", None, wants)

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        return iter(self._farthest(Wants, "wanted", (), kernel))

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        return list(self._farthest(Generations, "history", (), key))

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired; not copied nearer, where it would expire later."""
        return dict(self._farthest(Shelves, "fetch", {}, shelf, names))

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands."""
        return bytes(self._farthest(Shelves, "keep", body, shelf, name, body, seconds=seconds, replace=replace))

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first."""
        return iter(self._farthest(Shelves, "entries", (), shelf))

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        return int(self._farthest(Shelves, "clear", 0, shelf, most=most))

    def enclosed(self, kind: str, name: str) -> bytes | None:
        """What is enclosed under that name, in the nearest layer that brings it."""
        found = (store.enclosed(kind, name) for store in self._stores if isinstance(store, Brings))
        return next((content for content in found if content is not None), None)

    def builds(self, kernel: str) -> Sequence[Label]:
        """What is built for a kernel."""
        return [label for store in self._stores if isinstance(store, Brings) for label in store.builds(kernel)]

    def send(self) -> int:
        """Send on what layers still owe to a remote."""
        return sum(store.send() for store in self._stores if isinstance(store, Owing))

    def stats(self) -> Stats:
        """How much is kept."""
        kept: Stats = self._farthest(Upkeep, "stats", Stats())
        return kept

    def trim(self, bounds: Bounds) -> Stats:
        """Drop what is beyond `bounds`."""
        gone: Stats = self._farthest(Upkeep, "trim", Stats(), bounds)
        return gone

    def faults(self) -> Iterator[str]:
        """Every record that cannot be believed."""
        return iter(self._farthest(Upkeep, "faults", ()))

    def _fill(self, store: Store, decisions: Sequence[Decision]) -> None:
        """Copy what a farther layer answered, by one write where the nearer one takes that."""
        if isinstance(store, Cache):
            self._try(store, "fill", decisions)
            return
        for decision in decisions:
            self._try(store, "put", decision)

    def _farthest(self, offer: type, verb: str, otherwise: Any, *args: Any, **options: Any) -> Any:
        """What the farthest layer answers that makes the offer and does not fail; `otherwise` if there is none."""
        for store in reversed(self._stores):
            if isinstance(store, offer):
                try:
                    return _whole(getattr(store, verb)(*args, **options))
                except StoreError as error:
                    self._skipped(store, error)
        return otherwise

    def _try(self, store: Store, verb: str, *args: Any, **options: Any) -> Any:
        """What `store` answers; None if it cannot."""
        try:
            return _whole(getattr(store, verb)(*args, **options))
        except StoreError as error:
            self._skipped(store, error)
            return None

    def _skipped(self, store: Store, error: StoreError) -> None:
        """Say that a store fails: aloud once, then for those who listen closely."""
        say = log.debug if id(store) in self._said else log.warning
        self._said.add(id(store))
        say("%s is skipped: %s", type(store).__name__, error)


def _whole(answer: Any) -> Any:
    """An answer in parts is taken whole, so that it fails where it is asked for."""
    return list(answer) if isinstance(answer, Iterator) else answer
