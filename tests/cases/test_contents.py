"""Contents that change from launch to launch."""

import numpy as np
import pytest

import tunewright as tw
from tunewright.cases.arguments import Arguments
from tunewright.cases.inputs import Array, Inputs
from tunewright.errors import SignatureError
from tunewright.model.signature import Parameter


def kernel(a: tw.In("N"), w: tw.In("N", constant=True), i: tw.In("N"), x: tw.InOut("N"), y: tw.Out("N")): ...


PARAMETERS = Parameter.of(kernel, [])
RECIPE = Inputs(tuple(Array((1000,), dtype) for dtype in ("float32", "float32", "int32", "float64", "float32")))


def make(seed=0, **options):
    return Arguments(PARAMETERS, RECIPE.make(), seed=seed, **options)


def test_a_draw_changes_a_few_elements_of_what_is_read_and_the_first_brings_all_back() -> None:
    arguments = make()
    made = [array.copy() for array in arguments.pristine]
    counts = set()
    for draw in range(1, 30):
        arguments.refresh(draw)
        changed = [int((array != before).sum()) for array, before in zip(arguments.pristine, made, strict=True)]
        assert changed[1] == changed[4] == 0  # a constant, and an output
        assert all(0 < changed[i] <= 32 for i in (0, 3))
        counts.add(changed[0])
    assert {1, 4} <= counts  # often only one
    assert max(counts) > 20
    arguments.refresh(0)
    assert all(np.array_equal(array, before) for array, before in zip(arguments.pristine, made, strict=True))


def test_equal_draws_are_equal_in_every_process_whatever_came_before() -> None:
    first, second = make(seed=3), make(seed=3)
    first.refresh(5)
    first.refresh(9)
    second.reset(9)
    assert all(map(np.array_equal, first.pristine, second.pristine))
    assert all(np.array_equal(first.values[i], second.values[i]) for i in range(4))
    other = make(seed=4)
    other.refresh(9)
    assert not np.array_equal(first.pristine[0], other.pristine[0])


def test_what_is_refreshed_is_what_the_launch_sees() -> None:
    arguments = make()
    arguments.values[4][:] = 1
    arguments.refresh(2)
    assert np.isnan(arguments.values[4]).all()
    assert np.array_equal(arguments.values[0], arguments.pristine[0])
    assert arguments.damage() is not None  # nothing was written to y
    arguments.values[4][:] = 1
    assert arguments.damage() is None


def test_what_launches_changed_is_restored_with_new_contents() -> None:
    arguments = make()
    arguments.values[3] += 1
    assert arguments.restorer() is not None
    arguments.refresh(6)
    assert np.array_equal(arguments.values[3], arguments.pristine[3])


def test_what_the_user_made_does_not_change() -> None:
    """It may be sorted, normalized or indices."""
    args = [np.sort(array) for array in RECIPE.make()]
    arguments = Arguments(PARAMETERS, args, structured=True)
    arguments.refresh(1)
    assert all(np.array_equal(arguments.values[i], args[i]) for i in range(4))
    assert np.isnan(arguments.values[4]).all()


def test_a_maximum_and_a_sum_change_with_the_contents() -> None:
    """A kernel that returns an old result must be seen, also one that reduces."""
    arguments = make()
    before = arguments.pristine[0].max(), arguments.pristine[0].sum()
    differs = []
    for draw in range(1, 9):
        arguments.refresh(draw)
        differs.append((arguments.pristine[0].max() != before[0], arguments.pristine[0].sum() != before[1]))
    assert sum(maximum for maximum, _ in differs) >= 2
    assert all(total for _, total in differs)


def one(x: tw.In("N")): ...


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "bool"])
def test_contents_of_small_arrays_hardly_ever_recur(dtype) -> None:
    """Otherwise a kernel that remembers results for whole inputs seems fast."""
    arguments = Arguments(Parameter.of(one, []), Inputs((Array((64,), dtype),)).make())
    seen = set()
    for draw in range(1, 1001):
        arguments.refresh(draw)
        seen.add(arguments.pristine[0].tobytes())
    assert len(seen) > 950


def test_sets_share_their_constants_at_one_address() -> None:
    first = make()
    second = Arguments(PARAMETERS, Inputs(RECIPE.args, seed=1).make(), seed=1, constants=first)
    assert second.values[1].ctypes.data == first.values[1].ctypes.data
    assert second.values[0].ctypes.data != first.values[0].ctypes.data
    assert not np.array_equal(first.values[0], second.values[0])


def test_only_an_input_can_be_constant() -> None:
    with pytest.raises(SignatureError, match="only an In can be constant"):
        tw.InOut("N", constant=True)
