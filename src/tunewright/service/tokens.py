"""Tokens: their scopes and limits, stored as digests in a namespace of the store.

A token has 256 random bits, so it cannot be guessed, whatever the hash. A slow hash (bcrypt, argon2) protects secrets
that people choose; here it would only slow down every request and make the service easy to overload.
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
from tunewright.stores import namespaces, serialization
from tunewright.stores.capabilities import KeepsNamespaces

TOKEN_NAMESPACE = namespaces.TOKENS.name
"""The namespace of tokens; clients cannot access namespaces that begin with `service:`."""

REQUESTS_PER_SECOND, MAX_BODY_BYTES = 500.0, 16 << 20
"""The default limits of a token: requests per second, and bytes of a body."""


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"  # look up, list, fetch bundles
    RECORD = "record"  # trials, wants, leases, store
    PUBLISH = "publish"  # decisions
    SIGN = "sign"  # bundles
    ADMIN = "admin"  # all of these, and the audit log


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token without its secret: its scopes and limits, and the digest of the secret.

    After a rotation the `former` secret is valid until `former_until`, so that hosts can switch one by one.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    digest: str
    made: float
    until: float | None = None
    rate: float = REQUESTS_PER_SECOND
    largest: int = MAX_BODY_BYTES
    former: str = ""
    former_until: float = 0.0

    def allows(self, scope: Scope) -> bool:
        """Whether the token has this scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def matches(self, secret: str, now: float) -> bool:
        """Whether `secret` is valid at this time."""
        digest = _digest(secret)
        if self.until is not None and now >= self.until:
            return False
        return compare_digest(digest, self.digest) or (now < self.former_until and compare_digest(digest, self.former))


OPEN_TOKEN = Token("open", "everybody", (Scope.ADMIN,), "", 0.0, rate=0.0, largest=1 << 40)
"""The token of all requests to a service that requires none."""


def split_token(text: str) -> tuple[str, str]:
    """Returns the id and the secret of a token; two empty texts if it is not a token."""
    prefix, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    return (token_id, secret) if prefix == "tw" and token_id and secret else ("", "")


class TokenStore:
    """The tokens of a store."""

    def __init__(self, store: KeepsNamespaces, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock

    def all(self) -> list[Token]:
        """Returns every token that was not revoked; damaged records are skipped."""
        tokens = []
        for _, body in self._store.entries(TOKEN_NAMESPACE):
            try:
                tokens.append(serialization.decode(body, Token))
            except WireError:
                continue
        return tokens

    def add(self, name: str, scopes: Iterable[Scope], **limits: float | None) -> tuple[Token, str]:
        """Creates a token; returns it with its text, which is not stored."""
        unique = tuple(dict.fromkeys(scopes))
        if not unique:
            raise SettingsError(f"a token needs at least one scope: {', '.join(Scope)}")
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        changes = {field: value for field, value in limits.items() if value is not None}
        token = Token(token_id, name, unique, _digest(secret), self._clock())
        return self._put(msgspec.structs.replace(token, **changes)), f"tw_{token_id}_{secret}"

    def rotate(self, name: str, grace: float) -> tuple[Token, str]:
        """Gives a token a new secret; the former one is valid for `grace` more seconds."""
        token, secret = self.find(name), secrets.token_urlsafe(32)
        changes = {"digest": _digest(secret), "former": token.digest, "former_until": self._clock() + grace}
        return self._put(msgspec.structs.replace(token, **changes)), f"tw_{token.id}_{secret}"

    def revoke(self, name: str) -> Token:
        """Revokes a token; running services refuse it within seconds."""
        token = self.find(name)
        # Single entries cannot be removed from a namespace, so this one is replaced and expires at once.
        self._store.keep(TOKEN_NAMESPACE, token.id, b"", seconds=0.0)
        return token

    def find(self, name: str) -> Token:
        """Returns the token with this id, or the only one with this name."""
        tokens = [token for token in self.all() if name in (token.id, token.name)]
        if len(tokens) != 1:
            raise SettingsError(f"{len(tokens)} tokens are called {name!r}; `tunewright service token list` shows ids")
        return tokens[0]

    def _put(self, token: Token) -> Token:
        self._store.keep(TOKEN_NAMESPACE, token.id, serialization.encode(token))
        return token


class RateBucket:
    """The rate limiter of a token; it can save up requests for one second."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._left, self._at = rate, max(1.0, rate), now

    def take(self, now: float) -> float:
        """Returns 0 if a request is allowed, else the seconds until one is."""
        self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate
        self._left -= 1.0
        return 0.0


class TokenIndex:
    """The tokens in the memory of a running service, with their rate limiters. Not thread-safe."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._buckets: dict[str, RateBucket] = {}

    def replace(self, tokens: Sequence[Token]) -> None:
        """Replaces all tokens."""
        self._tokens = {token.id: token for token in tokens}
        self._buckets = {token_id: bucket for token_id, bucket in self._buckets.items() if token_id in self._tokens}

    def find(self, text: str) -> Token | None:
        """Returns the token with this text, if its secret is valid."""
        token_id, secret = split_token(text)
        token = self._tokens.get(token_id)
        return token if token is not None and token.matches(secret, time.time()) else None

    def seconds_to_wait(self, token: Token) -> float:
        """Returns 0 if the token may be used now, else the seconds until it may."""
        if not token.rate:
            return 0.0
        now = time.monotonic()
        if (bucket := self._buckets.get(token.id)) is None:
            bucket = self._buckets[token.id] = RateBucket(token.rate, now)
        return bucket.take(now)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
