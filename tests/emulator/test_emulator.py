"""PTX is executed as it is defined, and what is wrong with it is found: by hand-written kernels, without Triton."""

import numpy as np
import pytest
from ptx_samples import CALL, CALLS, HEAD, LOCK, MIRROR, UNIFORM, WMMA, kernel

from tunewright.emulator import FaultKind, GridLaunch, Options, PtxError, UnsupportedInstruction, emulate
from tunewright.emulator.ptx_text import parse_module
from tunewright.emulator.sampling import choose_blocks
from tunewright.emulator.small_floats import decode, encode

TWO_WARPS = GridLaunch((1, 1, 1), (64, 1, 1), 256)


def run(body, a=None, b=None, c=None, launch=TWO_WARPS, **options):
    arrays = [np.zeros(64, np.uint32) if array is None else array for array in (a, b, c)]
    return emulate(kernel(body), launch, [*arrays, 64], Options(**options))


def kinds(done):
    return {fault.kind for fault in done.faults}


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_a_barrier_makes_the_order_of_warps_irrelevant(order) -> None:
    numbers = np.arange(64, dtype=np.uint32)
    done = run(MIRROR.replace("BARRIER", "bar.sync 0;"), numbers, order=order)
    assert not done.faults
    assert (done.arrays[2] == numbers[::-1]).all()


def test_without_the_barrier_the_results_are_wrong_and_the_race_has_its_lines() -> None:
    done = run(MIRROR.replace("BARRIER", ""), np.arange(64, dtype=np.uint32))
    assert (done.arrays[2] != np.arange(64)[::-1]).any()
    assert FaultKind.RACE in kinds(done) or FaultKind.UNINITIALIZED in kinds(done)
    race = [fault for fault in done.faults if fault.kind is FaultKind.RACE]
    assert race, "the warp that runs second reads what the first wrote, or overwrites what it read"
    assert {race[0].place.line, race[0].other.line} == {11, 13}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("ld.global.b32 %r6, [%rd5+4];", FaultKind.OUT_OF_BOUNDS),
        ("ld.global.b32 %r6, [%rd5+-4];", FaultKind.OUT_OF_BOUNDS),
        ("ld.global.b64 %rd8, [%rd5];", FaultKind.MISALIGNED),
        ("st.shared.b32 [%r5+4], %r1;", FaultKind.OUT_OF_BOUNDS),
        ("ld.shared.b32 %r6, [%r5];", FaultKind.UNINITIALIZED),
        ("setp.lt.u32 %p1, %r1, 5;\n@%p1 bra X;\nbar.sync 0;\nX:", FaultKind.DIVERGENT_BARRIER),
        ("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra X;\nbar.sync 0;\nX:\nbar.sync 1;", FaultKind.DIVERGENT_BARRIER),
        ("X:\nadd.s32 %r6, %r6, 1;\nbra X;", FaultKind.STEP_LIMIT),
        ("cp.async.ca.shared.global [%r5], [%rd5], 4;\nld.shared.b32 %r6, [%r5];", FaultKind.MISSING_WAIT),
        ("st.global.b32 [%rd3], %r1;", FaultKind.RACE),
    ],
)  # fmt: skip
def test_a_defect_is_a_fault_of_its_kind(body, kind) -> None:
    assert kind in kinds(run(body, step_limit=1000))


def test_copies_that_are_waited_for_are_no_fault() -> None:
    body = (
        "cp.async.ca.shared.global [%r5], [%rd5], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n"
        "ld.shared.b32 %r6, [%r5];\nst.global.b32 [%rd7], %r6;"
    )
    done = run(body, np.arange(64, dtype=np.uint32))
    assert not done.faults
    assert (done.arrays[2] == np.arange(64)).all()


def test_too_much_shared_memory_and_too_many_threads_are_faults() -> None:
    assert kinds(run("", launch=GridLaunch((1, 1, 1), (64, 1, 1), 200_000))) == {FaultKind.RESOURCES}
    assert kinds(run("", launch=GridLaunch((1, 1, 1), (2048, 1, 1), 0))) == {FaultKind.RESOURCES}


def test_atomics_of_all_threads_add_up_and_do_not_race() -> None:
    done = run("atom.global.add.u32 %r6, [%rd3], 1;", launch=GridLaunch((5, 1, 1), (64, 1, 1), 0), order="random")
    assert not done.faults
    assert done.arrays[2][0] == 320


def test_an_unknown_instruction_is_named_with_its_line() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"frobnicate\.b32 %r6.*PTX line 20"):
        run("frobnicate.b32 %r6, %r1;")


def test_text_that_is_no_ptx_is_refused() -> None:
    with pytest.raises(PtxError, match="not PTX"):
        emulate("hello", TWO_WARPS, [])


def test_fused_multiply_add_rounds_once() -> None:
    a = np.full(64, 1 + 2.0**-12, np.float32)
    b = np.full(64, 1 - 2.0**-12, np.float32)
    done = run(
        "ld.global.f32 %f1, [%rd5];\nld.global.f32 %f2, [%rd6];\nfma.rn.f32 %f3, %f1, %f2, 0fBF800000;\n"
        "st.global.f32 [%rd7], %f3;", a, b, np.zeros(64, np.float32),
    )  # fmt: skip
    assert (done.arrays[2] == np.float32(-(2.0**-24))).all()


@pytest.mark.parametrize(("mode", "sign"), [("rm", 0), ("rp", 1), ("rz", 0), ("rn", 0)])
def test_directed_rounding(mode, sign) -> None:
    body = f"mov.f32 %f1, 0f3F800000;\nfma.{mode}.f32 %f2, %f1, 0f32000000, %f1;\nst.global.f32 [%rd7], %f2;"
    done = run(body, c=np.zeros(64, np.float32))
    assert (done.arrays[2] == np.float32(1 + sign * 2.0**-23)).all()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("bfe.u32 %r6, %r1, 1, 3;", lambda t: t >> 1 & 7),
        ("neg.s32 %r7, %r1;\nbfe.s32 %r6, %r7, 0, 4;", lambda t: ((-t & 15) ^ 8) - 8),
        ("prmt.b32 %r6, %r1, 0, 0x4440;", lambda t: t & 255),
        ("lop3.b32 %r6, %r1, 12, 7, 0x96;", lambda t: t ^ 12 ^ 7),
        ("shfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;", lambda t: t ^ 1),
        ("shfl.sync.up.b32 %r6, %r1, 3, 0, -1;", lambda t: np.where(t % 32 < 3, t, t - 3)),
        ("neg.s32 %r7, %r1;\ndiv.s32 %r6, %r7, 7;", lambda t: -(t // 7)),
        ("mul.hi.u32 %r6, %r1, 0x80000000;", lambda t: t >> 1),
        ("clz.b32 %r6, %r1;", lambda t: np.array([32 - int(x).bit_length() for x in t])),
        ("add.cc.u32 %r7, %r1, -1;\naddc.u32 %r6, 0, 0;", lambda t: (t > 0).astype(int)),
    ],
)
def test_integer_instructions(body, expected) -> None:
    done = run(f"{body}\nst.global.b32 [%rd7], %r6;", c=np.zeros(64, np.int32))
    assert done.arrays[2].tolist() == np.asarray(expected(np.arange(64))).tolist()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_small_floats_survive_a_round_trip_and_round_to_the_nearest(kind) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = decode(kind, codes)
    finite = np.isfinite(values)
    assert (encode(kind, values[finite]) == codes[finite]).all()
    middle = (values[8] + values[9]) / 2
    assert encode(kind, np.array([middle]))[0] == 8, "ties go to the even code"


def test_counts_are_those_of_the_access_pattern() -> None:
    done = run("ld.global.b32 %r6, [%rd5];\nshl.b32 %r7, %r1, 7;\nadd.s32 %r8, %r4, %r7;\nst.shared.b32 [%r8], %r6;",
               launch=GridLaunch((1, 1, 1), (32, 1, 1), 4096))  # fmt: skip
    counts = done.counters.totals()
    assert (counts["load_requests"], counts["load_sectors"], counts["load_bytes"]) == (1, 4, 128)
    assert (counts["shared_wavefronts"], counts["shared_ideal"]) == (32, 1)


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_the_block_that_holds_a_lock_is_not_kept_waiting_by_those_that_try(order) -> None:
    done = run(LOCK, launch=GridLaunch((5, 1, 1), (64, 1, 1), 256), order=order, step_limit=2000)
    assert not done.faults
    assert (done.arrays[1][0], done.arrays[0][0]) == (5, 0)


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
@pytest.mark.parametrize(
    ("use", "races"),
    [
        ("", False),
        ("st.global.b32 [%rd7], %r6;", True),  # the number itself
        ("setp.gt.s32 %p2, %r6, 0; @%p2 st.global.b32 [%rd7], %r1;", True),  # only whether it is positive
        ("setp.gt.s32 %p2, %r6, 100; @%p2 st.global.b32 [%rd7], %r1;", True),  # only whether it is large
        ("setp.lt.s32 %p2, %r6, -100; @%p2 st.global.b32 [%rd7], %r1;", True),
        ("xor.b32 %r8, %r6, %r6; st.global.b32 [%rd7], %r8;", False),  # always 0
    ],
)
def test_a_load_that_races_in_its_block_is_a_fault_if_its_value_is_used(order, use, races) -> None:
    body = UNIFORM.replace("STORE", use)
    done = run(body, order=order)
    assert kinds(done) == ({FaultKind.RACE} if races else set())


def test_a_load_that_races_with_another_block_is_a_fault_even_if_its_value_is_not_used() -> None:
    done = run(UNIFORM.replace("STORE", ""), launch=GridLaunch((2, 1, 1), (64, 1, 1), 256))
    assert kinds(done) == {FaultKind.RACE}


@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "col")])
def test_wmma_multiplies_matrices_as_they_lie_in_memory(layouts) -> None:
    random = np.random.default_rng(0)
    left, right = (random.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    stored = [np.ascontiguousarray(m if how == "row" else m.T) for m, how in zip((left, right), layouts, strict=False)]
    body = WMMA.replace(".A.", f".{layouts[0]}.").replace(".B.", f".{layouts[1]}.").replace(".C.", f".{layouts[2]}.")
    code = kernel(body).replace("%f<9>", "%f<10>")
    one_warp = GridLaunch((1, 1, 1), (32, 1, 1), 256)
    done = emulate(code, one_warp, [*stored, np.zeros((16, 16), np.float32), 64])
    got = done.arrays[2] if layouts[2] == "row" else done.arrays[2].T
    assert not done.faults
    assert np.allclose(got, left.astype(np.float32) @ right.astype(np.float32) + 1, atol=1e-4)
    assert done.counters.totals()["tensor_operations"] == 2 * 16**3
    short = emulate(code, one_warp, [stored[0], stored[1][:-1], np.zeros((16, 16), np.float32), 64])
    assert kinds(short) == {FaultKind.OUT_OF_BOUNDS}


def test_code_of_the_toolkit_is_told_by_the_line_that_calls_it() -> None:
    body = """
.loc 2 5 1
mov.u32 %r6, 0;
.loc 3 90 5, function_name $L0, inlined_at 1 28 41
.loc 3 70 9, function_name $L1, inlined_at 3 90 5
ld.global.b32 %r6, [%rd1+4096];
"""
    files = '.file 1 "/home/me/k.cu"\n.file 2 "/home/me/include/mine.h"\n.file 3 "/opt/cuda-13.0/include/crt/mma.hpp"\n'
    module = parse_module(kernel(body) + files)
    assert [(i.place.file, i.place.line) for i in module.kernel().instructions[-3:-1]] == [("mine.h", 5), ("k.cu", 28)]


def test_lines_of_inline_assembly_are_that_of_the_source_which_has_it() -> None:
    body = """
.loc 1 7 24
// begin inline asm
.loc 1 7 24
mov.u32 %r1, 0;
.loc 1 8 24
mov.u32 %r2, 0;
// end inline asm
.loc 1 9 2
mov.u32 %r3, 0;
"""
    module = parse_module(kernel(body) + '.file 1 "/k.py"')
    assert [i.place.line for i in module.kernel().instructions[-4:-1]] == [7, 7, 9]


def with_functions(functions: str, body: str) -> str:
    return kernel(body).replace(HEAD, HEAD + functions)


def test_functions_are_called_with_registers_and_memory_of_their_own() -> None:
    numbers, nothing = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    done = emulate(with_functions(CALLS, CALL), TWO_WARPS, [numbers, nothing, nothing.copy(), 64])
    assert not done.faults
    assert (done.arrays[2] == 2 * np.where(numbers < 10, numbers**2 + 1, 10)).all()


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (CALLS.replace("retval0), plus_one", "retval0), square").replace("(param0);", "(param0, param0);"), "itself"),
        (CALLS.replace("(param0);", "(param0, param0);"), "another number of arguments"),
        (CALLS.replace(") plus_one", ") other"), "that the PTX does not define"),
    ],
)
def test_a_call_that_cannot_be_executed_is_named(functions, said) -> None:
    with pytest.raises(UnsupportedInstruction, match=said):
        emulate(with_functions(functions, CALL), TWO_WARPS, [np.zeros(64, np.uint32)] * 3 + [64])


def test_a_sample_of_blocks_has_the_corners() -> None:
    chosen = {tuple(block) for block in choose_blocks((10, 20, 1), 8, 0).tolist()}
    assert len(chosen) == 8
    assert {(0, 0, 0), (9, 0, 0), (0, 19, 0), (9, 19, 0)} <= chosen
