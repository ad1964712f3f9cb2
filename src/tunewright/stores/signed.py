"""Signed store: any store, of which only decisions are used that a trusted key signed, from whoever stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.errors import BundleError, StoreError, WireError, WriteRefused
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Tier
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.ports.store import Store
from tunewright.stores import serialization
from tunewright.stores.capabilities import (
    HasArtifacts,
    HasPendingWrites,
    HasRefusedWrites,
    KeepsRevisions,
    SupportsConsensus,
    SupportsFill,
)
from tunewright.stores.circuit_breaker import CAPABILITY_METHODS, method_names
from tunewright.stores.statistics import Revision

log = LazyLogger(__name__)


class Trust(NamedTuple):
    """Whose signatures count, by public key, and the private key that signs here; None: nobody's, no key."""

    signers: Mapping[bytes, str] | None
    key: Any = None

    @classmethod
    def read(cls, signers: str, signing_key: str = "") -> Trust:
        """Returns what two files say: public keys with names, and a private key; "" if there is none."""
        from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`
        from tunewright.stores.bundle.signers import read_signers  # noqa: PLC0415 - the same

        key = signing.load_private_key(Path(signing_key).expanduser()) if signing_key else None
        names = read_signers(Path(signers).expanduser()).require_single(signers) if signers else None
        if names == {}:
            raise BundleError(f"{signers} lists no signer; add a line that `tunewright bundle key` prints")
        return cls(names, key)


class SignedStore:
    """Signs what is put, and skips decisions that no trusted signer signed: they are misses, with one warning.

    The signature is part of the record, so every store keeps it, and whoever reads checks it: neither the store nor
    who may write to it has to be trusted. It covers key, config and evidence. Whoever can write to the store can still
    bring back an earlier signed decision, remove decisions, and write trials: all of that costs time only. Without
    `signers` nothing is skipped. All other capabilities are those of the store.
    """

    def __init__(self, store: Store, trust: Trust) -> None:
        if isinstance(store, SupportsConsensus):
            raise StoreError("`torch:` makes ranks agree on unsigned decisions; set another `store`, or no `signers`")
        self._store, self._trust = store, trust
        self._warned = False
        capabilities: tuple[type, ...] = (*CAPABILITY_METHODS, HasArtifacts, HasPendingWrites, HasRefusedWrites)
        for capability in capabilities:
            if isinstance(store, capability) and capability is not SupportsFill:
                for method in method_names(capability):
                    # Set on the object, so that `isinstance` shows which capabilities there are.
                    setattr(self, method, self._history if capability is KeepsRevisions else getattr(store, method))

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key, if it is signed."""
        return self._trusted(self._store.get(key))

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the signed decisions that exist for `keys`."""
        decisions = self._store.get_many(keys).items()
        return {key: decision for key, decision in decisions if self._trusted(decision) is not None}

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Signs and stores `decision` and returns the one now stored; one that is not signed is replaced."""
        signed = self._sign(decision)
        if self._trusted(signed) is None:
            raise WriteRefused(
                f"the decision for {decision.key.kernel} would count for nobody: set `signing_key` to the private key"
                " of one of the `signers`"
            )
        current = self._trusted(self._store.put(signed, replace=replace))
        if current is None and not replace:
            current = self._trusted(self._store.put(signed, replace=True))
        return signed if current is None else current

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` signed decisions of related keys."""
        return self._only_trusted(self._store.relatives(key, limit))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all signed decisions, or those of one kernel."""
        return self._only_trusted(self._store.decisions(kernel))

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key."""
        self._store.record(key, trials)

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key; nobody signs trials: only what a search judged itself is decided."""
        return self._store.trials(key)

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        return self._store.keys(kernel)

    def _history(self, key: Key) -> Sequence[Revision]:
        store: Any = self._store
        return [revision for revision in store.history(key) if self._trusted(revision.decision) is not None]

    def _only_trusted(self, decisions: Iterator[Decision]) -> Iterator[Decision]:
        return (decision for decision in decisions if self._trusted(decision) is not None)

    def _sign(self, decision: Decision) -> Decision:
        """Returns the decision with our signature; one that a trusted signer signed keeps that."""
        if self._trust.key is None or (decision.body is not None and self._find_fault(decision) is None):
            return decision
        from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

        record = serialization.dump_decision(Decision(decision.key, decision.config, decision.evidence))
        author = signing.sign_decision(record, "", self._trust.key)
        return serialization.load_decision(serialization.with_author(record, author))

    def _trusted(self, decision: Decision | None) -> Decision | None:
        """Returns a decision that a trusted signer signed; None for any other."""
        if decision is None or self._trust.signers is None:
            return decision
        if (fault := self._find_fault(decision)) is None:
            return decision
        report = log.debug if self._warned else log.warning  # one warning, then debug messages
        self._warned = True
        report("skipping a decision for %s: %s", decision.key.kernel or decision.key.digest[:12], fault)
        return None

    def _find_fault(self, decision: Decision) -> str | None:
        """Returns why a decision is not trusted; None if it is."""
        from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

        if decision.body is None or decision.tier is not Tier.EXACT:
            return "it is not signed; set `signing_key` where it is made"
        record, author = serialization.without_author(decision.body)
        try:
            public = signing.verify_decision_signer(author, record, "")
            signed = serialization.load_decision(record)
        except (BundleError, WireError) as error:
            return str(error)
        if signed.key != decision.key:
            return f"it was signed for another key, {signed.key.digest[:12]}"
        return None if public in (self._trust.signers or {}) else "its signer is not on the list of `signers`"
