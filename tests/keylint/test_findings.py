"""Which fields of a key are needless, and which winners exclude each other under one key."""

import msgspec
import pytest

from tunewright.keylint.findings import MIN_LOSS, at_most, check_fields, field_remedy, find_contradictions
from tunewright.model.conditions import Conditions
from tunewright.model.decision import Decision, Finalist
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config
from tunewright.stores.statistics import Revision
from tunewright.testing.keys import EVIDENCE, KEY, other_key

SMALL, LARGE = Config(tile=32), Config(tile=64)


def sized(**dims):
    return other_key(signature=Signature(KEY.signature.args, {**KEY.signature.dims, **dims}))


def decided(key, config, ties=(), resolution=None):
    places = tuple(Finalist(tie, EVIDENCE.seconds, EVIDENCE.low, EVIDENCE.high) for tie in ties)
    return Decision(key, config, msgspec.structs.replace(EVIDENCE, ties=places, resolution=resolution))


def timed(config, seconds, at=0.0, spread=0.002):
    samples = tuple(seconds * (1 + spread * (i - 5) / 5) for i in range(11))
    return Trial(config, Timing(samples, "cpu"), 0.5, 1.5, at=at)


def nothing_tried(key):
    return ()


def only(found):
    assert len(found) == 1
    return found[0]


SIZES = [1 << i for i in range(4, 13)]


def test_a_field_that_never_changes_the_winner_is_needless_with_its_bound_and_what_it_cost() -> None:
    found = only(
        check_fields([decided(sized(M=m), SMALL) for m in SIZES], lambda key: [timed(SMALL, 1.0), timed(LARGE, 2.0)])
    )
    assert found.names == ("signature.dims.M",)
    assert found.needless
    assert not found.matters
    assert (found.pairs, found.agree, found.differ) == (8, 8, 0)
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 8))
    assert found.tunings == 8
    assert found.seconds == pytest.approx(9 * 2 * 2.0 * 8 / 9)
    assert found.values == tuple(map(str, SIZES))
    assert field_remedy(found) == "let one decision serve them: buckets={'M': [4096]}"


def test_seven_pairs_are_too_few_and_one_value_says_nothing() -> None:
    seven = only(check_fields([decided(sized(M=m), SMALL) for m in SIZES[:8]], nothing_tried))
    assert (seven.pairs, seven.agree) == (7, 7)
    assert not seven.needless
    assert not seven.matters
    assert check_fields([decided(KEY, SMALL)], nothing_tried) == []


def test_one_loser_beyond_doubt_makes_a_field_matter_and_is_shown() -> None:
    last = SIZES[-1]

    def journal(key):
        large_wins = key.signature.dims["M"] == last
        return [timed(SMALL, 1.3 if large_wins else 1.0), timed(LARGE, 1.0 if large_wins else 1.2)]

    found = only(check_fields([decided(sized(M=m), LARGE if m == last else SMALL) for m in SIZES], journal))
    assert not found.needless
    assert found.matters
    assert found.witness is not None
    assert found.witness.there == str(last)
    assert found.witness.config == SMALL
    assert found.witness.loss.ratio == pytest.approx(1.3)


def test_winners_that_lose_too_little_to_matter_agree() -> None:
    def journal(key):
        return [timed(SMALL, 1.0), timed(LARGE, 1.02)]

    choices = [decided(sized(M=m), LARGE if m == 64 else SMALL) for m in SIZES]
    found = only(
        check_fields(
            choices,
            lambda key: journal(key) if key.signature.dims["M"] != 64 else [timed(LARGE, 1.0), timed(SMALL, 1.01)],
        )
    )
    assert found.needless
    assert 0 < found.loss < found.worst
    assert found.worst == pytest.approx(0.02)


def test_a_tie_agrees_only_if_the_race_could_have_told() -> None:
    def stored(resolution):
        return [
            decided(sized(M=m), LARGE if i % 2 else SMALL, [SMALL if i % 2 else LARGE], resolution)
            for i, m in enumerate(SIZES)
        ]

    assert only(check_fields(stored(0.01), nothing_tried)).needless
    coarse = only(check_fields(stored(0.3), nothing_tried))
    assert not coarse.needless
    assert not coarse.matters


def test_winners_that_agree_are_no_evidence_where_nothing_could_be_told() -> None:
    assert not only(check_fields([decided(sized(M=m), SMALL, resolution=0.3) for m in SIZES], nothing_tried)).needless
    assert not only(check_fields([Decision(sized(M=m), SMALL) for m in SIZES], nothing_tried)).needless
    for doubt in ({"complete": False}, {"remains": 0.4}):
        evidence = msgspec.structs.replace(EVIDENCE, **doubt)
        assert not only(check_fields([Decision(sized(M=m), SMALL, evidence) for m in SIZES], nothing_tried)).needless


def test_what_was_never_tried_elsewhere_counts_against_a_field_but_proves_nothing() -> None:
    found = only(check_fields([decided(sized(M=m), Config(tile=m)) for m in SIZES], lambda key: ()))
    assert (found.agree, found.differ, found.bound) == (0, 0, 1.0)
    assert not found.needless
    failed = Trial(SMALL, Failure(Stage.BUILD, Kind.REFUSED, "no"))
    pair = [decided(sized(M=1), SMALL), decided(sized(M=2), LARGE)]
    assert only(check_fields(pair, lambda key: [failed])).agree == 0


def test_a_field_is_judged_where_all_else_is_equal() -> None:
    grid = [decided(sized(M=m, N=n), SMALL if n < 3 else LARGE) for m in SIZES for n in (1, 2, 3, 4)]

    def journal(key):
        small_wins = key.signature.dims["N"] < 3
        return [timed(SMALL, 1.0 if small_wins else 1.5), timed(LARGE, 1.5 if small_wins else 1.0)]

    found = {one.names: one for one in check_fields(grid, journal)}
    assert set(found) == {("signature.dims.M",), ("signature.dims.N",)}
    assert found["signature.dims.M",].needless
    assert found["signature.dims.M",].pairs == 4 * 8
    assert found["signature.dims.N",].matters


def test_fields_that_never_changed_apart_are_one_and_kernels_and_sources_are_not_mixed() -> None:
    square = [decided(sized(M=m, N=m, K=m), SMALL) for m in SIZES]
    assert only(check_fields(square, nothing_tried)).names == (
        "signature.dims.K",
        "signature.dims.M",
        "signature.dims.N",
    )
    sources = [decided(other_key(source=text), SMALL) for text in "abcdefghij"]
    assert check_fields(sources, nothing_tried) == []


def test_a_field_of_any_part_of_a_key_has_a_remedy() -> None:
    numpy = [decided(other_key(toolchain={"numpy": f"2.{i}"}), SMALL) for i in range(9)]
    assert "seeds=" in field_remedy(only(check_fields(numpy, nothing_tried)))
    models = [decided(other_key(device=msgspec.structs.replace(KEY.device, model=f"CPU {i}")), SMALL) for i in range(9)]
    assert "[aliases]" in field_remedy(only(check_fields(models, nothing_tried)))
    threads = [decided(other_key(mode={"threads": str(i)}), SMALL) for i in range(9)]
    assert "threads" in field_remedy(only(check_fields(threads, nothing_tried)))
    shapes = [decided(other_key(signature=Signature((f"float32[{i}]",))), SMALL) for i in range(9)]
    assert "buckets" in field_remedy(only(check_fields(shapes, nothing_tried)))
    dtypes = [decided(other_key(signature=Signature((f"float{i}[M]",), {"M": 1})), SMALL) for i in range(9)]
    assert "seeds=" in field_remedy(only(check_fields(dtypes, nothing_tried)))


def test_many_members_are_sampled_and_all_are_counted_as_saved() -> None:
    found = only(check_fields([decided(sized(M=m), SMALL) for m in range(1, 101)], nothing_tried))
    assert found.pairs < 32
    assert found.tunings == 99


@pytest.mark.parametrize(("misses", "count", "bound"), [(0, 8, 0.3123), (0, 59, 0.0495), (1, 20, 0.2161), (3, 3, 1.0)])
def test_bounds_are_those_of_clopper_and_pearson(misses, count, bound) -> None:
    assert at_most(misses, count) == pytest.approx(bound, abs=1e-4)


def stood(*configs, ties=()):
    return [Revision(i + 1, 10.0 * (i + 1), decided(KEY, config, ties)) for i, config in enumerate(configs)]


def test_two_winners_each_beyond_doubt_faster_in_its_time_contradict_each_other() -> None:
    trials = [timed(SMALL, 1.0, 5), timed(LARGE, 1.4, 6), timed(SMALL, 1.2, 15), timed(LARGE, 1.0, 16)]
    found = only(find_contradictions(KEY, stood(SMALL, LARGE), trials))
    assert (found.earlier, found.later) == (SMALL, LARGE)
    assert found.gain.ratio == pytest.approx(1.4)
    assert found.reverse.ratio == pytest.approx(1.2)
    assert found.gain.low > 1 + MIN_LOSS
    assert found.reverse.low > 1 + MIN_LOSS


@pytest.mark.parametrize(
    "trials",
    [
        [timed(SMALL, 1.0, 5), timed(LARGE, 1.4, 6), timed(SMALL, 1.02, 15), timed(LARGE, 1.0, 16)],
        [timed(SMALL, 1.0, 5, 0.3), timed(LARGE, 1.4, 6, 0.3), timed(SMALL, 1.2, 15, 0.3), timed(LARGE, 1.0, 16, 0.3)],
        [timed(SMALL, 1.0, 5), timed(LARGE, 1.4, 6)],
        [timed(SMALL, 1.0, 5), timed(LARGE, 1.4, 6), timed(LARGE, 1.0, 16)],
    ],
    ids=["too little", "too noisy", "not tried again", "one not tried again"],
)
def test_what_is_not_shown_both_ways_is_no_contradiction(trials) -> None:
    assert find_contradictions(KEY, stood(SMALL, LARGE), trials) == []


def test_a_race_that_told_the_winner_from_the_other_makes_up_for_noisy_trials() -> None:
    noisy = [
        timed(SMALL, 1.0, 5, 0.3),
        timed(LARGE, 1.4, 6, 0.3),
        timed(SMALL, 1.2, 15, 0.3),
        timed(LARGE, 1.0, 16, 0.3),
    ]
    evidence = msgspec.structs.replace(EVIDENCE, ties=(), conditions=Conditions())
    raced = [Revision(i, 10.0 * i, Decision(KEY, config, evidence)) for i, config in ((1, SMALL), (2, LARGE))]
    assert len(find_contradictions(KEY, raced, noisy)) == 1
    assert find_contradictions(KEY, stood(SMALL, LARGE), noisy) == []


def test_a_tie_or_the_same_winner_is_no_contradiction() -> None:
    trials = [timed(SMALL, 1.0, 5), timed(LARGE, 1.4, 6), timed(SMALL, 1.2, 15), timed(LARGE, 1.0, 16)]
    assert find_contradictions(KEY, stood(SMALL, SMALL), trials) == []
    assert find_contradictions(KEY, stood(SMALL, LARGE, ties=[LARGE]), trials) == []
