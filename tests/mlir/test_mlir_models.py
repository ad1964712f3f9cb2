"""Payloads from files, as torch-mlir exports them: read, planned, right, and refused with their line."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from mlir_runs import given, ran

from tunewright.errors import BackendError
from tunewright.mlir import compiler
from tunewright.mlir.epilogues import EpilogueChain, epilogue_chain
from tunewright.mlir.model_plans import AS_WRITTEN, model_plan, shared_loop
from tunewright.mlir.models import kernel_source, read_model
from tunewright.mlir.payload import LinalgOp, PlacedOp
from tunewright.mlir.script import TransformScript
from tunewright.mlir.step_texts import explain_script

FOLDER = Path(__file__).parents[2] / "benchmarks" / "mlir_models"
KNOBS = {"mr": 4, "nr": 16, "kr": 4, "tj": 16}


def smaller(name, sizes):
    """The text of an exported model with smaller sizes."""
    text = (FOLDER / f"{name}.mlir").read_text()
    for old, new in sizes.items():
        text = re.sub(rf"(?<=[<x]){old}x", f"{new}x", text)
    return text


def inputs_of(payload):
    return given(*(one.shape for one in payload.arguments if not one.written))


def test_an_exported_mlp_is_right_and_its_schedule_is_read_back(tmp_path) -> None:
    payload = read_model(smaller("mlp", {128: 8, 256: 16, 512: 32}))
    x, first, first_bias, second, second_bias = inputs = inputs_of(payload)
    right = np.maximum(x @ first.T + first_bias, 0) @ second.T + second_bias
    plan = model_plan(payload)
    assert list(plan.structures) == [AS_WRITTEN, "tiled", "packed"]
    assert plan.default in plan.space
    for name in (AS_WRITTEN, "packed"):
        out = ran(payload, plan, inputs, {"variant": name, **KNOBS}, tmp_path)
        np.testing.assert_allclose(out, right, atol=1e-4, err_msg=name)
    script = TransformScript.parse(str(plan.schedule({"variant": "packed", **KNOBS})))
    assert (ran(payload, script, inputs, {}, tmp_path) == out).all()
    said = "\n".join(explain_script(script))
    assert "run the pass linalg-fuse-elementwise-ops" in said
    assert "copy operands into panels of [0, 16, 0]" in said
    assert "put tensors into buffers" in said
    assert "transform." not in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "layer_norm", "attention", "transformer_block", "resnet_block"])
def test_every_structure_of_exported_models_computes_what_is_written(name, tmp_path) -> None:
    payload = read_model((FOLDER / f"{name}.mlir").read_text())
    plan = model_plan(payload)
    inputs = [one * np.float32(0.1) for one in inputs_of(payload)]
    right = ran(payload, plan, inputs, plan.default, tmp_path)
    assert len(plan.structures) > 1
    for structure in plan.structures:
        out = ran(payload, plan, inputs, {"variant": structure, **KNOBS}, tmp_path)
        np.testing.assert_allclose(out, right, atol=2e-5 * np.abs(right).max(), err_msg=structure)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "layer_norm", "attention", "transformer_block", "resnet_block"])
def test_threads_share_the_large_operations_of_exported_models(name, tmp_path) -> None:
    payload = read_model((FOLDER / f"{name}.mlir").read_text())
    plan = model_plan(payload, threads=2)
    inputs = [one * np.float32(0.1) for one in inputs_of(payload)]
    right = ran(payload, plan, inputs, plan.default, tmp_path, threads=2)
    for structure in plan.structures:
        config = {"variant": structure, **KNOBS, "epilogue": True}
        out = ran(payload, plan, inputs, config, tmp_path, threads=2)
        np.testing.assert_allclose(out, right, atol=2e-5 * np.abs(right).max(), err_msg=structure)
        applied = compiler.apply_script(payload.text, plan.schedule(config).script())
        assert ("scf.forall" in applied) is (structure != AS_WRITTEN), structure


@pytest.mark.parametrize("name", ["resnet_block", "layer_norm"])
def test_structures_that_keep_the_order_of_additions_keep_their_bits(name, tmp_path) -> None:
    payload = read_model((FOLDER / f"{name}.mlir").read_text())
    plan, inputs = model_plan(payload), inputs_of(payload)
    kept = [variant.name for variant in plan.space.variants if not variant.numerics and variant.name != AS_WRITTEN]
    assert kept == ["tiled"]
    assert "tiled reassociated" in plan.structures
    knobs = [{"mr": 4, "nr": 16, "kr": 2, "tj": 16}, {"mr": 8, "nr": 16, "kr": 8, "tj": 64, "epilogue": True}]
    first, second = (ran(payload, plan, inputs, {"variant": "tiled", **one}, tmp_path) for one in knobs)
    assert (first == second).all()


def test_threads_share_no_columns_sums_or_short_operations() -> None:
    loops, reads = ("b", "i", "j", "k"), (("x", "b,i,k"), ("y", "k,j"))
    op = LinalgOp("o", loops, frozenset("k"), reads, ("z", "b,i,j"), (1, 64, 128, 256))
    assert shared_loop(op, 2) == 1
    assert shared_loop(op, 1) is None
    assert shared_loop(replace(op, sizes=(1, 63, 128, 256)), 2) is None
    assert shared_loop(replace(op, sizes=(1, 4, 8, 16)), 2) is None
    assert shared_loop(replace(op, sizes=(None, 64, 128, 256)), 2) is None


def test_mistakes_in_a_file_are_told_with_their_line() -> None:
    text = smaller("mlp", {})
    line = next(i for i, one in enumerate(text.splitlines(), 1) if "linalg.matmul" in one)
    broken = text.replace("linalg.matmul", "linalg.matmuls", 1)
    with pytest.raises(BackendError, match=rf"^model\.mlir, line {line}, is no valid MLIR: .*linalg\.matmuls"):
        read_model(broken, "model.mlir")
    with pytest.raises(BackendError, match=r"argument %arg0 is tensor<4xi64>; arrays are tensors of f32, bf16"):
        read_model("func.func @f(%a: tensor<4xi64>) -> tensor<4xi64> { return %a : tensor<4xi64> }")
    with pytest.raises(BackendError, match="has no function on tensors"):
        read_model("module {}")
    unknown = """
      func.func @f(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %r = linalg.softmax dimension(1) ins(%a : tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) -> tensor<4x8xf32>
        return %r : tensor<4x8xf32>
      }"""
    with pytest.raises(BackendError, match=r"line \d+: the loops of linalg\.softmax are unknown; write it as"):
        read_model(unknown)


def test_a_file_becomes_a_kernel_in_python(tmp_path) -> None:
    path = tmp_path / "mlp.mlir"
    path.write_text(smaller("mlp", {128: 8, 256: 16, 512: 32}))
    source = kernel_source(path, read_model(path.read_text()))
    assert "arg0: tw.In('D8', 'D16')" in source
    assert "numerics=[]" in source
    made: dict = {"__name__": "made"}
    exec(compile(source, "made.py", "exec"), made)
    assert made["mlp"].default == {"variant": AS_WRITTEN}
    assert made["mlp"].backend.threads == 1
    exec(compile(kernel_source(path, read_model(path.read_text()), threads=2), "made.py", "exec"), made)
    assert made["mlp"].backend.threads == 2


def test_only_what_reads_a_product_alone_and_element_by_element_follows_it_in_blocks() -> None:
    loops = ("i", "j", "k")
    start = PlacedOp(LinalgOp("zero", ("i", "j"), frozenset(), (), ("zero", "i,j"), (8, 16), "linalg.fill"))
    reads = (("x", "i,k"), ("y", "k,j"), ("zero", "i,j"))
    product = PlacedOp(LinalgOp("ab", loops, frozenset("k"), reads, ("ab", "i,j"), (8, 16, 32)))

    def after(name, *reads, sizes=(8, 16), reductions=""):
        return PlacedOp(LinalgOp(name, ("i", "j"), frozenset(reductions), reads, (name, "i,j"), sizes))

    bias, relu = after("bias", ("ab", "i,j"), ("b", "j")), after("relu", ("bias", "i,j"))
    assert epilogue_chain([start, product, bias, relu], 1, {}) == EpilogueChain((3, 2), 1, 0)
    assert epilogue_chain([start, product, bias, relu, after("again", ("bias", "i,j"))], 1, {}) == EpilogueChain(
        (2,), 1, 0
    )
    assert epilogue_chain([start, product, after("turned", ("ab", "j,i"), sizes=(16, 8))], 1, {}) is None
    assert epilogue_chain([start, product, after("square", ("ab", "i,j"), ("ab", "i,j"))], 1, {}) is None
    assert epilogue_chain([start, product, after("part", ("ab", "i,j"), sizes=(8, 8))], 1, {}) is None
    assert epilogue_chain([start, product, after("total", ("ab", "i,j"), reductions="j")], 1, {}) is None
    assert epilogue_chain([start, replace(product, escapes=True), bias], 1, {}) is None
    unpacked = after("bias", ("plain", "i,j"), ("b", "j"))
    assert epilogue_chain([start, product, unpacked], 1, {"plain": "ab"}) == EpilogueChain((2,), 1, 0, unpacked=0)
