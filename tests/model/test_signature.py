from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunewright import In, InOut, Out
from tunewright.cases.inputs import Array, Inputs, Scalar
from tunewright.errors import SignatureError
from tunewright.kernel.buckets import Buckets
from tunewright.kernel.generated_call import generate_call
from tunewright.model.signature import CallSignature, Parameter, Signature, layout_of, strides_of


def gemm(a: In("M", "K"), b: In("K", "N"), c: Out("M", "N"), alpha: float, M: int, *, tile=1): ...  # noqa: N803


PARAMETERS = Parameter.of(gemm, ["tile"])


def reader(parameters):
    """What a cached call looks up, by a call that launches nothing."""
    made = generate_call(parameters, CallSignature.of(parameters), {}, lambda mark, args: lambda *_: mark)
    return lambda *args: made(None, *args)


def call(m=4, k=8, n=2, dtype=np.float32):
    return [np.zeros((m, k), dtype), np.zeros((k, n), dtype), np.zeros((m, n), dtype), 0.5, m]


def test_a_signature_is_text_with_named_dimensions() -> None:
    signature = Signature.of(PARAMETERS, call())
    assert signature.args == ("float32[M,K]", "float32[K,N]", "float32[M,N]", "float", "int=4")
    assert signature.dims == {"M": 4, "K": 8, "N": 2}


def test_a_float_counts_by_type_and_an_int_by_value() -> None:
    first, second = call(), call()
    second[3] = 0.25
    assert Signature.of(PARAMETERS, first) == Signature.of(PARAMETERS, second)
    count = (Parameter("count"),)
    assert Signature.of(count, [4]) != Signature.of(count, [5])


def test_contradicting_sizes_are_the_callers_mistake() -> None:
    args = call()
    with pytest.raises(SignatureError, match="M is 4 in the arrays, but 5 was given"):
        Signature.of(PARAMETERS, [*args[:4], 5])
    args[1] = np.zeros((7, 2), np.float32)
    with pytest.raises(SignatureError, match="K is 8 elsewhere but 7 in b"):
        Signature.of(PARAMETERS, args)
    with pytest.raises(SignatureError, match="5 arguments"):
        Signature.of(PARAMETERS, args[:2])
    args[1] = np.zeros(7, np.float32)
    with pytest.raises(SignatureError, match=r"declared as \[K, N\] but has 1 dimensions"):
        Signature.of(PARAMETERS, args)


def test_roles_may_be_given_in_annotated_or_not_at_all() -> None:
    def f(a: Annotated[np.ndarray, In("N")], b: InOut, c): ...

    found = Parameter.of(f, [])
    assert found[0].role is not None
    assert (found[0].role.dims, found[0].role.writes) == (("N",), False)
    assert found[1].role is not None
    assert found[2].role is None


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (np.zeros((3, 4)), "C"),
        (np.zeros((3, 4)).T, "order(1,0)"),
        (np.zeros((3, 8))[:, ::2], "order(0,1)+gaps"),
        (np.broadcast_to(np.zeros(4), (3, 4)), "order(1,0)+repeats"),
        (np.zeros((3, 1, 4)).transpose(1, 0, 2), "C"),
        (np.zeros(5), "C"),
        (np.float32(1).reshape(()), "C"),
    ],
)
def test_layouts_fall_into_classes(array, layout) -> None:
    assert layout_of(array.shape, strides_of(array)) == layout


def test_a_transposed_input_has_another_signature() -> None:
    args = call(4, 4, 4)
    turned = [args[0].T, *args[1:]]
    assert Signature.of(PARAMETERS, args) != Signature.of(PARAMETERS, turned)
    read = reader(PARAMETERS)
    assert read(*args) != read(*turned)


def test_the_fast_reader_tells_apart_what_the_signature_does() -> None:
    read = reader(PARAMETERS)
    variants = [call(), call(m=5), call(dtype=np.float64), call(m=1)]
    assert len({read(*args) for args in variants}) == 4
    # Of an argument declared as an int only the value counts, and of one declared as a float nothing.
    assert read(*call(m=1)) == read(*call(m=1)[:3], 0.25, True)


def test_the_reader_takes_undeclared_arguments_of_any_kind() -> None:
    def f(a, b, c): ...

    read = reader(Parameter.of(f, []))
    assert read([1, 2], 1, None) == read([3, 4], 1, None)
    assert len({read([1], 1, None), read([1, 2], 1, None), read([1], True, None), read(np.zeros(2), 1, "x")}) == 4


@given(st.integers(1, 10_000))
def test_a_bucket_holds_its_size(size) -> None:
    buckets = Buckets({"N": "pow2", "M": [64, 512, 4096]})
    assert size <= buckets("N", size) < 2 * size or size == 1
    assert buckets("M", size) in (64, 512, 4096)
    assert buckets("M", size) >= size or size > 4096
    assert buckets("other", size) == size


def test_bucketed_calls_share_a_signature() -> None:
    buckets = Buckets({"M": [64, 512]})
    assert Signature.of(PARAMETERS, call(m=3), buckets) == Signature.of(PARAMETERS, call(m=60), buckets)
    assert Signature.of(PARAMETERS, call(m=3), buckets).args[4] == "int=64"


def test_bad_buckets_are_refused() -> None:
    for spec in ("pow3", [], [0, 4], [1.5]):
        with pytest.raises(SignatureError, match="buckets of 'M'"):
            Buckets({"M": spec})


def test_a_recipe_makes_the_same_arguments_everywhere() -> None:
    args = call()
    args[0] = np.zeros((8, 4), np.float32).T
    recipe = Inputs.like(PARAMETERS, args, {"M": 16, "K": 8, "N": 2})
    first, second = recipe.make(), recipe.make()
    assert first[0].shape == (16, 8)
    assert layout_of(first[0].shape, strides_of(first[0])) == "order(1,0)"
    assert first[4] == 16
    for one, two in zip(first, second, strict=True):
        assert np.array_equal(one, two)


def test_a_recipe_from_sizes_alone() -> None:
    made = Inputs.of_dims(PARAMETERS[:3], {"M": 2, "K": 3, "N": 4}, "float64")
    assert made.args == (Array((2, 3), "float64"), Array((3, 4), "float64"), Array((2, 4), "float64"))
    with pytest.raises(SignatureError, match="b needs a size for N"):
        Inputs.of_dims(PARAMETERS[:3], {"M": 2, "K": 3}, "float32")
    assert Inputs.of_dims(PARAMETERS, {"M": 2, "K": 3, "N": 4}, "float32").args[3:] == (Scalar(1.0), Scalar(2))
    with pytest.raises(SignatureError, match="cannot make 'x'"):
        Inputs.of_dims((Parameter("x"),), {}, "float32")
    with pytest.raises(SignatureError, match="no value given for n"):
        Inputs.of_dims((Parameter("n", kind=int),), {}, "float32")
    assert Inputs.of_dims((Parameter("n", default=7),), {}, "float32").args == (Scalar(7),)
    assert Inputs.of_dims((Parameter("M"),), {"M": 2}, "float32").args == (Scalar(2),)


def test_no_recipe_for_what_cannot_travel() -> None:
    with pytest.raises(SignatureError, match="`inputs=` function"):
        Inputs.like((Parameter("x"),), [object()], {})
