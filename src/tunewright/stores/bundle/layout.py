"""Layout: the bytes of a bundle. Equal contents make equal bytes, and a look-up reads only what it needs.

    magic, version, where each section is | manifest | digests | places | kin | bodies | names | spots | blobs | trailer

All numbers are little-endian. `digests` are the keys' digests in ascending order, `places` where the body of each lies
and its seal, `kin` the kin of each with its number, in order. `names`, `spots` and `blobs` are the same for artefacts,
by the SHA-256 of their contents. The trailer is a public key and a signature over the SHA-256 of all before it, or
zeros. Nothing is compressed, so nothing can swell; nothing has a path, so nothing can be put elsewhere.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from tunewright.errors import BundleError

MAGIC, VERSION = b"TWBUNDLE", 1
SECTIONS = ("manifest", "digests", "places", "kin", "bodies", "names", "spots", "blobs")
_START = struct.Struct("<8sQ")
_SECTION = struct.Struct("<QQ")
_PLACE = struct.Struct("<QLL")
_KIN = struct.Struct("<8sL")
HEADER = _START.size + len(SECTIONS) * _SECTION.size
DIGEST, TRAILER = 32, 96
MOST_MANIFEST, MOST_BYTES = 1 << 20, 1 << 32


class Body(NamedTuple):
    """A record to be packed: the digest of its key, its kin, its bytes and their seal."""

    digest: bytes
    kin: bytes
    body: bytes
    sealed: int


def packed(manifest: bytes, records: Sequence[Body], blobs: Mapping[bytes, bytes]) -> bytes:
    """A bundle without its trailer."""
    ordered = sorted(records)
    names = sorted(blobs)
    places, bodies = _laid([(record.body, record.sealed) for record in ordered])
    spots, contents = _laid([(blobs[name], 0) for name in names])
    kin = sorted((record.kin, number) for number, record in enumerate(ordered))
    parts = {
        "manifest": manifest,
        "digests": b"".join(record.digest for record in ordered),
        "places": places,
        "kin": b"".join(_KIN.pack(*pair) for pair in kin),
        "bodies": bodies,
        "names": b"".join(names),
        "spots": spots,
        "blobs": contents,
    }
    if len(manifest) > MOST_MANIFEST or sum(map(len, parts.values())) > MOST_BYTES - HEADER - TRAILER:
        raise BundleError("that is too much for one bundle; build several, of some kernels each")
    at, table = HEADER, b""
    for name in SECTIONS:
        table += _SECTION.pack(at, len(parts[name]))
        at += len(parts[name])
    return b"".join([_START.pack(MAGIC, VERSION), table, *(parts[name] for name in SECTIONS)])


def _laid(items: Sequence[tuple[bytes, int]]) -> tuple[bytes, bytes]:
    """Where each item lies when they are put one after another, and all of them."""
    at, places = 0, []
    for item, sealed in items:
        places.append(_PLACE.pack(at, len(item), sealed))
        at += len(item)
    return b"".join(places), b"".join(item for item, _ in items)


class Parcel:
    """A bundle's bytes, looked at in place. It is made of verified bytes only, and still believes no number in them."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        if len(content) < HEADER:
            raise BundleError("it is too short to be a bundle")
        magic, version = _START.unpack_from(content)
        if magic != MAGIC:
            raise BundleError("it is not a bundle")
        if version != VERSION:
            raise BundleError(f"it is a bundle of layout {version}, this version reads {VERSION}")
        at = HEADER
        self._parts: dict[str, memoryview] = {}
        for number, name in enumerate(SECTIONS):
            start, length = _SECTION.unpack_from(content, _START.size + number * _SECTION.size)
            if start != at or length > len(content) - at:
                raise BundleError(f"its section {name} is not where it must be")
            self._parts[name] = content[start : start + length]
            at += length
        if at != len(content):
            raise BundleError("there is more in it than its sections")
        self.count = self._counted("digests", "places", "decisions")
        self.artefacts = self._counted("names", "spots", "artefacts")
        if len(self._parts["kin"]) != self.count * _KIN.size or len(self._parts["manifest"]) > MOST_MANIFEST:
            raise BundleError("its sections do not fit each other")

    def _counted(self, names: str, places: str, what: str) -> int:
        count, rest = divmod(len(self._parts[names]), DIGEST)
        if rest or len(self._parts[places]) != count * _PLACE.size:
            raise BundleError(f"its lists of {what} do not fit each other")
        return count

    @property
    def manifest(self) -> bytes:
        """What it says of itself."""
        return bytes(self._parts["manifest"])

    def digest(self, number: int) -> bytes:
        """The digest of the key of a record."""
        return bytes(self._parts["digests"][number * DIGEST : (number + 1) * DIGEST])

    def body(self, number: int) -> tuple[bytes, int]:
        """A record and its seal."""
        return self._lying("bodies", "places", number)

    def found(self, digest: bytes) -> int | None:
        """The number of the record for a key; its cost is the logarithm of how many there are."""
        return self._search("digests", self.count, digest)

    def artefact(self, name: bytes) -> bytes | None:
        """The artefact with that digest, if it is here and is what it is called."""
        number = self._search("names", self.artefacts, name)
        if number is None:
            return None
        content, _ = self._lying("blobs", "spots", number)
        if sha256(content).digest() != name:
            raise BundleError(f"its artefact {name.hex()[:12]} is not what it is called")
        return content

    def artefact_names(self) -> Iterator[bytes]:
        """The digests of all artefacts."""
        names = self._parts["names"]
        return (bytes(names[i * DIGEST : (i + 1) * DIGEST]) for i in range(self.artefacts))

    def of_kin(self, kin: bytes) -> Iterator[int]:
        """The numbers of records of one kin."""
        rows = _Rows(self._parts["kin"], _KIN.size, self.count)
        at = bisect_left(rows, kin, key=lambda row: row[:8])
        while at < self.count and rows[at][:8] == kin:
            (number,) = struct.unpack("<L", rows[at][8:])
            if number >= self.count:
                raise BundleError("its kin name records that are not there")
            yield number
            at += 1

    def _search(self, section: str, count: int, wanted: bytes) -> int | None:
        rows = _Rows(self._parts[section], DIGEST, count)
        at = bisect_left(rows, wanted)
        return at if at < count and rows[at] == wanted else None

    def _lying(self, section: str, places: str, number: int) -> tuple[bytes, int]:
        start, length, sealed = _PLACE.unpack_from(self._parts[places], number * _PLACE.size)
        whole, after = self._parts[section], (number + 1) * _PLACE.size
        # Each ends where the next begins: none is read twice, so that all of them are no more than the file.
        last = after == len(self._parts[places])
        end = len(whole) if last else _PLACE.unpack_from(self._parts[places], after)[0]
        if not start + length == end <= len(whole):
            raise BundleError("a record does not lie where it must")
        return bytes(whole[start : start + length]), sealed


class _Rows(Sequence[bytes]):
    """Rows of equal width, cut from a section as they are needed."""

    def __init__(self, section: memoryview, width: int, count: int) -> None:
        self._section, self._width, self._count = section, width, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        return bytes(self._section[number * self._width : (number + 1) * self._width])
