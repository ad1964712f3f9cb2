"""The store itself: what a service keeps, asked for in as few requests as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.sharing import wire
from tunewright.sharing.records import Generation, Want
from tunewright.stores.bodies import Bodies
from tunewright.stores.http.link import Link
from tunewright.stores.http.target import Target

T = TypeVar("T")

ASKED_AT_ONCE = 5000
RECORDED_AT_ONCE = 20_000
CLASHES = 20


class _Found(msgspec.Struct):
    found: dict[str, msgspec.Raw]


class _Standing(msgspec.Struct):
    stands: bool
    standing: msgspec.Raw


class _Stood(msgspec.Struct):
    number: int
    since: float
    decision: msgspec.Raw


class _History(msgspec.Struct):
    generations: list[_Stood]


class _Entries(msgspec.Struct):
    found: dict[str, bytes]


class _Nothing(msgspec.Struct):
    error: str


class HttpStore:
    """Decisions, trials, leases, shelves and wants of a team, through its service.

    Every request ends after five seconds (`?timeout=2`), and is made up to three times (`?tries=1`) where twice does no
    harm; trials and wants are sent again only if they never got there. A batch of keys is one request. With
    `?sign=FILE` what is put is signed by that private key; `?ca=FILE` names the certificates to trust.
    """

    def __init__(self, target: Target) -> None:
        self.location = target.base
        self._link, self._sign = Link(target), target.sign
        self._bodies = Bodies(self.location)

    @classmethod
    def at(cls, location: str) -> HttpStore:
        """The service at `https://TOKEN@HOST`; the token may be set as TUNEWRIGHT_TOKEN instead."""
        return cls(Target.of(location))

    def get(self, key: Key) -> Decision | None:
        """The decision for exactly this key."""
        answer = self._link.ask("GET", f"/v1/decisions/{key.digest}")
        body = self._link.said(answer, 404)
        if answer.status_code == 200:
            return self._bodies.believed("a decision", wire.kept_decision, body, key)
        self._read(body, _Nothing)  # another 404 than ours is no miss, but the wrong address
        return None

    def get_many(self, keys: Sequence[Key]) -> dict[Key, Decision]:
        """The decisions there are for `keys`, some thousands to a request."""
        wanted = {key.digest: key for key in keys}
        digests, found = list(wanted), dict[Key, Decision]()
        for start in range(0, len(digests), ASKED_AT_ONCE):
            asked = msgspec.json.encode({"digests": digests[start : start + ASKED_AT_ONCE]})
            body = self._link.said(self._link.ask("POST", "/v1/decisions/lookup", asked))
            for digest, record in self._read(body, _Found).found.items():
                if (key := wanted.get(digest)) is None:
                    continue
                decision = self._bodies.believed("a decision", wire.kept_decision, bytes(record), key)
                if decision is not None:
                    found[key] = decision
        return found

    def put(self, decision: Decision, *, replace: bool = True) -> Decision:
        """Keep `decision`, and return the one that stands; to replace another takes a second request."""
        over: str | None = None
        for _ in range(CLASHES):
            stands, standing = self._publish(decision, over)
            if stands or not replace:
                return decision if stands else self._decision(standing)
            over = sha256(standing).hexdigest()
        raise StoreError(f"others keep replacing the decision for {decision.key.kernel}; try again in a moment")

    def _publish(self, decision: Decision, over: str | None) -> tuple[bool, bytes]:
        record = wire.dump_decision(decision)
        asked: dict[str, Any] = {"decision": msgspec.Raw(record)}
        if over is not None:
            asked["over"] = over
        if self._sign:
            from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

            asked["signature"] = signing.vouch(record, over or "", signing.private_key(Path(self._sign).expanduser()))
        answer = self._link.ask("POST", "/v1/decisions", msgspec.json.encode(asked))
        told = self._read(self._link.said(answer, 409), _Standing)
        return told.stands, bytes(told.standing)

    def relatives(self, key: Key, most: int = 1000) -> Iterator[Decision]:
        """Decisions of the same kin."""
        asked = wire.encode({"key": key, "most": most})
        return map(self._decision, self._link.lines("POST", "/v1/decisions/relatives", asked))

    def decisions(self, kernel: str | None = None) -> Iterator[Decision]:
        """All decisions, or those of one kernel, read as they come."""
        return map(self._decision, self._link.lines("GET", "/v1/decisions", query=_of(kernel)))

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        body = self._link.said(self._link.ask("GET", f"/v1/decisions/{key.digest}/history"))
        stood = self._read(body, _History).generations
        return [Generation(one.number, one.since, self._decision(bytes(one.decision))) for one in stood]

    def record(self, key: Key, trials: Sequence[Trial]) -> None:
        """Append trials to the journal of a key, as one request; more than 20,000 as several."""
        for start in range(0, len(trials), RECORDED_AT_ONCE):
            lines = [wire.dump_key(key), *wire.dump_trials(trials[start : start + RECORDED_AT_ONCE])]
            self._link.said(self._link.ask("POST", "/v1/trials", b"\n".join(lines), again=False))

    def trials(self, key: Key) -> Iterator[Trial]:
        """The journal of a key, in the order recorded, read as it comes."""
        return map(self._checked(wire.load_trial), self._link.lines("GET", f"/v1/trials/{key.digest}"))

    def keys(self, kernel: str | None = None) -> Iterator[Key]:
        """Keys that have a decision or a trial."""
        return map(self._checked(wire.load_key), self._link.lines("GET", "/v1/keys", query=_of(kernel)))

    def want(self, wants: Sequence[Want]) -> None:
        """Add to what is known of each key."""
        for start in range(0, len(wants), ASKED_AT_ONCE):
            asked = wire.encode({"wants": list(wants[start : start + ASKED_AT_ONCE])})
            self._link.said(self._link.ask("POST", "/v1/untuned", asked, again=False))

    def wanted(self, kernel: str | None = None) -> Iterator[Want]:
        """What is still undecided, most seconds first."""
        for line in self._link.lines("GET", "/v1/untuned", query=_of(kernel)):
            yield self._read(line, Want)

    def claim(self, name: str, owner: str, seconds: float) -> bool:
        """Take the lease, or renew it."""
        asked = msgspec.json.encode({"name": name, "owner": owner, "seconds": seconds})
        return self._read(self._link.said(self._link.ask("POST", "/v1/leases/claim", asked)), dict[str, bool])["held"]

    def release(self, name: str, owner: str) -> None:
        """Give the lease back."""
        self._link.said(
            self._link.ask("POST", "/v1/leases/release", msgspec.json.encode({"name": name, "owner": owner}))
        )

    def fetch(self, shelf: str, names: Sequence[str]) -> dict[str, bytes]:
        """What there is under `names` and has not expired."""
        found: dict[str, bytes] = {}
        for start in range(0, len(names), ASKED_AT_ONCE):
            asked = msgspec.json.encode({"shelf": shelf, "names": list(names[start : start + ASKED_AT_ONCE])})
            found |= self._read(self._link.said(self._link.ask("POST", "/v1/shelves/fetch", asked)), _Entries).found
        return found

    def keep(self, shelf: str, name: str, body: bytes, *, seconds: float | None = None, replace: bool = True) -> bytes:
        """Keep `body`, and return what stands."""
        asked = {"shelf": shelf, "name": name, "body": body, "seconds": seconds, "replace": replace}
        said = self._link.said(self._link.ask("POST", "/v1/shelves/keep", msgspec.json.encode(asked)))
        return self._read(said, dict[str, bytes])["standing"]

    def entries(self, shelf: str) -> Iterator[tuple[str, bytes]]:
        """Everything on a shelf, oldest first, read as it comes."""
        for line in self._link.lines("GET", "/v1/shelves", query={"shelf": shelf}):
            yield self._read(line, tuple[str, bytes])

    def clear(self, shelf: str, *, most: int = 0) -> int:
        """Drop the oldest entries until at most `most` are left."""
        asked = msgspec.json.encode({"shelf": shelf, "most": most})
        return self._read(self._link.said(self._link.ask("POST", "/v1/shelves/clear", asked)), dict[str, int])["gone"]

    def _decision(self, record: bytes) -> Decision:
        found: Decision = self._checked(wire.load_decision)(record)
        return found

    def _checked(self, read: Any) -> Any:
        """The same, but what cannot be read is a StoreError: a service sends only what it can read itself."""

        def checked(data: bytes) -> Any:
            try:
                return read(data)
            except WireError as error:
                raise StoreError(f"{self.location} said what cannot be understood: {error}") from error

        return checked

    def _read(self, data: bytes, wanted: type[T]) -> T:
        found: T = self._checked(lambda said: wire.decode(said, wanted))(data)
        return found


def _of(kernel: str | None) -> dict[str, str]:
    return {} if kernel is None else {"kernel": kernel}
