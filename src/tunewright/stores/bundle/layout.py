"""Layout of a bundle in bytes. Equal contents make equal bytes, and a look-up reads only what it needs.

    magic, version, section table | manifest | digests | places | kin | bodies | names | spots | blobs | trailer

All numbers are little-endian. `digests` are the digests of the keys in ascending order, `places` the offset, length and
checksum of the body of each, `kin` the prefixes of related keys with the number of the record, sorted. `names`, `spots`
and `blobs` are the same for attachments, by the SHA-256 of their contents. The trailer is a public key and a signature
of the digest of everything before it (`digests.py`), or zeros. With several signatures there are several trailers, and
a last one that says how many. Nothing is compressed, so nothing can expand; nothing has a path, so nothing can be
written elsewhere.

Layout 2 has the same sections as layout 1, and a digest that is faster where `blobs` is long.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from tunewright.errors import BundleError

MAGIC, VERSION = b"TWBUNDLE", 2
FAST_DIGEST = 2
"""The first layout of which attachments are hashed by BLAKE3."""
SECTIONS = ("manifest", "digests", "places", "kin", "bodies", "names", "spots", "blobs")
_START = struct.Struct("<8sQ")
_SECTION = struct.Struct("<QQ")
_PLACE = struct.Struct("<QLL")
_KIN = struct.Struct("<8sL")
HEADER = _START.size + len(SECTIONS) * _SECTION.size
DIGEST, TRAILER = 32, 96
MAX_SIGNATURES = 16
MAX_MANIFEST_BYTES, MAX_BYTES = 1 << 20, 1 << 32
LARGE = 1 << 24
"""With so many bytes of attachments a bundle has layout 2; a smaller one needs no package to compute its digest."""


class BundleRecord(NamedTuple):
    """A record of a bundle: the digest of its key, the prefix of related keys, its bytes and their checksum."""

    digest: bytes
    related: bytes
    body: bytes
    crc: int


def pack(manifest: bytes, records: Sequence[BundleRecord], blobs: Mapping[bytes, bytes]) -> bytes:
    """Returns a bundle without its trailer."""
    ordered = sorted(records)
    names = sorted(blobs)
    places, bodies = _concatenate([(record.body, record.crc) for record in ordered])
    spots, contents = _concatenate([(blobs[name], 0) for name in names])
    related = sorted((record.related, number) for number, record in enumerate(ordered))
    sections = {
        "manifest": manifest,
        "digests": b"".join(record.digest for record in ordered),
        "places": places,
        "kin": b"".join(_KIN.pack(*pair) for pair in related),
        "bodies": bodies,
        "names": b"".join(names),
        "spots": spots,
        "blobs": contents,
    }
    total = sum(map(len, sections.values()))
    if len(manifest) > MAX_MANIFEST_BYTES or total > MAX_BYTES - HEADER - TRAILER:
        raise BundleError("that is too much for one bundle; build several, of some kernels each")
    offset, table = HEADER, b""
    for name in SECTIONS:
        table += _SECTION.pack(offset, len(sections[name]))
        offset += len(sections[name])
    version = FAST_DIGEST if len(contents) >= LARGE else 1
    return b"".join([_START.pack(MAGIC, version), table, *(sections[name] for name in SECTIONS)])


def _concatenate(items: Sequence[tuple[bytes, int]]) -> tuple[bytes, bytes]:
    """Returns the packed offset, length and checksum of each item, and all items one after another."""
    offset, places = 0, []
    for item, crc in items:
        places.append(_PLACE.pack(offset, len(item), crc))
        offset += len(item)
    return b"".join(places), b"".join(item for item, _ in items)


def check_header(content: memoryview) -> None:
    """Raises BundleError unless `content` begins as a bundle does, in a layout that is known."""
    if len(content) < HEADER:
        raise BundleError("it is too short to be a bundle")
    magic, version = _START.unpack_from(content)
    if magic != MAGIC:
        raise BundleError("it is not a bundle")
    if not 1 <= version <= VERSION:
        message = f"it is a bundle of layout {version}, this version reads up to {VERSION}; update Tunewright"
        raise BundleError(message)


def find_blobs(start: memoryview) -> int | None:
    """Returns where attachments begin that BLAKE3 hashes, in a bundle that begins with `start`; None: nowhere."""
    if len(start) < HEADER or _START.unpack_from(start) != (MAGIC, FAST_DIGEST):
        return None
    offset, _ = _SECTION.unpack_from(start, HEADER - _SECTION.size)
    return max(int(offset), HEADER)


def find_largest_blob(part: Callable[[int, int], bytes]) -> int:
    """Returns where the largest attachment begins; 0 if that is not seen. `part` reads from an offset so many bytes.

    Nothing that is read here was verified.
    """
    start = part(0, HEADER)
    if len(start) < HEADER:
        return 0
    table = dict(zip(SECTIONS, _SECTION.iter_unpack(start[_START.size :]), strict=True))
    offset, length = table["spots"]
    spots = part(offset, length) if length <= MAX_MANIFEST_BYTES else b""
    places = list(_PLACE.iter_unpack(spots[: len(spots) // _PLACE.size * _PLACE.size]))
    return int(table["blobs"][0] + max(places, key=lambda place: place[1])[0]) if places else 0


class BundleReader:
    """Reads the bytes of a verified bundle in place; still checks every number in them."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        check_header(content)
        offset = HEADER
        self._sections: dict[str, memoryview] = {}
        for number, name in enumerate(SECTIONS):
            start, length = _SECTION.unpack_from(content, _START.size + number * _SECTION.size)
            if start != offset or length > len(content) - offset:
                raise BundleError(f"its section {name} is not where it must be")
            self._sections[name] = content[start : start + length]
            offset += length
        if offset != len(content):
            raise BundleError("it has more bytes than its sections")
        self.count = self._count("digests", "places", "decisions")
        self.blob_count = self._count("names", "spots", "attachments")
        if len(self._sections["kin"]) != self.count * _KIN.size:
            raise BundleError("its sections do not match")
        if len(self._sections["manifest"]) > MAX_MANIFEST_BYTES:
            raise BundleError("its manifest is too long")

    def _count(self, names: str, places: str, what: str) -> int:
        count, rest = divmod(len(self._sections[names]), DIGEST)
        if rest or len(self._sections[places]) != count * _PLACE.size:
            raise BundleError(f"its lists of {what} do not match")
        return count

    @property
    def manifest(self) -> bytes:
        """The encoded manifest."""
        return bytes(self._sections["manifest"])

    def digest(self, number: int) -> bytes:
        """Returns the digest of the key of a record."""
        return bytes(self._sections["digests"][number * DIGEST : (number + 1) * DIGEST])

    def body(self, number: int) -> tuple[bytes, int]:
        """Returns a record and its checksum."""
        content, crc = self._item("bodies", "places", number)
        return bytes(content), crc

    def find(self, digest: bytes) -> int | None:
        """Returns the number of the record for a key, by binary search."""
        return self._search("digests", self.count, digest)

    def blob(self, digest: bytes) -> bytes | None:
        """Returns the blob with that digest, if there is one; raises BundleError if its content has another."""
        content = self.view(digest)
        if content is None:
            return None
        if sha256(content).digest() != digest:
            raise BundleError(f"its attachment {digest.hex()[:12]} has another digest")
        return bytes(content)

    def view(self, digest: bytes) -> memoryview | None:
        """Returns the blob with that digest in place, if any; only the digest of the whole bundle covers it."""
        number = self._search("names", self.blob_count, digest)
        return None if number is None else self._item("blobs", "spots", number)[0]

    def blob_digests(self) -> Iterator[bytes]:
        """Yields the digests of all blobs."""
        names = self._sections["names"]
        return (bytes(names[i * DIGEST : (i + 1) * DIGEST]) for i in range(self.blob_count))

    def related(self, prefix: bytes) -> Iterator[int]:
        """Yields the numbers of records whose related keys have that prefix."""
        rows = _Rows(self._sections["kin"], _KIN.size, self.count)
        at = bisect_left(rows, prefix, key=lambda row: row[:8])
        while at < self.count and rows[at][:8] == prefix:
            (number,) = struct.unpack("<L", rows[at][8:])
            if number >= self.count:
                raise BundleError("its index of related keys names missing records")
            yield number
            at += 1

    def _search(self, section: str, count: int, digest: bytes) -> int | None:
        rows = _Rows(self._sections[section], DIGEST, count)
        at = bisect_left(rows, digest)
        return at if at < count and rows[at] == digest else None

    def _item(self, section: str, places: str, number: int) -> tuple[memoryview, int]:
        start, length, crc = _PLACE.unpack_from(self._sections[places], number * _PLACE.size)
        content, after = self._sections[section], (number + 1) * _PLACE.size
        # Each ends where the next begins: none overlap, so together they are no larger than the file.
        is_last = after == len(self._sections[places])
        end = len(content) if is_last else _PLACE.unpack_from(self._sections[places], after)[0]
        if not start + length == end <= len(content):
            raise BundleError("a record is not where it must be")
        return content[start : start + length], crc


class _Rows(Sequence[bytes]):
    """Rows of equal width, sliced from a section as needed."""

    def __init__(self, section: memoryview, width: int, count: int) -> None:
        self._section, self._width, self._count = section, width, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        return bytes(self._section[number * self._width : (number + 1) * self._width])
