import builtins

import numpy as np
import pytest

from tunewright import Config, Knob, Space, Variant
from tunewright.errors import PluginError
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.report import slices
from tunewright.report.importance import MIN_TRIALS, ImportanceReport, encode_configs, format_share
from tunewright.testing.keys import KEY, other_decision

pytest.importorskip("sklearn")

SPACE = Space(Knob("tile", [8, 16, 32, 64]), Knob("order", ["ij", "ji"]), Knob("idle", [1, 2, 3]), Knob("fixed", [1]))


def made(config: Config) -> Trial:
    """A config whose time the tile decides, the order a little, and nothing else."""
    if config["tile"] == 64 and config["order"] == "ji":
        return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "too large"))
    seconds = 1e-3 * (64 / config["tile"]) * (1.2 if config["order"] == "ij" else 1.0)
    return Trial(config, Timing((seconds,)))


TRIALS = [made(config) for config in SPACE]
CHOSEN = other_decision(config=min(TRIALS, key=lambda trial: trial.seconds).config)


@pytest.fixture(scope="module")
def found() -> ImportanceReport:
    importances = ImportanceReport.of(TRIALS)
    assert importances is not None
    return importances


@pytest.mark.slow
def test_the_knob_that_decides_comes_first_and_one_that_does_nothing_gets_nothing(found) -> None:
    assert [one.knob for one in found.knobs] == ["tile", "order", "idle"]
    assert found.knobs[0].share > 0.8
    assert found.knobs[2].share < 0.05
    assert sum(one.share for one in found.knobs) == pytest.approx(1)
    assert all(one.low <= one.share <= one.high for one in found.knobs)
    assert found.explained > 0.8
    assert (found.trials, found.failures) == (21, 3)


def test_noise_explains_nothing_and_its_shares_are_wide() -> None:
    rng = np.random.default_rng(0)
    found = ImportanceReport.of([Trial(config, Timing((float(np.exp(rng.normal())),))) for config in SPACE])
    assert found is not None
    assert found.explained < 0.3
    assert max(one.high - one.low for one in found.knobs) > 0.3


@pytest.mark.slow
def test_the_same_trials_give_the_same_shares(found) -> None:
    assert ImportanceReport.of(TRIALS) == found


def test_too_few_trials_or_equal_ones_say_nothing() -> None:
    assert ImportanceReport.of(TRIALS[: MIN_TRIALS - 1]) is None
    assert ImportanceReport.of([Trial(config, Timing((1.0,))) for config in SPACE]) is None
    assert ImportanceReport.of([]) is None


def test_a_knob_that_a_variant_lacks_does_not_stand_in_for_the_variant() -> None:
    space = Space(
        Knob("unroll", [1, 2, 4]),
        variants=[Variant("plain"), Variant("tiled", Knob("tile", [8, 16, 32, 64]))],
    )
    trials = [
        Trial(config, Timing((2.0 if config["variant"] == "plain" else 1.0,))) for config in space for _ in range(2)
    ]
    found = ImportanceReport.of(trials)
    assert found is not None
    assert found.knobs[0].knob == "variant"
    assert found.knobs[0].share > 0.95
    names, codes = encode_configs([trial.config for trial in trials])
    assert names == ["tile", "unroll", "variant"]
    assert np.isfinite(codes).all()


def test_shares_are_said_as_people_say_them(found) -> None:
    assert format_share(found.knobs[2]).startswith("0 % (0 to ")


def test_without_scikit_learn_the_extra_is_named(monkeypatch) -> None:
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(PluginError, match=r"tunewright\[explain\]"):
        ImportanceReport.of(TRIALS)


def test_a_slice_holds_every_trial_by_value() -> None:
    found = slices.KnobSlice.of(TRIALS, "tile", "", CHOSEN)
    assert found.values == [8, 16, 32, 64]
    assert [len(times) for times in found.times] == [6, 6, 6, 3]
    assert found.failures == [0, 0, 0, 3]
    assert found.best == pytest.approx([8.0, 4.0, 2.0, 1.2])
    assert found.middle == pytest.approx([8.8, 4.4, 2.2, 1.2])
    assert found.chosen == (3, pytest.approx(1.2))


def test_a_slice_of_a_value_that_always_failed_has_a_gap() -> None:
    failed = [trial for trial in TRIALS if not trial.works]
    found = slices.KnobSlice.of([*failed, *(trial for trial in TRIALS if trial.config["tile"] < 64)], "tile", "", None)
    assert found.best[3] is None
    assert found.chosen is None


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
@pytest.mark.parametrize("known", [True, False])
def test_a_space_is_drawn_knob_by_knob(tmp_path, found, suffix, known) -> None:
    path = tmp_path / f"out{suffix}"
    slices.draw(path, KEY, TRIALS, CHOSEN, found if known else None)
    assert path.stat().st_size > 5000
    if suffix == ".html":
        assert ("and its importance" in path.read_text()) is known


def test_a_search_of_one_knob_is_drawn_without_a_heat_map(tmp_path) -> None:
    trials = [Trial(Config(tile=tile), Timing((tile * 1e-3,))) for tile in (1, 2, 4)]
    slices.draw(tmp_path / "out.png", KEY, trials, None, None)
    assert (tmp_path / "out.png").stat().st_size > 5000
