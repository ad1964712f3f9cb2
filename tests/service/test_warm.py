"""What is kept warm: fresh, bounded, and never older than what was published here."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.service.warm import NAME, Warm

DIGESTS = [f"{i:064x}" for i in range(50)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_read_is_warm_for_a_while() -> None:
    clock = Clock()
    warm = Warm(1 << 20, 2.0, clock)
    parts = warm.end(warm.begin(), {DIGESTS[0]: b'{"a":1}'})
    assert parts == {DIGESTS[0]: b'"%s":{"a":1}' % DIGESTS[0].encode()}
    assert parts[DIGESTS[0]][NAME:] == warm.get(DIGESTS[0]) == b'{"a":1}'
    assert warm.get_many(DIGESTS[:2]) == (parts, [DIGESTS[1]])
    clock.now = 2.1
    assert warm.get(DIGESTS[0]) is None
    assert warm.get_many(DIGESTS[:1]) == ({}, DIGESTS[:1])


def test_what_was_published_while_it_was_read_is_not_kept() -> None:
    warm = Warm(1 << 20, 60.0)
    flight = warm.begin()
    warm.change([DIGESTS[0]])
    warm.end(flight, {DIGESTS[0]: b"old", DIGESTS[1]: b"same"})
    assert warm.get(DIGESTS[0]) is None
    assert warm.get(DIGESTS[1]) == b"same"
    warm.end(warm.begin(), {DIGESTS[0]: b"new"})
    assert warm.get(DIGESTS[0]) == b"new"


def test_what_is_used_outlives_what_is_not_and_all_is_bounded() -> None:
    warm = Warm(20_000, 60.0)
    for digest in DIGESTS:
        warm.end(warm.begin(), {digest: b"x" * 500})
        assert warm.get(DIGESTS[0]) is not None
    assert sum(warm.get(digest) is not None for digest in DIGESTS) < 40


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "put", "read"]), st.integers(0, 3)), max_size=60))
def test_a_reader_never_sees_less_than_the_last_publication_it_could_have(steps) -> None:
    """Against a model: the store's version of a digest, reads that began at some version, and what is served."""
    warm, stored = Warm(1 << 20, 1e9), dict.fromkeys(DIGESTS[:4], 0)
    flights = []
    for verb, which in steps:
        digest = DIGESTS[which]
        if verb == "begin":
            flights.append((warm.begin(), dict(stored)))
        elif verb == "end" and flights:
            flight, seen = flights.pop(which % len(flights))
            warm.end(flight, {name: b"%d" % version for name, version in seen.items()})
        elif verb == "put":
            stored[digest] += 1
            warm.change([digest])
        elif (found := warm.get(digest)) is not None:
            assert int(found) == stored[digest]
