"""Values of knobs as people have them: numpy scalars and arrays, enums, booleans."""

from enum import Enum, IntEnum

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import SpaceError
from tunewright.stores import serialization


class Layout(Enum):
    ROWS = "r"
    COLUMNS = "c"


class Level(IntEnum):
    LOW = 1
    HIGH = 7


class Meters(float):
    pass


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (np.linspace(0, 1, 3), (0.0, 0.5, 1.0)),
        (np.arange(1, 4), (1, 2, 3)),
        (np.array([True, False]), (True, False)),
        (np.array(["a", "b"]), ("a", "b")),
        ([np.float32(0.5), np.int8(3), np.bool_(True), np.str_("x")], (0.5, 3, True, "x")),
        ([Meters(2.5)], (2.5,)),
        (Layout, ("ROWS", "COLUMNS")),
        ([Level.HIGH, Level.LOW], ("HIGH", "LOW")),
    ],
)
def test_values_are_plain_python(given, plain) -> None:
    knob = tw.Knob("k", given)
    assert knob.values == plain
    assert [type(value) for value in knob.values] == [type(value) for value in plain]
    config = tw.Config(k=next(iter(given)))
    assert serialization.decode(serialization.encode(config.plain()), dict) == {"k": plain[0]}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros((2, 2)), "a bool, int, float or str"),
        ([object()], "a bool, int, float or str"),
        ([1.0, float("nan")], "NaN"),
        ([Layout.ROWS, "ROWS"], "twice"),
        (3, "needs a list of values"),
    ],
)
def test_other_values_are_refused_with_the_name_of_the_knob(values, reason) -> None:
    with pytest.raises(SpaceError, match=reason) as caught:
        tw.Knob("tile", values)
    assert "'tile'" in str(caught.value)


def test_a_kernel_and_its_rules_and_features_get_the_member_of_an_enum() -> None:
    got = []
    space = tw.Space(
        tw.Knob("layout", Layout),
        tw.Knob("level", Level),
        rules=[tw.Rule("rows are low", lambda layout, level: layout is not Layout.ROWS or level is Level.LOW)],
        features=[tw.Feature("cost", lambda level: level.value)],
    )
    assert [dict(config) for config in space] == [
        {"layout": "ROWS", "level": "LOW"},
        {"layout": "COLUMNS", "level": "LOW"},
        {"layout": "COLUMNS", "level": "HIGH"},
    ]
    assert {"layout": Layout.ROWS, "level": Level.HIGH} not in space
    assert {"layout": Layout.COLUMNS, "level": Level.HIGH} in space
    assert space.feature_matrix(space.codes()).ravel().tolist() == [1.0, 1.0, 7.0]

    @tw.tune(space, session=tw.Session(pool="serial"))
    def double(x: tw.In("N"), *, layout=Layout.COLUMNS, level=Level.LOW):
        got.append((layout, level))
        return 2 * x

    assert double.default == {"layout": "COLUMNS", "level": "LOW"}
    double(np.ones(4))
    assert {type(layout) for layout, _ in got} == {Layout}
    assert {type(level) for _, level in got} == {Level}
    assert set(double.decide(np.ones(4)).config.values()) <= {"ROWS", "COLUMNS", "LOW", "HIGH"}
    double(np.ones(4), layout=Layout.ROWS, level=Level.LOW)
    assert got[-1] == (Layout.ROWS, Level.LOW)


def test_a_decision_about_numpy_values_survives_the_store() -> None:
    space = tw.Space(tw.Knob("w", np.linspace(0, 1, 4)), tw.Knob("b", np.arange(1, 3)))

    @tw.tune(space, session=tw.Session(pool="serial", trials=3))
    def double(x: tw.In("N"), *, w=0.0, b=1):
        return 2 * x

    double(np.ones(4))
    double.using(tw.Session(mode="strict"))
    assert double.decide(np.ones(4)).config in space
