"""What is known of a config before it is compiled."""

import numpy as np
import pytest
import sample_kernels as kernels

import tunewright as tw
from tunewright.errors import SettingsError
from tunewright.triton.static import call_arguments
from tunewright.triton.static.artifacts import CompileRecord
from tunewright.triton.static.calibration import CalibrationScore, RegisterLimit, fit_register_limit
from tunewright.triton.static.features import compiled_features
from tunewright.triton.static.kernels import unwrap_kernel
from tunewright.triton.static.model import NO_MODEL, ResourceCheck, ResourceModel
from tunewright.triton.static.requirements import MatrixEngine
from tunewright.triton.static.resources import CompiledResources
from tunewright.triton.static.targets import find_target
from tunewright.triton.static.tiles import Origin, read_tiles

SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}
HUGE = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 2, "num_stages": 4}


def read(kernel, text, **constants):
    args, named = call_arguments.parse_arguments(text)
    return read_tiles(kernel, {**dict(zip(kernel.arg_names, args, strict=False)), **named, **constants})


def model(name="sm_80", kernel=kernels.product, text=kernels.PRODUCT):
    return ResourceModel(unwrap_kernel(kernel), find_target(name), call_arguments.parse_arguments(text))


def test_a_dot_is_found_with_its_blocks_and_their_types():
    (dot,) = read(kernels.product, kernels.PRODUCT, BLOCK_M=128, BLOCK_N=64, BLOCK_K=32).dots
    assert (dot.m, dot.n, dot.k, dot.left.bits, dot.right.bits) == (128, 64, 32, 16, 16)
    assert dot.left.origin is Origin.STREAMED
    assert dot.carried == "product.total"


def test_functions_that_a_kernel_calls_are_followed_and_branches_not_taken_are_not():
    for twice in (False, True):
        found = read(kernels.scores, "*fp16,*fp16,*fp32,i32", ROWS=64, COLUMNS=128, TWICE=twice)
        assert [(dot.m, dot.n, dot.k) for dot in found.dots] == [(64, 64, 128)] * (1 + twice)
        assert found.dots[0].left.origin is Origin.LOADED
        assert found.dots[0].right.origin is Origin.STREAMED


def test_a_block_that_is_reduced_and_used_again_must_be_whole():
    assert read(kernels.softmax, "*fp32,*fp32,i32,i32", BLOCK=1024).held_bits == 32 * 1024
    assert read(kernels.summed, "*fp32,*fp32", BLOCK=1024).held_bits == 0
    said = model(kernel=kernels.softmax, text="*fp32,*fp32,i32,i32").objections({"BLOCK": 1 << 16, "num_warps": 4})
    assert said == ["its largest block needs 512 registers per thread; it spills from 224 of 255"]


def test_a_hopeless_config_is_told_why_in_numbers():
    said = model().objections(HUGE)
    assert said[0].startswith("accumulators need 1024 registers per thread and operands 256")
    assert said[0].endswith("it spills from 224 of 255")
    assert "196,608 bytes of shared memory per block; sm_80 has 166,912" in said[1]
    assert not model().objections(SMALL)


@pytest.mark.parametrize(
    ("name", "warps", "engine", "operands"),
    [("sm_80", 4, "mma", 32), ("sm_90", 4, "wgmma", 0), ("sm_90", 2, "mma", 64), ("sm_100", 4, "tcgen05", 0),
     ("gfx942", 4, "mfma", 16)],
)  # fmt: skip
def test_what_multiplies_says_whether_operands_take_registers(name, warps, engine, operands):
    needs = model(name).estimate({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": warps})
    assert needs.engine is MatrixEngine(engine)
    assert needs.operands == operands


def test_accumulators_that_leave_no_tensor_memory_are_dropped():
    config = {"BLOCK_M": 256, "BLOCK_N": 512, "BLOCK_K": 16, "num_warps": 32, "num_stages": 2}
    assert "accumulators need 1024 tensor-memory columns; sm_100 has 512" in model("sm_100").objections(config)


def test_stages_are_counted_as_the_compiler_buffers_them():
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}
    assert model("sm_80").estimate(config).shared == 2 * 8192
    assert model("sm_90").estimate(config).shared == 3 * 8192


def test_a_kernel_whose_blocks_cannot_be_told_has_no_model_and_loses_nothing():
    plain = model(kernel=kernels.added, text="*fp32,*fp32,1024")
    assert plain.explain({"BLOCK": 128}) == NO_MODEL
    assert not plain.objections({"BLOCK": 1 << 20})


def test_a_person_can_read_it():
    text = model().explain(HUGE)
    assert "dot 256 x 256 x 64, 16 by 16 bits" in text
    assert "hopeless: accumulators need 1024" in text
    assert model().explain(SMALL).endswith("worth compiling")


def test_checks_can_be_switched_off_and_added():
    assert not model().without_checks("registers", "shared").objections(HUGE)
    with pytest.raises(SettingsError, match="known: clusters"):
        model().without_checks("speed")
    wide = ResourceCheck(
        "wide", "columns first", lambda needs, place, room: "too tall" if needs.accumulators > 10 else ""
    )
    assert model().with_checks(wide).objections(SMALL) == ["too tall"]


def test_it_is_a_rule_of_a_space_and_a_figure_to_learn_from():
    knobs = [tw.Knob(name, sorted({SMALL[name], HUGE[name]})) for name in SMALL]
    space = model().narrow(tw.Space(*knobs))
    assert tw.Config(SMALL) in space
    assert space.objections(HUGE) == [
        "accumulators and operands fit in registers",
        "operands of all stages fit in shared memory",
    ]
    row = space.feature_matrix(space.codes()[[space.index(SMALL)]])[0]
    assert row.tolist() == [32.0, 16.0, 16384.0, 0.0]


def test_what_compiles_told_is_a_figure_too():
    taken = CompiledResources(96, 0, 16384, 0, 16, 8320, 0.3125)
    label = CompileRecord("ab" * 32, "product", "sm_80", {**SMALL, "num_ctas": 1}, "3.9.0", {}, 1.0, 1.0, taken)
    knobs = [tw.Knob(name, sorted({SMALL[name], HUGE[name]})) for name in SMALL]
    space = tw.Space(*knobs, features=compiled_features([label], list(SMALL)))
    known, unknown = space.feature_matrix(space.codes()[[space.index(SMALL), space.index(HUGE)]])
    assert known.tolist() == [96, 0, 16384, 16, 8320, 0.3125]
    assert np.isnan(unknown).all()


def test_the_limit_is_the_least_need_from_which_on_all_samples_spilled():
    assert fit_register_limit([(100, True), (176, False), (200, True), (300, True)]) == RegisterLimit(200.0, 4)


def test_samples_that_cannot_tell_a_limit_are_refused():
    with pytest.raises(SettingsError, match="compile other configs"):
        fit_register_limit([(100, False), (200, False)])
    with pytest.raises(SettingsError, match="does not fit this kernel"):
        fit_register_limit([(100, True), (200, False)])


def test_a_calibrated_limit_moves_the_verdict():
    config = {**SMALL, "BLOCK_M": 128, "BLOCK_N": 128}
    assert not model().with_limit(RegisterLimit(188.0)).objections(config)
    assert model().with_limit(RegisterLimit(100.0)).objections(config)


def test_the_error_is_counted_both_ways():
    score = CalibrationScore.from_verdicts([(True, True), (True, False), (False, True), (False, False)])
    assert (score.precision, score.recall) == (0.5, 0.5)
    assert CalibrationScore.from_verdicts([(False, False)]).precision is None
    assert str(score) == "precision 50%, recall 50% on 4 other samples"
