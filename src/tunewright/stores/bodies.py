"""Bodies: records as stores keep them, in wire format under a seal; believed or passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress, repeat
from typing import TypeVar
from zlib import crc32

from tunewright.errors import WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.remarks import Remarks
from tunewright.sharing import wire

log = Remarks(__name__)

T = TypeVar("T")

_LAST, _ends = wire.SCHEMA_LAST, bytes.endswith

_RESIDUE = 0x2144DF1C
"""The CRC of anything that has its own CRC behind it, lowest byte first."""

KIN_BYTES = 8
"""How much of the digest of a kin is indexed; what is found is compared with all of it."""


def seal(body: bytes, place: bytes) -> int:
    """A number that shows whether `body` is what was written, and to this place.

    A flipped bit may leave valid JSON that says something else.
    """
    return crc32(body, crc32(place))


def seals(bodies: Iterable[bytes], place: bytes) -> list[int]:
    """The seals of bodies in one place."""
    start = crc32(place)
    return [crc32(body, start) for body in bodies]


def sealed(body: bytes, place: bytes) -> bytes:
    """A body with its seal behind it, for where there is no other place for that."""
    return body + seal(body, place).to_bytes(4, "little")


def opened(value: bytes) -> tuple[bytes, int]:
    """A body and its seal; of anything else, two parts that do not fit each other."""
    return value[:-4], int.from_bytes(value[-4:], "little")


def _unsealed(body: bytes, sealed: int, place: bytes) -> bytes:
    # Damage can make text, a number or nothing of what was bytes.
    if body.__class__ is not bytes or place.__class__ is not bytes or seal(body, place) != sealed:
        raise WireError("its bytes are not those that were written there")
    return body


def read_decision(body: bytes, sealed: int, digest: bytes) -> Decision:
    """The decision in `body`; a WireError if it is damaged, of another schema, or was put for another key."""
    return wire.load_decision(_unsealed(body, sealed, digest))


def _kept(body: bytes, sealed: int, digest: bytes, key: Key) -> Decision:
    return wire.kept_decision(_unsealed(body, sealed, digest), key)


def read_trial(body: bytes, sealed: int, digest: bytes) -> Trial:
    """The trial in `body`; a WireError if it is damaged, of another schema, or of another journal."""
    return wire.load_trial(_unsealed(body, sealed, digest))


def read_entry(body: bytes, sealed: int, shelf: str, name: str) -> bytes:
    """`body` itself; a WireError if it is damaged, or lay elsewhere."""
    return _unsealed(body, sealed, entry_place(shelf, name))


def read_key(body: bytes, digest: bytes) -> Key:
    """The key in `body`; a WireError if it is damaged, or not the one with that digest."""
    if not isinstance(body, bytes | str):
        raise WireError("it is no text")
    key = wire.load_key(body)
    check_digest(key, digest)
    return key


def check_digest(key: Key, digest: bytes) -> None:
    """A WireError if `key` is not the one with that digest."""
    if digest.__class__ is not bytes or key.digest != digest.hex():
        raise WireError(f"its key is {key.digest[:12]}, not the one it stands for")


def by_digest(keys: Sequence[Key]) -> dict[bytes, Key]:
    """Keys by their digests, each once."""
    return dict(zip(map(bytes.fromhex, [key.digest for key in keys]), keys, strict=True))


def kin_of(key: Key) -> bytes:
    """What is indexed of a key's kin."""
    return bytes.fromhex(key.kin[: 2 * KIN_BYTES])


def entry_place(shelf: str, name: str) -> bytes:
    """The place of an entry."""
    return f"{shelf}\0{name}".encode()


class Bodies:
    """Reads the bodies of one store: what cannot be believed is passed over, and said so once."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._said = False

    def decision(self, digest: bytes, body: bytes, sealed: int, key: Key | None = None) -> Decision | None:
        """The decision in `body`; if its key is given, it is read when it is looked at."""
        if key is None:
            return self.believed("a decision", read_decision, body, sealed, digest)
        # Written out, since a look-up in a file is hardly slower than this.
        if body.__class__ is bytes and crc32(body, crc32(digest)) == sealed and body.endswith(_LAST):
            return Decision.kept(key, body, wire.content)
        return self.believed("a decision", _kept, body, sealed, digest, key)

    def decisions(self, rows: Sequence[tuple[bytes, bytes, int]], keys: Mapping[bytes, Key]) -> dict[Key, Decision]:
        """Those that can be believed, of rows with the digest of one of `keys`, a body and its seal."""
        if not rows:
            return {}
        digests, bodies, sealed = zip(*rows, strict=True)
        # All at once, since a batch is as fast as this; what is whole and ours is not looked into.
        with suppress(TypeError):  # damage can make text, a number or nothing of what was bytes
            if tuple(map(crc32, bodies, map(crc32, digests))) == sealed and all(map(_ends, bodies, repeat(_LAST))):
                return Decision.kept_all(map(keys.__getitem__, digests), bodies, wire.content)
        found = (self.decision(*row, keys[row[0]]) for row in rows)
        return {decision.key: decision for decision in found if decision is not None}

    def opened(
        self, digests: Sequence[bytes], values: Sequence[bytes | None], keys: Sequence[Key]
    ) -> dict[Key, Decision]:
        """Those that can be believed, of bodies with their seals behind them, or nothing, in the order of `keys`."""
        there = [value for value in values if value is not None]
        if len(there) < len(keys):
            present = [value is not None for value in values]
            digests, keys = list(compress(digests, present)), list(compress(keys, present))
        if set(map(crc32, there, map(crc32, digests))) == {_RESIDUE}:
            bodies = [value[:-4] for value in there]
            if all(map(_ends, bodies, repeat(_LAST))):
                return Decision.kept_all(keys, bodies, wire.content)
        rows = zip(digests, there, keys, strict=True)
        found = (self.decision(digest, *opened(value), key) for digest, value, key in rows)
        return {decision.key: decision for decision in found if decision is not None}

    def believed(self, what: str, read: Callable[..., T], *given: object) -> T | None:
        """What `read` makes of what is given; None where it cannot be believed."""
        try:
            return read(*given)
        except WireError as error:
            say = log.debug if self._said else log.warning  # aloud once, then for those who listen closely
            self._said = True
            say("%s in %s is passed over: %s; `store verify` lists all such", what, self._store, error)
            return None
