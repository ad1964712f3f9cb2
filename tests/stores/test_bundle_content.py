"""A bundle is read once; what is used is what was hashed, whatever happens to its file meanwhile."""

import struct
import sys
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunewright.errors import BundleError, PluginError
from tunewright.stores.bundle import build, content, digests, layout, signing
from tunewright.stores.bundle.layout import BundleReader
from tunewright.stores.bundle.store import BundleStore, verify_bundle


def written(path, sizes, keys=()):
    """A bundle with attachments of these sizes; returns its digest."""
    attached = [build.Attachment("kind", f"{size}", bytes([size % 251]) * size) for size in sizes]
    return build.write(path, build.build((), attached), *keys)


def address(view):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.mark.parametrize("size", [1, 100, 5_000, content._CHUNK, 3 * content._CHUNK + 17, (1 << 21) + 9])
def test_what_was_read_has_the_digest_of_the_file_and_its_largest_attachment_is_aligned(tmp_path, size):
    path = tmp_path / "a.bundle"
    digest = written(path, [size, size // 2, 3])
    found = content.read(path)
    assert bytes(found.whole) == path.read_bytes()
    signed, _ = signing.split_trailers(found.whole)
    assert found.digest(signed).hex() == digest == sha256(signed).hexdigest()
    largest = max((BundleReader(signed).view(name) for name in BundleReader(signed).blob_digests()), key=len)
    assert address(largest) % content.ALIGNMENT == 0


def test_several_signatures_are_not_part_of_what_is_hashed(tmp_path):
    for name in "ab":
        signing.generate_key(tmp_path / name)
    keys = [signing.load_private_key(tmp_path / name) for name in "ab"]
    digest = written(tmp_path / "a.bundle", [5_000], keys)
    assert verify_bundle(tmp_path / "a.bundle", pin=digest).digest == digest


def test_a_change_to_the_file_after_it_was_read_changes_nothing(tmp_path):
    path = tmp_path / "a.bundle"
    store = BundleStore.open_trusted(path, None, written(path, [100_000]))
    path.write_bytes(bytes(path.stat().st_size))
    assert store.view_attachment("kind", "100000") == bytes([100_000 % 251]) * 100_000


@pytest.mark.parametrize("position", [0, 40, 1_000, 300_000, -97, -1_700, -2_000])
def test_a_changed_byte_anywhere_is_refused(tmp_path, position):
    path = tmp_path / "a.bundle"
    digest = written(path, [700_000])
    whole = bytearray(path.read_bytes())
    whole[position] ^= 1
    path.write_bytes(whole)
    with pytest.raises(BundleError):
        verify_bundle(path, pin=digest)


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.bundle"
    digest = written(path, [700_000])
    seen = content._largest_attachment

    def cut(file, size):
        with path.open("r+b") as other:
            other.truncate(layout.HEADER + 10)
        return seen(file, size)

    monkeypatch.setattr(content, "_largest_attachment", cut)
    with pytest.raises(BundleError):
        verify_bundle(path, pin=digest)


@pytest.mark.parametrize("table", [b"\xff", b"\x00", b"\x07"])
def test_a_table_of_nonsense_only_misplaces_memory(tmp_path, table):
    path = tmp_path / "a.bundle"
    path.write_bytes(b"TWBUNDLE" + bytes(8) + table * (layout.HEADER - 16) + bytes(5_000))
    assert bytes(content.read(path).whole) == path.read_bytes()


def test_an_empty_file_is_no_bundle(tmp_path):
    (tmp_path / "a.bundle").write_bytes(b"")
    with pytest.raises(BundleError):
        verify_bundle(tmp_path / "a.bundle", pin="0" * 64)


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A bundle of layout 2: its path, its bytes, its digest, and where its attachments begin."""
    pytest.importorskip("blake3")
    monkeypatch.setattr(layout, "LARGE", 1)
    path = tmp_path / "large.bundle"
    digest = written(path, [700_000, 20])
    return path, bytearray(path.read_bytes()), digest, layout.find_blobs(memoryview(path.read_bytes()))


def test_large_attachments_are_hashed_by_blake3_and_all_before_them_by_sha256(large):
    from blake3 import blake3

    path, whole, digest, start = large
    content = whole[: -layout.TRAILER]
    assert whole[8] == layout.VERSION
    assert digest == sha256(content[:start] + blake3(content[start:]).digest()).hexdigest()
    assert verify_bundle(path, pin=digest).digest == digests.digest(content).hex() == digest
    assert BundleStore.open_trusted(path, None, digest).read_attachment("kind", "20") == b"\x14" * 20


def test_only_bundles_with_large_attachments_have_layout_2(tmp_path, monkeypatch):
    for size, version in [(8_000, 1), (12_000, 2)]:
        monkeypatch.setattr(layout, "LARGE", 10_000)
        written(tmp_path / "a.bundle", [size])
        assert (tmp_path / "a.bundle").read_bytes()[8] == version


@pytest.mark.parametrize("position", [8, 9, 16, 120, 136, 200, 1_000, 300_000, -97, -20_000, -700_000])
def test_a_changed_byte_of_a_large_bundle_is_refused(large, position):
    path, whole, digest, _ = large
    for bit in range(8):
        changed = whole.copy()
        changed[position] ^= 1 << bit
        path.write_bytes(changed)
        with pytest.raises(BundleError):
            BundleStore.open_trusted(path, None, digest)


def test_a_bundle_with_a_digest_in_place_of_its_attachments_is_refused(large):
    """What SHA-256 sees of layout 2 is itself a file of the same digest in layout 1, but for its header."""
    from blake3 import blake3

    path, whole, digest, start = large
    forged = whole[:start] + blake3(whole[start : -layout.TRAILER]).digest() + bytes(layout.TRAILER)
    assert sha256(forged[: -layout.TRAILER]).hexdigest() == digest
    for version in (1, 2):
        forged[8] = version
        path.write_bytes(forged)
        with pytest.raises(BundleError):
            verify_bundle(path, pin=digest)


@pytest.mark.parametrize("version", [1, 2])
def test_a_header_that_changes_while_a_bundle_is_read_decides_nothing(large, monkeypatch, version):
    from blake3 import blake3

    path, whole, digest, start = large
    forged = whole[:start] + blake3(whole[start : -layout.TRAILER]).digest() + bytes(layout.TRAILER)
    forged[8] = version
    path.write_bytes(forged)
    seen = content._largest_attachment

    def exchange(file, size):
        place = seen(file, size)
        with path.open("r+b") as other:
            other.seek(8)
            other.write(bytes([3 - version]))
        return place

    monkeypatch.setattr(content, "_largest_attachment", exchange)
    with pytest.raises(BundleError):
        verify_bundle(path, pin=digest)


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.sampled_from([1, 2]), st.randoms())
def test_digests_do_not_depend_on_how_a_bundle_arrives(rest, start, version, random):
    pytest.importorskip("blake3")
    table = struct.pack("<QQ", 0, 0) * (len(layout.SECTIONS) - 1) + struct.pack("<QQ", start % 400, 5)
    whole = memoryview(layout.MAGIC + struct.pack("<Q", version) + table + rest)[: random.randint(0, 400)]
    hasher, end = digests.BundleHasher(whole), 0
    while end < len(whole):
        end = min(len(whole), end + random.randint(1, 100))
        hasher.advance(end)
    for length in (len(whole), random.randint(0, len(whole))):
        if length >= layout.HEADER:
            assert hasher.digest(length) == digests.digest(whole[:length])
        else:
            with pytest.raises(BundleError, match="too short"):
                hasher.digest(length)


@given(st.lists(st.tuples(st.binary(max_size=80), st.integers(0, 300), st.sampled_from([1, 2])), min_size=2))
def test_different_contents_have_different_digests(parts):
    pytest.importorskip("blake3")
    contents = set()
    for rest, start, version in parts:
        table = struct.pack("<QQ", 0, 0) * (len(layout.SECTIONS) - 1) + struct.pack("<QQ", start, 5)
        contents.add(layout.MAGIC + struct.pack("<Q", version) + table + rest)
        contents.add(contents_for_sha256(layout.MAGIC + struct.pack("<Q", version) + table + rest))
    assert len({digests.digest(one) for one in contents}) == len(contents)


def contents_for_sha256(content):
    """What SHA-256 gets to see of a content."""
    from blake3 import blake3

    start = layout.find_blobs(memoryview(content))
    return content if start is None else content[:start] + blake3(content[start:]).digest()


def test_a_large_bundle_without_blake3_says_what_to_install(large, monkeypatch):
    path, _, digest, _ = large
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(PluginError, match=r"blake3.*tunewright\[bundle\]"):
        verify_bundle(path, pin=digest)


@pytest.mark.parametrize("signed", [False, True])
def test_a_newer_layout_is_refused_with_both_numbers_whatever_its_digest_is(large, tmp_path, signed):
    path, whole, _, _ = large
    whole[8] = 3
    signing.generate_key(tmp_path / "key")
    key = signing.load_private_key(tmp_path / "key")
    other = sha256(b"a digest by rules of a later version").digest()
    path.write_bytes(whole[: -layout.TRAILER] + signing.make_trailer(other, key if signed else None))
    trusted = {signing.public_bytes(key): "us"} if signed else ()
    with pytest.raises(BundleError, match=r"layout 3, .* up to 2; update"):
        verify_bundle(path, signers=trusted, pin=None if signed else other.hex())


@pytest.mark.parametrize("content", [b"", b"tunewright torch cache\n", b"TWBUNDLE", b"TWBUNDLE\x03", b"TWBUNDLE\x02"])
def test_only_what_is_a_bundle_is_signed_as_one(tmp_path, content):
    pytest.importorskip("blake3")
    signing.generate_key(tmp_path / "key")
    path = tmp_path / "a.bundle"
    path.write_bytes(content.ljust(1_000, b"\0"))
    with pytest.raises(BundleError, match=r"a\.bundle is not signed: .*; make it with"):
        build.add_signature(path, signing.load_private_key(tmp_path / "key"))
    assert path.read_bytes() == content.ljust(1_000, b"\0")


def test_what_sha256_sees_of_layout_2_is_not_signed_either(large, tmp_path):
    from blake3 import blake3

    path, whole, _, start = large
    path.write_bytes(whole[:start] + blake3(whole[start : -layout.TRAILER]).digest() + bytes(layout.TRAILER))
    signing.generate_key(tmp_path / "key")
    with pytest.raises(BundleError):
        build.add_signature(path, signing.load_private_key(tmp_path / "key"))


def test_a_kernel_without_huge_pages_reads_bundles_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(content.mmap, "MADV_HUGEPAGE", 12_345)
    digest = written(tmp_path / "a.bundle", [3 << 20])
    assert verify_bundle(tmp_path / "a.bundle", pin=digest).digest == digest
