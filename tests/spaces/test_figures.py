import numpy as np
import pytest

from tunewright import Config, Figure, Knob, Session, Space, Variant, tune
from tunewright.errors import SpaceError
from tunewright.model.trial import Timing, Trial
from tunewright.stores.memory import MemoryStore
from tunewright.strategies.bayes import Bayes
from tunewright.strategies.encoding import Encoding

BYTES = Figure("shared memory", lambda bm, bk: 2 * bm * bk)
KNOBS = (Knob("bm", [16, 32, 64]), Knob("bk", [8, 16]))


def test_a_figure_is_computed_for_every_row() -> None:
    space = Space(*KNOBS, figures=[BYTES])
    assert space.figured(space.codes())[:, 0].tolist() == [2 * c["bm"] * c["bk"] for c in space]


def test_a_variant_without_the_knobs_has_no_figure() -> None:
    space = Space(variants=[Variant("library"), Variant("tiled", *KNOBS)], figures=[BYTES])
    figures = space.figured(space.codes())[:, 0]
    assert np.isnan(figures[0])
    assert not np.isnan(figures[1:]).any()
    points = Encoding(space).points(space.codes())
    assert ((points >= 0) & (points <= 1)).all()


def test_a_figure_of_unknown_knobs_is_refused() -> None:
    with pytest.raises(SpaceError, match="unknown knob 'bx'; knobs: bm, bk"):
        Space(*KNOBS, figures=[Figure("area", lambda bm, bx: bm * bx)])
    with pytest.raises(SpaceError, match="reads no knob"):
        Figure("nothing", lambda: 1)


def test_a_figure_that_breaks_says_where() -> None:
    space = Space(*KNOBS, figures=[Figure("odd", lambda bm: 1 / (bm - 16))])
    with pytest.raises(SpaceError, match=r"ZeroDivisionError.*bm=16"):
        space.figured(space.codes())


def test_figures_are_points_to_learn_from_and_outlive_exactness() -> None:
    plain, told = Space(*KNOBS), Space(*KNOBS, figures=[BYTES])
    assert Encoding(told).width == Encoding(plain).width + 1
    assert told.exact().figures == (BYTES,)
    assert plain.knowing([BYTES]).figures == (BYTES,)


def test_a_figure_that_explains_the_time_helps_a_search() -> None:
    """Time depends on a residue that no knob shows by itself: only the figure tells it."""
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

    told = [trials_until_found(Space(*knobs, figures=[Figure("residue", cliff)]), seed) for seed in range(5)]
    blind = [trials_until_found(Space(*knobs), seed) for seed in range(5)]
    assert np.mean(told) < 0.7 * np.mean(blind)


class Offers:
    """A backend that knows something of configs before they are built."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def figures(self, kernel, signature):
        return [Figure("work", lambda tile: 10 * tile)]


def test_a_backend_may_offer_figures() -> None:
    seen = []
    own = Session(store=MemoryStore(), pool="serial", trials=5)
    own.listeners.append(lambda event: seen.append(event.problem.space) if hasattr(event, "problem") else None)

    @tune(Space(Knob("tile", [1, 2, 4])), session=own)
    def work(*, tile):
        sum(range(1000 * tile))

    work.backend = Offers(work.backend)
    assert work.decide().config == Config(tile=1)
    assert [figure.name for figure in seen[0].figures] == ["work"]
