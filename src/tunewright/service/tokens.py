"""Tokens: who may do what, how often and how much; kept as digests on a shelf of the store.

A token is 256 random bits, so that nobody can guess it or find it by trying, whatever the hash. A slow hash (bcrypt,
argon2) protects secrets that people choose; here it would only make every request slow, and a service easy to drown.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest

import msgspec

from tunewright.errors import SettingsError, WireError
from tunewright.sharing import wire
from tunewright.sharing.offers import Shelves

SHELF = "service:tokens"
"""Where tokens lie; nothing that a service keeps for itself (`service:`) can be reached through it."""

RATE, LARGEST = 500.0, 16 << 20
"""Requests a second, and bytes of a body, that a token allows unless it is told otherwise."""


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"  # look up, list, fetch bundles
    RECORD = "record"  # trials, wants, leases, shelves
    PUBLISH = "publish"  # decisions
    SIGN = "sign"  # bundles
    ADMIN = "admin"  # all of these, and the audit log


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token without its secret: what it allows, and how the secret is recognised.

    After a rotation the `former` secret is good until `former_until`, so that hosts can change over one by one.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    digest: str
    made: float
    until: float | None = None
    rate: float = RATE
    largest: int = LARGEST
    former: str = ""
    former_until: float = 0.0

    def may(self, scope: Scope) -> bool:
        """Whether it allows that."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def fits(self, secret: str, now: float) -> bool:
        """Whether this is its secret, at this time."""
        given = _digest(secret)
        if self.until is not None and now >= self.until:
            return False
        return compare_digest(given, self.digest) or (now < self.former_until and compare_digest(given, self.former))


OPEN = Token("open", "everybody", (Scope.ADMIN,), "", 0.0, rate=0.0, largest=1 << 40)
"""Who comes without a token to a service that asks for none."""


def parted(text: str) -> tuple[str, str]:
    """The id and the secret of a token; two empty texts of anything else."""
    kind, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    return (name, secret) if kind == "tw" and name and secret else ("", "")


class Tokens:
    """The tokens of a store."""

    def __init__(self, shelves: Shelves, clock: Callable[[], float] = time.time) -> None:
        self._shelves, self._clock = shelves, clock

    def all(self) -> list[Token]:
        """Every token that was not revoked; what cannot be read opens nothing."""
        found = []
        for _, body in self._shelves.entries(SHELF):
            try:
                found.append(wire.decode(body, Token))
            except WireError:
                continue
        return found

    def add(self, name: str, scopes: Iterable[Scope], **limits: float | None) -> tuple[Token, str]:
        """A new token, and the text to be handed over, which is kept nowhere."""
        given = tuple(dict.fromkeys(scopes))
        if not given:
            raise SettingsError(f"a token without scopes opens nothing; scopes: {', '.join(Scope)}")
        number, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        known = {field: value for field, value in limits.items() if value is not None}
        made = Token(number, name, given, _digest(secret), self._clock())
        return self._kept(msgspec.structs.replace(made, **known)), f"tw_{number}_{secret}"

    def rotate(self, number: str, grace: float) -> tuple[Token, str]:
        """A new secret for a token; the one before is good for `grace` seconds more."""
        token, secret = self.find(number), secrets.token_urlsafe(32)
        changed = {"digest": _digest(secret), "former": token.digest, "former_until": self._clock() + grace}
        return self._kept(msgspec.structs.replace(token, **changed)), f"tw_{token.id}_{secret}"

    def revoke(self, number: str) -> Token:
        """A token that from now on opens nothing; services know within seconds."""
        token = self.find(number)
        # A shelf is cleared as a whole; one entry leaves it by being replaced with what expires at once.
        self._shelves.keep(SHELF, token.id, b"", seconds=0.0)
        return token

    def find(self, number: str) -> Token:
        """The token with that id, or the only one with that name."""
        found = [token for token in self.all() if number in (token.id, token.name)]
        if len(found) != 1:
            raise SettingsError(f"{len(found)} tokens are called {number!r}; `tunewright service token list` has ids")
        return found[0]

    def _kept(self, token: Token) -> Token:
        self._shelves.keep(SHELF, token.id, wire.encode(token))
        return token


class Bucket:
    """How much of its rate a token has left: it may save up one second's worth."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._left, self._at = rate, max(1.0, rate), now

    def take(self, now: float) -> float:
        """0 if a request may go on, else the seconds after which one may."""
        self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate
        self._left -= 1.0
        return 0.0


class Ring:
    """The tokens as a running service knows them, and how often each was used. For one thread."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._buckets: dict[str, Bucket] = {}

    def know(self, tokens: Sequence[Token]) -> None:
        """Take over the tokens there are now."""
        self._tokens = {token.id: token for token in tokens}
        self._buckets = {number: bucket for number, bucket in self._buckets.items() if number in self._tokens}

    def find(self, text: str) -> Token | None:
        """The token that a text is, if it is one."""
        number, secret = parted(text)
        token = self._tokens.get(number)
        return token if token is not None and token.fits(secret, time.time()) else None

    def wait(self, token: Token) -> float:
        """0 if the token may be used now, else the seconds after which it may."""
        if not token.rate:
            return 0.0
        now = time.monotonic()
        if (bucket := self._buckets.get(token.id)) is None:
            bucket = self._buckets[token.id] = Bucket(token.rate, now)
        return bucket.take(now)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
