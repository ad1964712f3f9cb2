"""Calls: suites, files and typed sizes come to the same thing."""

import numpy as np
import pytest

from tunewright.bench.calls import OperatorCall, builtin_suites, read_suite, select_calls
from tunewright.bench.work import FLOPS, CallWork, MachineRoofline
from tunewright.errors import SignatureError
from tunewright.operators.standard import CONV2D, GEMM, STANDARD

SIZES = {
    name: tuple(dict.fromkeys(dim for parameter in one.inputs for dim in parameter.role.dims))
    for name, one in STANDARD.items()
}


def test_every_call_of_every_suite_names_the_sizes_of_its_operator() -> None:
    assert {"gpt2", "llama-7b", "moe", "resnet-50", "small"} <= set(builtin_suites())
    for name, suite in builtin_suites().items():
        assert select_calls([name], SIZES), name
        for call in suite.call:
            assert FLOPS[call.operator](**call.sizes) >= 0
            assert tuple(call.sizes) == SIZES[call.operator]


def test_the_suite_of_small_sizes_has_every_operator() -> None:
    assert {call.operator for call in builtin_suites()["small"].call} == set(STANDARD)


def test_sizes_may_be_typed_by_name_or_in_order_and_find_the_operators_that_have_as_many() -> None:
    typed = select_calls(["512x64x32"], {"gemm": SIZES["gemm"], "softmax": SIZES["softmax"]})
    assert typed == [OperatorCall("gemm", {"M": 512, "K": 64, "N": 32})]
    assert select_calls(["N=32,K=64,M=512"], {"gemm": SIZES["gemm"]}) == typed
    rows = select_calls(["64x32"], {"softmax": ("M", "N"), "reduce": ("M", "N")}, ["fp16", "bf16"])
    assert {(call.operator, call.dtype) for call in rows} == {
        ("softmax", "float16"), ("softmax", "bfloat16"), ("reduce", "float16"), ("reduce", "bfloat16")
    }  # fmt: skip


def test_the_same_call_from_two_places_is_one_with_both_counts(tmp_path) -> None:
    file = tmp_path / "calls.toml"
    file.write_text('[[call]]\noperator = "gemm"\nsizes = { M = 8, K = 8, N = 8 }\ncount = 5\n')
    (call,) = select_calls([str(file), "8x8x8"], SIZES)
    assert call.count == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "no suite and no file 'nonsense'; suites: gpt2"),
        ("1x2", "fit no operator named: gemm has M, K, N"),
        ("M=x", "cannot read the sizes"),
    ],
)
def test_shapes_that_cannot_be_read_say_what_there_is(text, said) -> None:
    with pytest.raises(SignatureError, match=said):
        select_calls([text], {"gemm": SIZES["gemm"]})


def test_a_file_that_is_no_list_of_calls_says_where_it_is_wrong(tmp_path) -> None:
    file = tmp_path / "calls.toml"
    file.write_text('[[call]]\noperator = "gemm"\nsizes = { M = "many" }\n')
    with pytest.raises(SignatureError, match=r"calls.toml is not a list of calls: .*sizes"):
        read_suite(file)
    file.write_text('[[call]]\noperator = "gemm"\nsizes = { M = 8 }\n')
    with pytest.raises(SignatureError, match="gives M; its sizes are M, K, N"):
        select_calls([str(file)], SIZES)


def test_arguments_are_the_same_each_time_and_the_last_is_for_the_result() -> None:
    call = OperatorCall("conv2d", {"I": 1, "C": 2, "H": 8, "W": 9, "F": 3, "R": 3, "S": 3})
    one, other = call.arguments(CONV2D), call.arguments(CONV2D)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert one[-1].shape == (1, 3, 6, 7)
    with pytest.raises(SignatureError, match="would be empty"):
        OperatorCall("conv2d", {"I": 1, "C": 2, "H": 2, "W": 9, "F": 3, "R": 3, "S": 3}).arguments(CONV2D)


def test_arguments_of_bfloat16_are_made_where_its_package_is() -> None:
    pytest.importorskip("ml_dtypes")
    args = OperatorCall("gemm", {"M": 4, "K": 3, "N": 2}, "bfloat16").arguments(GEMM)
    assert {array.dtype.name for array in args} == {"bfloat16"}


def test_the_roof_is_the_slower_of_memory_and_arithmetic() -> None:
    roof = MachineRoofline(((1000, 100.0), (10**9, 10.0)), {"float32": 50.0})
    assert roof.seconds(CallWork(100.0, 100), "float32") == 2.0  # computes for longer
    assert roof.seconds(CallWork(100.0, 2000), "float32") == 200.0  # from memory
    assert roof.seconds(CallWork(0.0, 500), "float32") == 5.0  # in cache, no arithmetic
    assert roof.seconds(CallWork(100.0, 100), "float16") is None
    assert roof.seconds(CallWork(None, 100), "float32") is None
