"""HTTP store: everything a service keeps, in as few requests as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.stores import serialization
from tunewright.stores.http.client import HttpClient
from tunewright.stores.http.location import ServiceLocation
from tunewright.stores.records import RecordReader
from tunewright.stores.statistics import MissRecord, Revision

T = TypeVar("T")

ITEMS_PER_REQUEST = 5000
TRIALS_PER_REQUEST = 20_000
MAX_ATTEMPTS = 20


class _FoundBody(msgspec.Struct):
    found: dict[str, msgspec.Raw]


class _PutBody(msgspec.Struct):
    stands: bool
    standing: msgspec.Raw


class _RevisionBody(msgspec.Struct):
    number: int
    since: float
    decision: msgspec.Raw


class _HistoryBody(msgspec.Struct):
    generations: list[_RevisionBody]


class _EntriesBody(msgspec.Struct):
    found: dict[str, bytes]


class _ErrorBody(msgspec.Struct):
    error: str


class HttpStore:
    """Decisions, trials, leases, namespaces and misses of a team, through its service.

    Every request ends after five seconds (`?timeout=2`), all tries included: it is tried up to three times (`?tries=1`)
    if it is idempotent; trials and misses are sent again only if they never arrived. A batch of keys is one request.
    With `?sign=FILE` decisions are signed by that private key; `?ca=FILE` names the certificates to trust.
    """

    def __init__(self, location: ServiceLocation) -> None:
        self.location = location.base
        self._client, self._sign = HttpClient(location), location.sign
        self._reader = RecordReader(self.location)

    @classmethod
    def at(cls, location: str) -> HttpStore:
        """Opens the service at `https://TOKEN@HOST`; the token may be set as TUNEWRIGHT_TOKEN instead."""
        return cls(ServiceLocation.parse(location))

    def get(self, key: Key) -> Decision | None:
        """Returns the decision for exactly this key."""
        response = self._client.request("GET", f"/v1/decisions/{key.digest}")
        body = self._client.content(response, 404)
        if response.status_code == 200:
            return self._reader.read_or_skip("a decision", serialization.load_decision_lazily, body, key)
        self._decode(body, _ErrorBody)  # a 404 that is not the service's own means a wrong address, not a miss
        return None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """Returns the decisions that exist for `keys`, some thousands per request."""
        by_digest = {key.digest: key for key in keys}
        digests, decisions = list(by_digest), dict[Key, Decision]()
        for start in range(0, len(digests), ITEMS_PER_REQUEST):
            query = msgspec.json.encode({"digests": digests[start : start + ITEMS_PER_REQUEST]})
            body = self._post("/v1/decisions/lookup", query)
            for digest, record in self._decode(body, _FoundBody).found.items():
                if (key := by_digest.get(digest)) is None:
                    continue
                load = serialization.load_decision_lazily
                decision = self._reader.read_or_skip("a decision", load, bytes(record), key)
                if decision is not None:
                    decisions[key] = decision
        return decisions

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Stores `decision` and returns the one now stored; replacing another takes a second request."""
        over: str | None = None
        for _ in range(MAX_ATTEMPTS):
            stored, current = self._publish(decision, over)
            is_same = stored and current == serialization.dump_decision(decision)
            if is_same or not replace:
                return decision if is_same else self._load_decision(current)
            if stored and over is not None:
                return decision  # it says the same in other bytes
            over = sha256(current).hexdigest()
        raise StoreError(f"others keep replacing the decision for {decision.key.kernel}; try again in a moment")

    def _publish(self, decision: Decision, over: str | None) -> tuple[bool, bytes]:
        """Puts `decision` in place of the record with the digest `over`; returns whether, and the current record."""
        record = serialization.dump_decision(decision)
        body: dict[str, Any] = {"decision": msgspec.Raw(record)}
        if over is not None:
            body["over"] = over
        if self._sign:
            from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

            key = signing.load_private_key(Path(self._sign).expanduser())
            body["signature"] = signing.sign_decision(record, over or "", key)
        response = self._client.request("POST", "/v1/decisions", msgspec.json.encode(body))
        answer = self._decode(self._client.content(response, 409, is_write=True), _PutBody)
        return answer.stands, bytes(answer.standing)

    def relatives(self, key: Key, limit: int = 1000) -> Iterator[Decision]:
        """Yields up to `limit` decisions of related keys."""
        query = serialization.encode({"key": key, "most": limit})
        return islice(self._readable(self._client.lines("POST", "/v1/decisions/relatives", query)), limit)

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """Yields all decisions, or those of one kernel, as they arrive."""
        return self._readable(self._client.lines("GET", "/v1/decisions", query=_kernel_query(kernel)))

    def _readable(self, lines: Iterator[bytes]) -> Iterator[Decision]:
        """Yields the decisions in lines; malformed ones are skipped."""
        decisions = (self._reader.read_or_skip("a decision", serialization.load_decision, line) for line in lines)
        return (decision for decision in decisions if decision is not None)

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        body = self._client.content(self._client.request("GET", f"/v1/decisions/{key.digest}/history"))
        revisions = []
        for revision in self._decode(body, _HistoryBody).generations:
            decision = self._reader.read_or_skip("a decision", serialization.load_decision, bytes(revision.decision))
            if decision is not None and decision.key == key:
                revisions.append(Revision(revision.number, revision.since, decision))
        return revisions

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Appends trials to the journal of a key, in one request; more than 20,000 in several."""
        for start in range(0, len(trials), TRIALS_PER_REQUEST):
            batch = trials[start : start + TRIALS_PER_REQUEST]
            lines = [serialization.dump_key(key), *serialization.dump_trials(batch)]
            self._write("/v1/trials", b"\n".join(lines))

    def trials(self, key: Key) -> Iterator[Trial]:
        """Yields the journal of a key in the order recorded, as it arrives."""
        return map(self._checked(serialization.load_trial), self._client.lines("GET", f"/v1/trials/{key.digest}"))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Yields the keys that have a decision or a trial."""
        lines = self._client.lines("GET", "/v1/keys", query=_kernel_query(kernel))
        return map(self._checked(serialization.load_key), lines)

    def record_misses(self, misses: Sequence[MissRecord]) -> None:
        """Adds misses to the totals of their keys."""
        for start in range(0, len(misses), ITEMS_PER_REQUEST):
            body = serialization.encode({"wants": list(misses[start : start + ITEMS_PER_REQUEST])})
            self._write("/v1/untuned", body)

    def misses(self, kernel: str | None = None) -> Iterator[MissRecord]:
        """Yields the keys that are still undecided, most seconds first."""
        for line in self._client.lines("GET", "/v1/untuned", query=_kernel_query(kernel)):
            yield self._decode(line, MissRecord)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Acquires or renews the lease."""
        body = msgspec.json.encode({"name": name, "owner": owner, "seconds": seconds})
        return self._decode(self._post("/v1/leases/claim", body), dict[str, bool])["held"]

    def release(self, name: str, owner: str) -> None:
        """Releases the lease."""
        self._post("/v1/leases/release", msgspec.json.encode({"name": name, "owner": owner}))

    def fetch(self, namespace: str, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the entries under `names` that exist and have not expired."""
        entries: dict[str, bytes] = {}
        for start in range(0, len(names), ITEMS_PER_REQUEST):
            query = {"shelf": namespace, "names": list(names[start : start + ITEMS_PER_REQUEST])}
            body = self._post("/v1/shelves/fetch", msgspec.json.encode(query))
            entries |= self._decode(body, _EntriesBody).found
        return entries

    def keep(
        self, namespace: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True
    ) -> bytes:
        """Stores `body` and returns what is now stored."""
        entry = {"shelf": namespace, "name": name, "body": body, "seconds": seconds, "replace": replace}
        return self._decode(self._post("/v1/shelves/keep", msgspec.json.encode(entry)), dict[str, bytes])["standing"]

    def entries(self, namespace: str) -> Iterator[tuple[str, bytes]]:
        """Yields all entries of a namespace, oldest first, as they arrive."""
        for line in self._client.lines("GET", "/v1/shelves", query={"shelf": namespace}):
            yield self._decode(line, tuple[str, bytes])

    def clear(self, namespace: str, *, keep: int = 0) -> int:
        """Removes all but the newest `keep` entries and returns how many were removed."""
        body = msgspec.json.encode({"shelf": namespace, "most": keep})
        return self._decode(self._post("/v1/shelves/clear", body), dict[str, int])["gone"]

    def _post(self, path: str, body: bytes) -> bytes:
        return self._client.content(self._client.request("POST", path, body))

    def _write(self, path: str, body: bytes) -> bytes:
        """Sends what must not be stored twice."""
        response = self._client.request("POST", path, body, idempotent=False)
        return self._client.content(response, is_write=True)

    def _load_decision(self, record: bytes) -> Decision:
        decision: Decision = self._checked(serialization.load_decision)(record)
        return decision

    def _checked(self, load: Any) -> Any:
        """Returns `load` with StoreError for invalid data: a service sends only valid records."""

        def checked(data: bytes) -> Any:
            try:
                return load(data)
            except WireError as error:
                raise StoreError(f"{self.location} sent an invalid response: {error}") from error

        return checked

    def _decode(self, data: bytes, wanted: type[T]) -> T:
        value: T = self._checked(lambda body: serialization.decode(body, wanted))(data)
        return value


def _kernel_query(kernel: str | None) -> dict[str, str]:
    return {} if kernel is None else {"kernel": kernel}
