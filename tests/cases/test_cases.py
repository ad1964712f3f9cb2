import numpy as np
import pytest

from tunewright import In, InOut, Out
from tunewright.cases.arguments import Arguments
from tunewright.cases.tolerance import Tolerance, expected_from, find_mismatch
from tunewright.errors import BackendError
from tunewright.model.signature import Parameter, layout_of, strides_of


def parameters(function):
    return Parameter.of(function, [])


def scale(a: In("N"), y: Out("N"), z: InOut("N"), alpha: float): ...


PARAMETERS = parameters(scale)
ARGS = [np.arange(4.0), np.zeros(4), np.ones(4), 2.0]


def test_arguments_are_private_copies() -> None:
    arguments = Arguments(PARAMETERS, ARGS)
    arguments.values[0][:] = 9
    arguments.values[2][:] = 9
    assert ARGS[0][1] == 1
    arguments.reset()
    assert np.array_equal(arguments.values[0], ARGS[0])
    assert np.array_equal(arguments.values[2], ARGS[2])


def test_outputs_start_poisoned() -> None:
    assert np.isnan(Arguments(PARAMETERS, ARGS).values[1]).all()

    def ints(y: Out("N")): ...

    (values,) = Arguments(parameters(ints), [np.zeros(4, np.int64)]).values
    assert (values != 0).all()


def test_damage_is_named() -> None:
    arguments = Arguments(PARAMETERS, ARGS)
    assert arguments.damage().startswith("it left 4 of 4 elements of y unwritten (if that is right, declare y as InOut")
    arguments.values[1][:3] = np.nan
    assert "it left 1 of 4 elements" in arguments.damage()
    arguments.values[1][3] = 0
    assert arguments.damage() is None
    arguments.values[0][0] = 5
    assert arguments.damage() == "it wrote to its input a"


def test_views_keep_the_order_of_strides() -> None:
    array = np.zeros((3, 5)).T

    def f(x: In): ...

    (view,) = Arguments(parameters(f), [array]).values
    assert layout_of(view.shape, strides_of(view)) == layout_of(array.shape, strides_of(array))


def test_only_what_is_read_and_changed_is_restored_between_samples() -> None:
    arguments = Arguments(PARAMETERS, ARGS)
    arguments.values[1][:] = 0
    assert arguments.restorer() is None
    arguments.values[2][:] *= 2
    restore = arguments.restorer()
    assert restore is not None
    restore()
    assert np.array_equal(arguments.values[2], ARGS[2])


def test_lists_are_restored_too() -> None:
    def f(xs): ...

    arguments = Arguments(parameters(f), [[1, 2, 3]])
    arguments.values[0].append(4)
    restore = arguments.restorer()
    assert restore is not None
    restore()
    assert arguments.values[0] == [1, 2, 3]


@pytest.mark.parametrize(
    "reference",
    [
        lambda a, z, alpha: (alpha * a, z + a),  # by name
        lambda first, second: (2.0 * first, second + first),  # the arrays it reads, in order
    ],
)
def test_a_reference_takes_what_it_names_or_the_arrays_read(reference) -> None:
    expected = expected_from(reference, PARAMETERS, ARGS)
    assert np.array_equal(expected[0], [0, 2, 4, 6])
    assert np.array_equal(expected[1], [1, 2, 3, 4])


def test_a_reference_may_work_in_place() -> None:
    def reference(a, y, z, alpha):
        y[:] = alpha * a
        z += a

    expected = expected_from(reference, PARAMETERS, ARGS)
    assert np.array_equal(expected[0], [0, 2, 4, 6])
    assert ARGS[2][1] == 1


def test_a_ufunc_is_a_reference() -> None:
    def f(a: In, b: In, c: Out): ...

    (expected,) = expected_from(np.matmul, parameters(f), [np.eye(2), np.eye(2), np.zeros((2, 2))])
    assert np.array_equal(expected, np.eye(2))


@pytest.mark.parametrize(
    ("wanted", "got", "said"),
    [
        (np.ones(4), np.ones(4), None),
        (np.ones(4, np.float32), np.ones(4, np.float32) + 1e-6, None),
        (np.ones(4), np.ones(4) + 1e-6, "wrong in 4 of 4"),
        (np.ones(4), np.array([1, 1, np.nan, 1]), r"c\[2\] is nan"),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), None),
        (np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]), "wrong in 1 of 2"),
        (np.array([0.0, 1.0]), np.array([1e-12, 1.0]), None),
        (np.array([1, 2]), np.array([1, 3]), "exactly equal"),
        (np.ones(4), np.ones(3), "has shape"),
        (np.array([True]), np.array([False]), "exactly equal"),
        ("x", "y", "the reference gives 'x'"),
        (3.0, 3.5, "wrong in 1 of 1"),
        (np.array([1e30, 1.0, 1.0]), np.array([1e30, -5.0, 1.0]), "wrong in 1 of 3"),
        (np.ones(3, np.longdouble), np.ones(3, np.longdouble) * 1.009, "wrong in 3 of 3"),
        (np.ones(3, np.complex64), np.ones(3, np.complex64) * 1j, "wrong in 3 of 3"),
    ],
)
def test_results_are_compared_by_kind(wanted, got, said) -> None:
    found = find_mismatch([wanted], {"c": got}, Tolerance())
    if said is None:
        assert found is None
    else:
        import re

        assert found is not None
        assert re.search(said, found)


def test_a_tolerance_can_be_given() -> None:
    assert find_mismatch([np.ones(4)], {"c": np.ones(4) * 1.05}, Tolerance(0.1)) is None
    assert find_mismatch([np.ones(4)], {"c": np.ones(4) * 1.5}, Tolerance(0.1))


def test_results_that_do_not_match_in_number_are_a_broken_program() -> None:
    with pytest.raises(BackendError, match="declare what the kernel writes"):
        find_mismatch([np.ones(1), np.ones(1)], {"a": np.ones(1), "b": np.ones(1), "c": np.ones(1)}, Tolerance())


def near(function, *args):
    return Tolerance.of(None, parameters(function), args)


def gemm(a: In("M", "K"), b: In("K", "N"), c: Out("M", "N")): ...


def double(x: In("N"), y: Out("N")): ...


def test_tolerance_grows_with_the_terms_summed_and_says_why() -> None:
    few, many = (
        near(gemm, np.ones((8, k), np.float32), np.ones((k, 8), np.float32), np.ones((8, 8), np.float32))
        for k in (64, 6400)
    )
    share, why = few.allowed_error(np.dtype(np.float32))
    assert many.allowed_error(np.dtype(np.float32))[0] == pytest.approx(10 * share)
    assert why == "float32, 64 terms over K"
    assert Tolerance(0.5).allowed_error(np.dtype(np.float32)) == (0.5, "as declared")
    assert near(gemm, *(np.ones((8, 8), np.float16),) * 3).allowed_error(np.dtype(np.float16))[0] == 2e-2


def test_a_large_array_is_no_excuse_for_a_wrong_element() -> None:
    large = np.ones(1 << 24, np.float32)
    assert find_mismatch([large], {"y": large * np.float32(1.005)}, near(double, large, large))


def test_what_a_dtype_cannot_hold_is_not_wrong() -> None:
    x = np.array([-90.0, 0.0, 1e4, 90.0])
    with np.errstate(over="ignore", under="ignore"):
        small = np.exp(x.astype(np.float32)), np.exp(-(x.astype(np.float32) ** 2))
        exact = np.exp(x), np.exp(-(x**2))
    for want, have in zip(exact, small, strict=True):
        assert find_mismatch([want], {"y": have}, Tolerance()) is None
    assert find_mismatch([np.array([1.0, 2.0])], {"y": np.array([np.inf, 2.0], np.float32)}, Tolerance())


def test_a_python_float_is_held_to_the_precision_it_came_from() -> None:
    x = np.ones(100, np.float32)

    def dot(x: In("N")): ...

    judged = near(dot, x)
    assert find_mismatch([1.0], {"the result": 1.000001}, judged) is None
    assert find_mismatch([1.0], {"the result": 1.001}, judged)


def test_integers_are_equal_unless_the_user_says_how_near() -> None:
    assert find_mismatch([np.array([10, 20])], {"q": np.array([10, 21])}, Tolerance())
    assert find_mismatch([np.array([10, 20])], {"q": np.array([10, 21])}, Tolerance(0.1)) is None
    assert find_mismatch([np.array([10, 20])], {"q": np.array([10, 29])}, Tolerance(0.1))


def test_references_compute_in_double_precision() -> None:
    a = np.full((4, 4), 1 / 3, np.float32)
    (precise,) = expected_from(np.matmul, parameters(gemm), [a, a, a])
    (same,) = expected_from(np.matmul, parameters(gemm), [a, a, a], precise=False)
    assert (precise.dtype, same.dtype) == (np.float64, np.float32)


def test_lists_of_arrays_can_be_arguments() -> None:
    def many(parts, y: Out("N")): ...

    arguments = Arguments(parameters(many), [[np.ones(2), np.ones(2)], np.zeros(2)])
    arguments.values[0].append(np.ones(2))
    restore = arguments.restorer()
    restore()
    assert len(arguments.values[0]) == 2


def test_a_number_is_not_close_to_infinity() -> None:
    want = np.array([np.inf, 1.0])
    assert find_mismatch([want], {"y": np.array([0.0, 1.0])}, Tolerance()) is not None
    assert find_mismatch([want], {"y": np.array([-np.inf, 1.0])}, Tolerance()) is not None
    assert find_mismatch([want], {"y": want.copy()}, Tolerance()) is None
