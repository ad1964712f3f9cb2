"""A search ends at once when all configs fail to build for one reason that no knob can be the cause of."""

import numpy as np
import pytest

from tunewright import C, Config, In, Knob, NothingWorked, Out, Session, Space, Variant, tune
from tunewright.engine.repeated_failures import MANY, find_repeated_failure
from tunewright.model.decision import Problem
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]), Knob("simd", ["avx2", "avx512"]))
PROBLEM = Problem(KEY, SPACE, Config(tile=1, simd="avx2"))
LINK = "/tmp/tmp1x2y/655add70169520482db44a2f685ee0f0.so: undefined symbol: damp (tile {tile})"


def refused(tile, simd, message=LINK, stage=Stage.BUILD, kind=Kind.REFUSED):
    reason = message.format(tile=tile, simd=simd).replace("tmp1x", f"tmp{tile}")
    return Trial(Config(tile=tile, simd=simd), Failure(stage, kind, reason))


EQUAL = [refused(2, "avx512"), refused(1, "avx2"), refused(4, "avx2", stage=Stage.LOAD)]


def test_three_equal_failures_end_a_search_and_show_the_message() -> None:
    assert find_repeated_failure(PROBLEM, EQUAL[:2]) is None
    said = find_repeated_failure(PROBLEM, EQUAL)
    assert "undefined symbol: damp" in said
    assert "the first 3 configs, the default among them" in said


@pytest.mark.parametrize(
    "other",
    [
        Trial(Config(tile=8, simd="avx2"), Timing((1.0,))),
        refused(8, "avx2", "another error"),
        refused(8, "avx2", kind=Kind.HUNG),
        refused(8, "avx2", stage=Stage.VERIFY),
    ],
)
def test_one_that_works_or_fails_otherwise_lets_the_search_go_on(other) -> None:
    for trials in ([*EQUAL, other], [other, *EQUAL]):
        assert find_repeated_failure(PROBLEM, trials) is None


def test_without_the_default_nothing_ends() -> None:
    assert find_repeated_failure(PROBLEM, [trial for trial in EQUAL if trial.config != PROBLEM.default]) is None
    assert find_repeated_failure(PROBLEM, [refused(tile, "avx512") for tile in (2, 4, 8, 16)]) is None


def test_a_knob_value_that_all_failures_share_may_be_the_cause_for_a_while() -> None:
    shared = [refused(tile, "avx2", "unknown option") for tile in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)]
    assert find_repeated_failure(PROBLEM, shared[: MANY - 1]) is None
    assert find_repeated_failure(PROBLEM, shared[:MANY])


def test_a_knob_with_one_value_is_no_excuse_and_a_variant_is() -> None:
    one = Problem(KEY, Space(Knob("tile", [1, 2, 4]), Knob("simd", ["avx2"])), Config(tile=1, simd="avx2"))
    trials = [refused(tile, "avx2") for tile in (1, 2, 4)]
    assert find_repeated_failure(one, trials)
    space = Space(variants=[Variant("c", Knob("tile", [1, 2, 4, 8])), Variant("numpy")])
    configs = [Config(variant="c", tile=tile) for tile in (1, 2, 4)]
    failed = [Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "no compiler")) for config in configs]
    assert find_repeated_failure(Problem(KEY, space, configs[0]), failed) is None


def test_a_number_in_the_message_that_some_configs_have_by_chance_does_not_matter() -> None:
    exits = [refused(t, simd, "ld returned 1 exit status") for t, simd in ((1, "avx2"), (2, "avx512"), (4, "avx2"))]
    assert find_repeated_failure(PROBLEM, exits)


def test_messages_that_differ_by_more_than_the_config_are_different() -> None:
    needs = [
        refused(tile, simd, f"needs {1000 * tile} bytes") for tile, simd in ((1, "avx2"), (2, "avx512"), (4, "avx2"))
    ]
    assert find_repeated_failure(PROBLEM, needs) is None


def broken(x: In("N"), y: Out("N")): ...


WORKS = "void broken(const double *x, double *y) { for (long i = 0; i < N; i++) y[i] = x[i]; }"


@pytest.mark.parametrize("pool", ["serial", "process:2"])
@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (WORKS, "-O1 -lnonesuch", "cannot find -lnonesuch"),
        ("void broken(const double *x, double *y) { for (long i = 0; i < N; i++) y[i] = x[i] }", "-O1", "expected"),
        ("double damp(double); void broken(double *x, double *y) { *y = damp(*x); }", "-O1", "undefined symbol: damp"),
    ],
)
def test_a_kernel_that_cannot_be_built_is_said_after_a_few_tries(tmp_path, text, flags, said, pool) -> None:
    path = tmp_path / "broken.c"
    path.write_text(text)
    session = Session(pool=pool)
    space = Space(Knob("M", list(range(90))))
    tuned = tune(space, backend=C(path, flags=flags), session=session, reference=lambda x: x)(broken)
    with pytest.raises(NothingWorked, match=f"for the same reason: .*{said}.*correct the source"):
        tuned(np.ones(8), np.ones(8))
    # Of two workers, one may try many while the other still builds the default, without which nothing is plain.
    assert 3 <= session.counts["measurements"] <= (4 if pool == "serial" else 89)


def test_configs_that_fail_beside_ones_that_work_do_not_end_a_search(tmp_path) -> None:
    path = tmp_path / "broken.c"
    path.write_text("#if M < 5\n#error too small\n#endif\n" + WORKS)
    space = Space(Knob("M", list(range(6))))
    session = Session(pool="serial", strategy="exhaustive")
    options = {"reference": lambda x: x, "default": {"M": 5}, "session": session}
    tuned = tune(space, backend=C(path, flags="-O1"), **options)(broken)
    tuned(np.ones(8), np.ones(8))
    assert session.counts["measurements"] == 6
