"""A remote store with a local one beside it that answers when the remote cannot, and sends on what it missed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing import wire
from tunewright.sharing.offers import Cache, Leases, Shelves, Upkeep
from tunewright.stores.guarded import OFFERS

log = Remarks(__name__)

T = TypeVar("T")

UNSENT = "unsent"
"""The shelf of the local store on which lies what the remote has not got yet, and the lease of who sends it on."""

SENDING_SECONDS = 60.0
"""How long one entry may take to send before another process may try."""

CATCHING_UP_SECONDS = 0.5
"""How long a write may be held up by sending on what is owed of other keys; the next write goes on with it."""

LOOK_SECONDS = 1.0
"""How long a reader goes by its last look at what is unsent, which may be much."""


class Mirror(Store, Cache, Leases, Shelves, Protocol):
    """What a store must do to stand in for a remote one."""


class Unsent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the remote has not got yet: trials, or a decision, made when `over` was what stood as far as we knew."""

    key: Key
    decision: Decision | None = None
    over: Decision | None = None
    trials: tuple[Trial, ...] = ()
    schema: int = SCHEMA

    def prevails(self, standing: Decision | None) -> bool:
        """Whether the decision is to stand: nothing does, or what it was meant to replace. Else others came first."""
        return self.decision is not None and (standing is None or standing == self.over)


class Mirrored:
    """The remote is the record of truth: it is asked first, and what it says is copied into the local store.

    When it fails (StoreError), the local one answers and keeps what is put. That is not lost: the next writes that the
    remote takes, or `send`, send it on. A decision sent on stands only if no other came first. Trials are sent at
    least once: a remote that fails after it kept them gets them again. One local store serves one remote, for all
    processes of a machine.
    """

    def __init__(self, remote: Store, local: Mirror) -> None:
        self._remote, self._local = remote, local
        self._owner = uuid.uuid4().hex
        self._owes = True  # until a look at the shelf shows otherwise: an earlier process may have left something
        self._owed: list[tuple[str, Unsent]] = []
        self._looked = float("-inf")
        self._down = self._passed_over = False
        for offer, verbs in OFFERS.items():
            if offer is Cache:
                continue  # a record of truth is no room for what others know
            near: Any = None if offer is Upkeep else local
            stores = [store for store in (remote, near) if isinstance(store, offer)]
            for verb in verbs if stores else ():
                # On the object, so that `isinstance` tells what is offered.
                setattr(self, verb, partial(self._both if verb == "release" else self._either, stores, verb))

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`."""

        def there() -> dict[Key, Decision]:
            return self._copied(self._with_unsent(self._remote.get_many(keys), set(keys).__contains__))

        return self._answered(there, lambda: self._local.get_many(keys))

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands."""

        def there() -> Decision:
            self._catch_up(decision.key)
            standing = self._remote.put(decision, replace=replace)
            self._copied({decision.key: standing})
            return standing

        def here() -> Decision:
            before = self._local.get(decision.key)
            standing = self._local.put(decision, replace=replace)
            if standing == decision:
                over = None if before == decision else before
                self._owe(Unsent(decision.key, decision, over))
            return standing

        return self._answered(there, here)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""

        def there() -> list[Decision]:
            found = {decision.key: decision for decision in self._remote.relatives(key, most)}
            return list(self._copied(self._with_unsent(found, lambda other: other.kin == key.kin)).values())

        return iter(self._answered(there, lambda: list(self._local.relatives(key, most)))[:most])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel."""

        def there() -> list[Decision]:
            found = {decision.key: decision for decision in self._remote.decisions(kernel)}
            return list(self._with_unsent(found, lambda key: kernel in (None, key.kernel)).values())

        return iter(self._answered(there, lambda: list(self._local.decisions(kernel))))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key."""

        def there() -> None:
            self._catch_up(key)
            self._remote.record(key, trials)

        def here() -> None:
            self._local.record(key, trials)
            self._owe(Unsent(key, trials=tuple(trials)))

        self._answered(there, here)

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key: the remote's and what it has not got yet; if it is down, what was kept meanwhile."""

        def there() -> list[Trial]:
            owed = [trial for _, unsent in self._unsent() if unsent.key == key for trial in unsent.trials]
            return [*self._remote.trials(key), *owed]

        return iter(self._answered(there, lambda: list(self._local.trials(key))))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""

        def there() -> list[Key]:
            owed = [unsent.key for _, unsent in self._unsent() if kernel in (None, unsent.key.kernel)]
            return list(dict.fromkeys([*self._remote.keys(kernel), *owed]))

        return iter(self._answered(there, lambda: list(self._local.keys(kernel))))

    def send(self, seconds: float = inf, first: Key | None = None) -> int:
        """Send on what the remote has not got yet, oldest first; how much that was. A StoreError if it is still down.

        It ends after so many `seconds`, but not before all of the key `first` is sent. Of many processes one sends at a
        time; the others go on.
        """
        sent = 0
        if not self._unsent() or not self._locally(self._local.claim, UNSENT, self._owner, SENDING_SECONDS):
            return sent
        until = time.monotonic() + seconds
        try:
            for name, unsent in sorted(self._unsent(), key=lambda owed: owed[1].key != first):
                if unsent.key != first and time.monotonic() > until:
                    return sent
                self._forward(unsent)
                # A shelf is cleared as a whole; one entry leaves it by being replaced with what expires at once.
                self._locally(self._local.keep, UNSENT, name, b"", seconds=0.0)
                self._locally(self._local.claim, UNSENT, self._owner, SENDING_SECONDS)
                sent += 1
        finally:
            self._locally(self._local.release, UNSENT, self._owner)
        self._owes = False
        log.info("%d writes that were kept here meanwhile are sent on", sent)
        return sent

    def _catch_up(self, key: Key) -> None:
        """Send on what is owed before anything new is written: all of this key, and of others for a moment."""
        if self._owes and self._down:
            self._remote.get(key)  # while this fails, there is no use in reading all that is owed
        self.send(CATCHING_UP_SECONDS, key)

    def _forward(self, unsent: Unsent) -> None:
        if unsent.trials:
            self._remote.record(unsent.key, unsent.trials)
        if unsent.decision is not None:
            replace = unsent.over is not None and unsent.prevails(self._remote.get(unsent.key))
            self._copied({unsent.key: self._remote.put(unsent.decision, replace=replace)})

    def _owe(self, unsent: Unsent) -> None:
        """Remember to send something on; under a name of its own, so that no later one takes its place."""
        self._local.keep(UNSENT, uuid.uuid4().hex, wire.encode(unsent))
        self._owes, self._looked = True, float("-inf")

    def _unsent(self, age: float = 0.0) -> list[tuple[str, Unsent]]:
        """What is still to be sent, oldest first, with the names it lies under: as it was at most `age` seconds ago."""
        if self._owes and time.monotonic() - self._looked >= age:
            entries = self._locally(lambda: list(self._local.entries(UNSENT))) or ()
            self._owed = [(name, unsent) for name, body in entries if (unsent := _read(body)) is not None]
            self._owes, self._looked = bool(self._owed), time.monotonic()
        return self._owed if self._owes else []

    def _with_unsent(self, found: dict[Key, Decision], belongs: Callable[[Key], bool]) -> dict[Key, Decision]:
        """What the remote says, and what it will say when it has got everything."""
        for _, unsent in self._unsent(LOOK_SECONDS):
            if unsent.decision is not None and belongs(unsent.key) and unsent.prevails(found.get(unsent.key)):
                found[unsent.key] = unsent.decision
        return found

    def _copied(self, found: dict[Key, Decision]) -> dict[Key, Decision]:
        """The same, copied into the local store where that differs."""

        def copy() -> None:
            known = self._local.get_many(list(found))
            if changed := [decision for key, decision in found.items() if known.get(key) != decision]:
                self._local.fill(changed)

        self._locally(copy)
        return found

    def _answered(self, there: Callable[[], T], here: Callable[[], T]) -> T:
        """What is said there, or here if there it fails; said aloud once each time it goes down."""
        try:
            answer = there()
        except StoreError as error:
            say = log.debug if self._down else log.warning
            self._down = True
            say("the local store answers instead: %s", error)
            return here()
        self._down = False
        return answer

    def _locally(self, what: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """What the local store answers; None if it cannot, which is no reason to do without the remote."""
        try:
            return what(*args, **options)
        except StoreError as error:
            say = log.debug if self._passed_over else log.warning  # aloud once, then for those who listen closely
            self._passed_over = True
            say("the local store is passed over: %s", error)
            return None

    def _either(self, stores: Sequence[Any], verb: str, *args: Any, **options: Any) -> Any:
        """What the first of `stores` that can answers."""

        def asked(store: Any) -> Any:
            answer = getattr(store, verb)(*args, **options)
            return iter(list(answer)) if isinstance(answer, Iterator) else answer

        if len(stores) == 1:
            return asked(stores[0])
        return self._answered(lambda: asked(stores[0]), lambda: asked(stores[1]))

    def _both(self, stores: Sequence[Any], verb: str, *args: Any, **options: Any) -> None:
        """Tell all of `stores`: a lease may have been taken here while there was no one there."""
        self._answered(lambda: getattr(stores[0], verb)(*args, **options), lambda: None)
        for store in stores[1:]:
            self._locally(getattr(store, verb), *args, **options)


def _read(body: bytes) -> Unsent | None:
    """What is to be sent on; None if it was already, or cannot be read: then it stays where it is."""
    if not body:
        return None
    try:
        unsent = wire.decode(body, Unsent)
    except WireError as error:
        log.warning("what was to be sent on is passed over: %s", error)
        return None
    return unsent if unsent.schema == SCHEMA else None
