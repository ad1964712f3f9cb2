"""The record cache: valid for a time, bounded, and never older than what was published here."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.service.cache import RECORD_OFFSET, RecordCache

DIGESTS = [f"{i:064x}" for i in range(50)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_read_is_warm_for_a_while() -> None:
    clock = Clock()
    cache = RecordCache(1 << 20, 2.0, clock)
    fragments = cache.finish_read(cache.begin_read(), {DIGESTS[0]: b'{"a":1}'})
    assert fragments == {DIGESTS[0]: b'"%s":{"a":1}' % DIGESTS[0].encode()}
    assert fragments[DIGESTS[0]][RECORD_OFFSET:] == cache.get(DIGESTS[0]) == b'{"a":1}'
    assert cache.get_many(DIGESTS[:2]) == (fragments, [DIGESTS[1]])
    clock.now = 2.1
    assert cache.get(DIGESTS[0]) is None
    assert cache.get_many(DIGESTS[:1]) == ({}, DIGESTS[:1])


def test_what_was_published_while_it_was_read_is_not_kept() -> None:
    cache = RecordCache(1 << 20, 60.0)
    read = cache.begin_read()
    cache.invalidate([DIGESTS[0]])
    cache.finish_read(read, {DIGESTS[0]: b"old", DIGESTS[1]: b"same"})
    assert cache.get(DIGESTS[0]) is None
    assert cache.get(DIGESTS[1]) == b"same"
    cache.finish_read(cache.begin_read(), {DIGESTS[0]: b"new"})
    assert cache.get(DIGESTS[0]) == b"new"


def test_what_is_used_outlives_what_is_not_and_all_is_bounded() -> None:
    cache = RecordCache(20_000, 60.0)
    for digest in DIGESTS:
        cache.finish_read(cache.begin_read(), {digest: b"x" * 500})
        assert cache.get(DIGESTS[0]) is not None
    assert sum(cache.get(digest) is not None for digest in DIGESTS) < 40


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "put", "read"]), st.integers(0, 3)), max_size=60))
def test_a_reader_never_sees_less_than_the_last_publication_it_could_have(steps) -> None:
    """Against a model: the store's version of a digest, reads that began at some version, and what is served."""
    cache, stored = RecordCache(1 << 20, 1e9), dict.fromkeys(DIGESTS[:4], 0)
    reads = []
    for verb, which in steps:
        digest = DIGESTS[which]
        if verb == "begin":
            reads.append((cache.begin_read(), dict(stored)))
        elif verb == "end" and reads:
            read, seen = reads.pop(which % len(reads))
            cache.finish_read(read, {name: b"%d" % version for name, version in seen.items()})
        elif verb == "put":
            stored[digest] += 1
            cache.invalidate([digest])
        elif (record := cache.get(digest)) is not None:
            assert int(record) == stored[digest]
