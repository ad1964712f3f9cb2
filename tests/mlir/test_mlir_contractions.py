"""Batches and convolutions in blocks, rows that are prefetched, and what cannot be planned."""

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from mlir_runs import given, ran

from tunewright.errors import ScheduleError
from tunewright.mlir import compiler, payloads
from tunewright.mlir.contraction_plans import ContractionLoops, contraction_plan, why_not_contraction
from tunewright.mlir.payload import OpBody, PayloadBuilder
from tunewright.mlir.prefetch import ACCESSES, insert_prefetches
from tunewright.mlir.row_plans import row_plan
from tunewright.mlir.schedule import Schedule

BATCH = payloads.batch_matmul(3, 8, 64, 16, after="relu"), [(3, 8, 16), (3, 16, 64)]
CONV = payloads.conv2d((2, 6, 10, 8), 32, after="relu"), [(2, 6, 10, 8), (3, 3, 8, 32)]


@pytest.mark.parametrize("case", [BATCH, pytest.param(CONV, marks=pytest.mark.slow)], ids=["batch", "conv2d"])
def test_every_structure_of_a_contraction_is_right(case, tmp_path) -> None:
    payload, shapes = case
    plan = contraction_plan(payload)
    assert set(plan.structures) == {f"{pack} {nest}" for pack in ("unpacked", "packed") for nest in ("rows", "columns")}
    for name in plan.structures:
        config = {"variant": name, "mr": 4, "nr": 16, "kr": 4}
        assert config in plan.space
        inputs = given(*shapes)
        out, right = ran(payload, plan, inputs, config, tmp_path), payload.reference(*inputs)
        np.testing.assert_allclose(out, right, atol=1e-5 * np.abs(right).max(), err_msg=name)


SHARED = {
    "batch": (*BATCH, contraction_plan, {"variant": "packed rows", "mr": 4, "nr": 16, "kr": 4}),
    "conv2d": (*CONV, contraction_plan, {"variant": "packed columns", "mr": 4, "nr": 16, "kr": 4}),
    "softmax": (payloads.softmax(8, 64), [(8, 64)], row_plan, {"variant": "side by side", "mr": 1, "tj": 16}),
    "attention": (
        payloads.attention(2, 32, 16),
        [(2, 32, 16)] * 3,
        row_plan,
        {"variant": "side by side", "mr": 4, "nr": 16, "kr": 4, "tj": 16},
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_several_threads_share_the_outer_loops(name, tmp_path) -> None:
    pytest.importorskip("islpy")
    payload, shapes, make_plan, config = SHARED[name]
    inputs, right = given(*shapes), payload.reference(*given(*shapes))
    if name == "softmax":
        config = config | {"prefetch": 1}
    for threads, expected in ((1, 0), (2, 1)):
        plan = make_plan(payload, threads=threads)
        out = ran(payload, plan, inputs, config, tmp_path, threads)
        np.testing.assert_allclose(out, right, atol=1e-5 * np.abs(right).max())
        applied = compiler.apply_script(payload.text, plan.schedule(config).script())
        assert applied.count("scf.forall") == expected, threads


@pytest.mark.parametrize("name", SHARED)
def test_threads_without_a_loop_that_they_share_are_refused(name, tmp_path) -> None:
    payload, shapes, make_plan, config = SHARED[name]
    with pytest.raises(ScheduleError, match=r"no loop is shared by the 2 threads.*make the plan with threads=2"):
        ran(payload, make_plan(payload), given(*shapes), config, tmp_path, threads=2)


def test_a_batch_of_any_size_is_not_packed(tmp_path) -> None:
    payload = payloads.batch_matmul(None, 8, 64, 16, after="relu")
    plan, inputs = contraction_plan(payload), given(*BATCH[1])
    assert set(plan.structures) == {"unpacked rows", "unpacked columns"}
    assert "that of b is known only at a call" in plan.rejected["packed rows"]
    config = {"variant": "unpacked columns", "mr": 4, "nr": 16, "kr": 4}
    out, right = ran(payload, plan, inputs, config, tmp_path), payload.reference(*inputs)
    np.testing.assert_allclose(out, right, atol=1e-5 * np.abs(right).max())


def test_what_many_rows_use_is_always_packed() -> None:
    for payload in (payloads.batch_matmul(2, 128, 64, 16), payloads.conv2d((1, 18, 18, 8), 32)):
        assert set(contraction_plan(payload).structures) == {"packed rows", "packed columns"}
    assert "unpacked rows" in contraction_plan(payloads.batch_matmul(2, 128, 16, 16)).structures


def test_what_a_contraction_plan_does_not_take_is_said() -> None:
    with pytest.raises(ScheduleError, match="a contraction, and at most one"):
        contraction_plan(payloads.softmax(8, 64))
    product = payloads.batch_matmul(3, 8, 64, 16).operations[1]
    assert ContractionLoops.of(product).right_around() == [0]
    assert "does not sum products" in why_not_contraction(payloads.softmax(8, 64).operations[1])
    assert "known only at a call" in why_not_contraction(payloads.matmul(8, 64, 16).operations[1].__class__(
        "p", ("i", "j", "k"), frozenset("k"), (("a", "i,k"), ("b", "k,j"), ("c", "i,j")), ("c", "i,j"), (8, None, 16)
    ))  # fmt: skip


def test_the_next_row_of_every_array_is_prefetched_and_results_stay_the_same(tmp_path) -> None:
    payload, plan = payloads.softmax(8, 64), row_plan(payloads.softmax(8, 64))
    outs = []
    for prefetch in (0, 2):
        config = {"variant": "in order", "mr": 1, "tj": 16, "prefetch": prefetch}
        outs.append(ran(payload, plan, given((8, 64)), config, tmp_path))
    assert all((out == outs[0]).all() for out in outs)
    ir, passes, _, _ = compiler._import_torch_mlir()
    script = plan.schedule(config).script()
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(compiler.apply_script(payload.text, script))
        passes.parse(f"builtin.module({ACCESSES})").run(module.operation)
        assert insert_prefetches(ir, module) == 2
        module.operation.verify()
        text = str(module)
    assert text.count("memref.prefetch") == 2
    assert "read, locality<3>" in text
    assert "write, locality<3>" in text


def test_rows_with_nan_are_nan_and_others_are_not_disturbed(tmp_path) -> None:
    payload = payloads.softmax(3, 32)
    plan = row_plan(payload)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 32), dtype=np.float32)
    x[1, 7] = np.nan
    x[2] = -np.inf
    x[2, 3] = 5.0
    right = payload.reference(x.astype(np.float64))
    out = ran(payload, plan, [x], {"variant": "in order", "mr": 1, "tj": 16}, tmp_path)
    assert np.isnan(out[1]).all()
    np.testing.assert_allclose(out[[0, 2]], right[[0, 2]], atol=1e-6)


@pytest.mark.parametrize("by_option", [False, True], ids=["in the payload", "as an option"])
def test_exp_by_a_series_is_right_everywhere(by_option, tmp_path) -> None:
    w = PayloadBuilder("powers")
    x, y = w.input("x", 4096), w.output("y", 4096)
    body = OpBody(lambda e, v, o: e("math.exp", v[0]) if by_option else e.exp(v[0]))
    payload = w.finish(w.generic("made", "i", {x: "i"}, (y, "i"), body), np.exp)
    schedule = Schedule()
    schedule.tile(schedule.match("linalg.generic")[0], [16])
    schedule.vectorize_all()
    schedule.bufferize()
    schedule.lower()
    if by_option:
        schedule.expand_exp()
    numbers = np.linspace(-86.9, 88.7, 4096, dtype=np.float32)
    numbers[:4] = [np.nan, np.inf, -np.inf, 0.0]
    out = ran(payload, schedule, [numbers], {}, tmp_path)
    assert np.isnan(out[0])
    assert out[1:4].tolist() == [np.inf, 0.0, 1.0]
    np.testing.assert_allclose(out[4:], np.exp(numbers[4:].astype(np.float64)), rtol=2e-7)
