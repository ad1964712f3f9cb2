"""Results of kernels judged without a GPU, in Triton's interpreter (rung 3) or in the emulator."""

from pathlib import Path

import pytest
import torch

import tunewright as tw
from tunewright.triton import check
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.results import expected_by_reference
from tunewright.triton.tensors import Room

WRONG = """
import torch
import triton
import triton.language as tl
from tunewright.triton import autotune


def inputs(n):
    return {"grid": lambda meta: (triton.cdiv(n, meta["BLOCK"]),), "x_ptr": torch.ones(n), "out_ptr": torch.zeros(n),
            "n": n}


def reference(x_ptr):
    return 2 * x_ptr


@autotune([triton.Config({"BLOCK": 16, "MASK": True}), triton.Config({"BLOCK": 16, "MASK": False}),
           triton.Config({"BLOCK": 12, "MASK": True})], ["n"], inputs=inputs, reference=reference)
@triton.jit
def twice(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MASK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n if MASK else at < n - n % BLOCK
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=inside), mask=inside)
"""


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [None, "sm_80"])
def test_a_config_that_is_wrong_only_at_ragged_sizes_is_found(gpu, written):
    module = written(WRONG, name="twice_kernel")
    told = check(module.twice, gpu=gpu)
    assert [(one.shape["n"], one.wrong is None) for one in told] == [
        (32, True), (33, True), (32, True), (33, False), (32, False), (33, False),
    ]  # fmt: skip
    assert "out_ptr is wrong in 1 of 33 elements" in told[3].wrong
    assert ("it raises" if gpu is None else "power of 2") in told[4].wrong  # a block must be one


@pytest.mark.slow
def test_one_that_kills_its_process_is_blamed_and_the_others_go_on(written):
    deadly = WRONG.replace("    return {", "    import os\n    os.abort() if n == 33 else None\n    return {")
    module = written(deadly, name="deadly_kernel")
    told = check(module.twice, shapes=[{"n": 33}, {"n": 16}], configs=[0])
    assert [one.wrong is None for one in told] == [False, True]
    assert "died" in told[0].wrong


@pytest.mark.slow
def test_one_that_never_ends_is_ended_and_the_others_go_on(written):
    endless = WRONG.replace("    return {", "    import time\n    time.sleep(600 if n == 33 else 0)\n    return {")
    told = check(written(endless, name="endless_kernel").twice, [{"n": 33}, {"n": 16}], [0], seconds=30)
    assert [one.wrong for one in told] == ["it did not end within 30 s", None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["grouped_matmul", "split_k", "softmax", "inplace_update", "heuristics_inside", "modelled"]
)
def test_kernels_of_the_suite_are_right_on_small_and_ragged_shapes(kernels, name):
    module = kernels(name)
    told = check(module.calls()[0][0], configs=[0])
    assert len(told) == 2
    assert [one.wrong for one in told] == [None, None]


def test_a_kernel_without_a_reference_says_what_is_missing(kernels):
    with pytest.raises(tw.TunewrightError, match="declare reference= and inputs="):
        check(kernels("hooked").count_positive)


def test_what_was_stored_is_compared_with_what_the_reference_gives():
    out = torch.zeros(4)
    options = AutotuneOptions(reference=lambda x: 2 * x)
    expected = expected_by_reference(options, {"x": torch.ones(4), "out": out}, {"out": out}, Room(0))
    assert "out is wrong in 4 of 4 elements" in expected.mismatch({"out": out})
    out += 2
    assert expected.mismatch({"out": out}) is None


def test_what_a_type_can_hold_is_allowed():
    out = torch.full((4,), 2.01, dtype=torch.bfloat16)
    told = AutotuneOptions(reference=lambda x: 2 * x)
    assert expected_by_reference(told, {"x": torch.ones(4)}, {"out": out}, Room(0)).mismatch({"out": out}) is None
    strict = AutotuneOptions(reference=lambda x: 2 * x, tolerance=1e-4)
    assert "wrong" in expected_by_reference(strict, {"x": torch.ones(4)}, {"out": out}, Room(0)).mismatch({"out": out})


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda y: y, "takes 'y'"),
        (lambda x: (x, x), "gives 2 results, the kernel stores to 1 tensors"),
        (lambda x: {"z": x}, "gives 'z', to which the kernel does not store"),
        (lambda x: x.nonsense, "the reference raised AttributeError"),
    ],
)
def test_a_reference_that_does_not_suit_the_kernel_is_refused(reference, said):
    with pytest.raises(tw.TunewrightError, match=said):
        expected_by_reference(
            AutotuneOptions(reference=reference), {"x": torch.ones(3)}, {"out": torch.ones(3)}, Room(0)
        )


def test_the_suite_has_references_to_check_by():
    files = list((Path(__file__).parent / "kernels").glob("*.py"))
    assert sum("def reference(" in file.read_text() for file in files) >= 10


def test_a_sum_that_is_near_zero_on_some_contents_may_be_off_as_on_others():
    options, scales = AutotuneOptions(reference=lambda x: x.sum().reshape(1)), {}
    out = torch.tensor([1e-5 + 1e-6])
    expected = expected_by_reference(options, {"x": torch.tensor([3.0, 1e-5, -3.0])}, {"out": out}, Room(0))
    assert "out is wrong" in expected.mismatch({"out": out})
    expected_by_reference(options, {"x": torch.tensor([3.0, 2.0])}, {"out": out}, Room(0)).share_scales(scales)
    expected.share_scales(scales)
    assert expected.mismatch({"out": out}) is None
    assert "out is wrong" in expected.mismatch({"out": out + 1e-3})
