"""A bundle is read once; what is used is what was hashed, whatever happens to its file meanwhile."""

from hashlib import sha256

import pytest

from tunewright.errors import BundleError
from tunewright.stores.bundle import build, content, layout, signing
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
