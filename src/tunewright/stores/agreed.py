"""Several processes that must answer alike, though each has a store of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.remarks import Remarks
from tunewright.sharing.offers import Leases

log = Remarks(__name__)


class Common(Store, Leases, Protocol):
    """A store that all of them see."""


class Agreed:
    """What the common store says holds; what only one's own store knows is published there first.

    So whoever comes first settles a key for all, be it by what it has stored or by what it has tuned. Trials stay
    at home. Where the common store does not answer, a decision is one's own, and that is said.
    """

    def __init__(self, common: Common, own: Store) -> None:
        self._common, self._own = common, own
        self._settled: dict[Key, Decision] = {}

    def get(self, key: Key) -> Decision | None:
        """The decision that holds for all."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions that hold for all."""
        found = {key: self._settled[key] for key in keys if key in self._settled}
        missing = [key for key in keys if key not in found]
        if not missing:
            return found
        common = self._common.get_many(missing)
        own = self._own.get_many([key for key in missing if key not in common])
        common |= {key: self._common.put(decision, replace=False) for key, decision in own.items()}
        self._settled |= common
        return found | common

    def settle(self, key: Key, answer: Decision) -> Decision:
        """The answer to `key` that all give: the first that any of them gave, of whatever tier."""
        try:
            return self._common.put(Decision(key, answer.config, answer.evidence, answer.tier), replace=False)
        except StoreError as error:
            log.warning("%s: others may answer otherwise: %s", key.kernel, error)
            return answer

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision` for all, and at home; return the one that stands."""
        try:
            decision = self._common.put(decision, replace=replace)
        except StoreError as error:
            log.warning("%s: kept at home only, others may decide otherwise: %s", decision.key.kernel, error)
        self._settled[decision.key] = decision
        return self._own.put(decision)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin, here and there."""
        found = {
            decision.key: decision for store in (self._own, self._common) for decision in store.relatives(key, most)
        }
        return iter(list(found.values())[:most])

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, those that hold for all before one's own."""
        found = {d.key: d for store in (self._own, self._common) for d in store.decisions(kernel)}
        return iter(found.values())

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to one's own journal."""
        self._own.record(key, trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """One's own journal."""
        return self._own.trials(key)

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        return iter(dict.fromkeys([*self._own.keys(kernel), *self._common.keys(kernel)]))

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease among all, or renew it."""
        return self._common.claim(name, owner, seconds)

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        self._common.release(name, owner)
