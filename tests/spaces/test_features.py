import numpy as np
import pytest

from tunewright import Config, Feature, Knob, Session, Space, Variant, tune
from tunewright.errors import SpaceError
from tunewright.model.trial import Timing, Trial
from tunewright.stores.memory import MemoryStore
from tunewright.strategies.bayes import Bayes
from tunewright.strategies.encoding import Encoding

BYTES = Feature("shared memory", lambda bm, bk: 2 * bm * bk)
KNOBS = (Knob("bm", [16, 32, 64]), Knob("bk", [8, 16]))


def test_a_feature_is_computed_for_every_row() -> None:
    space = Space(*KNOBS, features=[BYTES])
    assert space.feature_matrix(space.codes())[:, 0].tolist() == [2 * c["bm"] * c["bk"] for c in space]


def test_a_variant_without_the_knobs_has_no_feature() -> None:
    space = Space(variants=[Variant("library"), Variant("tiled", *KNOBS)], features=[BYTES])
    features = space.feature_matrix(space.codes())[:, 0]
    assert np.isnan(features[0])
    assert not np.isnan(features[1:]).any()
    points = Encoding(space).points(space.codes())
    assert ((points >= 0) & (points <= 1)).all()


def test_a_feature_of_unknown_knobs_is_refused() -> None:
    with pytest.raises(SpaceError, match="unknown knob 'bx'; knobs: bm, bk"):
        Space(*KNOBS, features=[Feature("area", lambda bm, bx: bm * bx)])
    with pytest.raises(SpaceError, match="reads no knob"):
        Feature("nothing", lambda: 1)


def test_a_feature_that_breaks_says_where() -> None:
    space = Space(*KNOBS, features=[Feature("odd", lambda bm: 1 / (bm - 16))])
    with pytest.raises(SpaceError, match=r"ZeroDivisionError.*bm=16"):
        space.feature_matrix(space.codes())


def test_features_are_points_to_learn_from_and_outlive_exactness() -> None:
    plain, featured = Space(*KNOBS), Space(*KNOBS, features=[BYTES])
    assert len(Encoding(featured).lengths()) == len(Encoding(plain).lengths()) + 1
    assert featured.exact().features == (BYTES,)
    assert plain.with_features([BYTES]).features == (BYTES,)


def test_a_feature_that_explains_the_time_helps_a_search() -> None:
    """Time depends on a residue that no knob shows by itself: only the feature shows it."""
    knobs = [Knob("a", range(1, 60)), Knob("b", range(1, 60))]

    def cliff(a, b):
        return (7 * a + 11 * b) % 41

    def trials_until_found(space, seed):
        search = Bayes(space, np.random.default_rng(seed))
        for number in range(1, 61):
            (config,) = search.ask(1)
            search.tell([Trial(config, Timing((1e-3 * (1 + cliff(config["a"], config["b"])),)))])
            if cliff(config["a"], config["b"]) == 0:
                return number
        return 61

    informed = [trials_until_found(Space(*knobs, features=[Feature("residue", cliff)]), seed) for seed in range(5)]
    blind = [trials_until_found(Space(*knobs), seed) for seed in range(5)]
    assert np.mean(informed) < 0.7 * np.mean(blind)


class Offers:
    """A backend that knows something of configs before they are built."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def features(self, kernel, signature):
        return [Feature("work", lambda tile: 10 * tile)]


def test_a_backend_may_offer_features() -> None:
    seen = []
    own = Session(store=MemoryStore(), pool="serial", trials=5)
    own.listeners.append(lambda event: seen.append(event.problem.space) if hasattr(event, "problem") else None)

    @tune(Space(Knob("tile", [1, 2, 4])), session=own)
    def work(*, tile):
        sum(range(1000 * tile))

    work.backend = Offers(work.backend)
    assert work.decide().config == Config(tile=1)
    assert [feature.name for feature in seen[0].features] == ["work"]


def test_the_old_names_warn_and_work() -> None:
    import tunewright

    with pytest.warns(DeprecationWarning, match="use tunewright.Feature"):
        assert tunewright.Figure is Feature
    with pytest.warns(DeprecationWarning, match=r"use Space\(features="):
        space = Space(*KNOBS, figures=[BYTES])
    with pytest.warns(DeprecationWarning, match="use Space.features"):
        assert space.figures == (BYTES,)
    with pytest.warns(DeprecationWarning, match="use Config.with_value"):
        assert Config(a=1).turned("a", 2) == Config(a=2)
