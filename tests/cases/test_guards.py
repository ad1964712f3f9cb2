"""Guard zones around arrays: whatever is written there is seen, also what was computed from guard zones."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tunewright import In, InOut, Out
from tunewright.cases.arguments import Arguments
from tunewright.model.signature import Parameter


def _beyond(array, count=3):
    return as_strided(array, (array.size + count,), array.strides)[array.size :]


def _before(array, count=3):
    start = np.ndarray(array.size + count, array.dtype, array.base, 4096 - count * array.itemsize)
    return start[:count]


def _arguments(role, dtype=np.float32):
    def kernel(x: In("N"), y: role): ...

    return Arguments(Parameter.of(kernel, []), [np.ones(5, dtype), np.ones(5, dtype)])


def _launch(arguments, turns, write):
    """Returns what is wrong after each launch."""
    problems = []
    for _ in range(turns):
        arguments.reset()
        x, y = arguments.values
        y[...] = x
        write(x, y)
        problems.append(arguments.damage())
    return problems


@pytest.mark.parametrize("role", [Out("N"), InOut("N")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
@pytest.mark.parametrize("zone", [_beyond, _before])
def test_what_is_computed_from_beyond_the_input_is_seen_beyond_the_output(role, dtype, zone) -> None:
    def write(x, y):
        with np.errstate(over="ignore"):
            zone(y)[...] += 2 * zone(x) + 1

    assert any(_launch(_arguments(role, dtype), 2, write))


@pytest.mark.parametrize("role", [Out("N"), InOut("N")])
def test_a_nan_or_a_copy_beyond_the_output_is_seen(role) -> None:
    def write_nan(x, y):
        _beyond(y)[...] = np.nan

    def copy(x, y):
        _beyond(y)[...] = _beyond(x)

    for write in (write_nan, copy):
        assert any(_launch(_arguments(role), 2, write)), write


@pytest.mark.parametrize("role", [Out("N"), InOut("N")])
def test_who_stays_inside_is_not_accused(role) -> None:
    assert _launch(_arguments(role), 4, lambda x, y: None) == [None] * 4


def test_reading_beyond_an_input_or_what_is_updated_gives_nan_at_least_every_other_time() -> None:
    arguments = _arguments(InOut("N"))
    seen = []
    for _ in range(4):
        arguments.reset()
        x, y = arguments.values
        seen.append((np.isnan(_beyond(x)).all(), np.isnan(_beyond(y)).all()))
    assert all(of_input for of_input, _ in seen)
    assert sorted(of_updated for _, of_updated in seen) == [False, False, True, True]
