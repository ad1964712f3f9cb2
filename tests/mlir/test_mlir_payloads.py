"""Payloads and what plans make of them: right by their references, with dimensions that are known and that are not."""

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from tunewright.errors import BackendError, ScheduleError
from tunewright.mlir import Mlir, compiler, payloads
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.row_plans import row_plan
from tunewright.mlir.seeds import adapt_configs, register_configs
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import VARIANT

ROWS = {
    "softmax": (payloads.softmax(8, 64), [(8, 64)]),
    "softmax of any number of rows": (payloads.softmax(None, 64), [(5, 64)]),
    "layer norm": (payloads.layer_norm(None, 64), [(7, 64), (64,), (64,)]),
    "batch": (payloads.batch_matmul(None, 8, 32, 16, after="relu"), [(3, 8, 16), (3, 16, 32)]),
    "conv2d": (payloads.conv2d((1, 6, 10, 16), 32, after="relu"), [(1, 6, 10, 16), (3, 3, 16, 32)]),
    "attention": (payloads.attention(None, 32, 16), [(2, 32, 16)] * 3),
    "any number of rows, bias, gelu": (
        payloads.matmul(None, 64, 16, bias=True, after="gelu"),
        [(5, 16), (16, 64), (64,)],
    ),
}


def results(payload, plan, config, shapes, folder):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    right = payload.reference(*(one.astype(np.float64) for one in inputs))
    out = np.full(right.shape, 7, np.float32)
    roles = [Parameter(one.name, Out if one.written else In) for one in payload.arguments]
    kernel, backend = Kernel("k", lambda: None, tuple(roles), folder), Mlir(payload, plan)
    signature = Signature.of(kernel.parameters, [*inputs, out])
    backend.key(kernel, signature, {})
    backend.load(kernel, backend.build(kernel, config, signature))(*inputs, out)
    return out, right


@pytest.mark.parametrize("name", ROWS)
def test_every_structure_computes_what_the_reference_does(name, tmp_path) -> None:
    payload, shapes = ROWS[name]
    plan = row_plan(payload)
    found = {}
    for config in plan.space.sample(np.random.default_rng(0), 60):
        found.setdefault(config[VARIANT], config)
    assert set(found) == set(plan.structures)
    for config in found.values():
        out, right = results(payload, plan, config, shapes, tmp_path)
        np.testing.assert_allclose(out, right, atol=3e-6 * np.abs(right).max(), err_msg=str(config))


def test_sums_in_order_are_the_same_bit_for_bit_whatever_the_sizes(tmp_path) -> None:
    payload, shapes = ROWS["softmax"]
    plan = row_plan(payload)
    outs = [
        results(payload, plan, config, shapes, tmp_path)[0] for config in plan.space if config[VARIANT] == "in order"
    ]
    assert len(outs) > 1
    assert all((out == outs[0]).all() for out in outs)


@pytest.mark.parametrize(
    ("shape", "after"),
    [
        pytest.param((24, 64, 16), "relu", marks=pytest.mark.slow),
        ((13, 37, 11), "relu"),
        ((13, 9, 11), ""),
        pytest.param((1, 64, 32), "", marks=pytest.mark.slow),
    ],
)
def test_products_of_any_shape_are_right_in_every_structure(shape, after, tmp_path) -> None:
    payload = payloads.matmul(*shape, after=after)
    plan = gemm_plan(payload)
    m, n, k = shape
    assert len(plan.space.variants) >= (4 if n == 64 else 1)
    for config in register_configs(plan):
        out, right = results(payload, plan, config, [(m, k), (k, n)], tmp_path)
        np.testing.assert_allclose(out, right, atol=1e-5 * max(1, np.abs(right).max()), err_msg=str(config))


def test_what_one_payload_found_seeds_another() -> None:
    found = {"variant": "packed columns", "mr": 4, "nr": 64, "kr": 8, "nc": 128, "pk": 16}
    larger = gemm_plan(payloads.matmul(1024, 1024, 1024, after="relu"))
    assert adapt_configs(larger, [found, found]) == [found]
    odd = gemm_plan(payloads.matmul(1000, 333, 777, after="relu"))
    (seed,) = adapt_configs(odd, [found])
    assert seed in odd.space
    assert seed != found
    assert (seed["variant"], seed["mr"], seed["nr"], seed["kr"]) == ("packed columns", 4, 64, 7)
    assert adapt_configs(row_plan(payloads.softmax(8, 64)), [found]) == []


def test_a_payload_in_text_is_known_as_well_as_one_we_wrote() -> None:
    for written in (payloads.matmul(24, 64, 16, after="relu"), payloads.softmax(None, 64), ROWS["conv2d"][0]):
        read = compiler.parse_payload(written.text)
        for ours, theirs in zip(written.operations, read.operations, strict=True):
            assert (ours.kind, ours.sizes, len(ours.reductions)) == (theirs.kind, theirs.sizes, len(theirs.reductions))
        assert len(row_plan(read).space) == len(row_plan(written).space)
    product = payloads.matmul(24, 64, 16, after="relu")
    read = compiler.parse_payload(product.text, product.sizes)
    assert len(gemm_plan(read).space) == len(gemm_plan(product).space)
    with pytest.raises(ScheduleError, match=r"for linalg\.matmul of known sizes"):
        gemm_plan(payloads.softmax(8, 64))


def test_a_plan_that_fits_nowhere_says_why() -> None:
    with pytest.raises(ScheduleError, match=r"no structure of the plan fits: .*more than one register block"):
        gemm_plan(payloads.matmul(1, 3, 5)).space  # noqa: B018


def test_what_follows_a_product_is_one_of_a_few() -> None:
    with pytest.raises(BackendError, match="relu, gelu or nothing, not 'selu'"):
        payloads.matmul(8, 8, 8, after="selu")
