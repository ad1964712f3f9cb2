"""Figures of a compiled kernel and the stated model follow what is executed: caches, edges, chains, limits."""

import msgspec
import numpy as np
import pytest
from ptx_samples import kernel

from tunewright.emulator import GridLaunch, Options, emulate
from tunewright.emulator.cost_model import CardRates, block_limits, predict_seconds
from tunewright.emulator.figures import block_figures, representative_blocks
from tunewright.emulator.ptx_text import parse_module

CARD = CardRates(multiprocessors=10, ghz=1.0, dram_gbps=100)
LOAD_TWICE = "ld.global.b32 %r6, [%rd5];\nld.global.b32 %r7, [%rd5];\nst.global.b32 [%rd7], %r7;"


def figures(body, grid=(1, 1, 1), threads=64):
    arrays = [np.zeros(threads, np.uint32) for _ in range(3)]
    return block_figures(parse_module(kernel(body)), "k", GridLaunch(grid, (threads, 1, 1), 256), [*arrays, threads])


def test_a_sector_misses_the_cache_once_in_each_block_and_once_in_all() -> None:
    arrays = [np.zeros(64, np.uint32) for _ in range(3)]
    launch = GridLaunch((3, 1, 1), (64, 1, 1), 256)
    counts = emulate(kernel(LOAD_TWICE), launch, [*arrays, 64], Options(caches=True)).counters.totals()
    assert counts["load_sectors"] == 3 * 2 * 8
    assert (counts["l1_misses"], counts["l2_misses"]) == (3 * 8, 8)
    uncounted = emulate(kernel(LOAD_TWICE), launch, [*arrays, 64], Options()).counters.totals()
    assert uncounted["l1_misses"] == 0


def test_blocks_can_be_named() -> None:
    arrays = [np.zeros(64, np.uint32) for _ in range(3)]
    body = "mov.u32 %r6, %ctaid.x;\nst.global.b32 [%rd7], %r6;"
    launch = GridLaunch((9, 1, 1), (64, 1, 1), 256)
    done = emulate(kernel(body), launch, [*arrays, 64], Options(blocks=((4, 0, 0),)))
    assert (done.arrays[2] == 4).all()
    assert not done.whole


def test_edges_count_by_how_many_blocks_are_there() -> None:
    assert representative_blocks((1, 1, 1)) == {(0, 0, 0): 1}
    assert representative_blocks((10, 4, 1)) == {(4, 1, 0): 27, (9, 1, 0): 3, (4, 3, 0): 9}
    assert list(representative_blocks((1000, 1000, 1))) == [(499, 499, 0)], "few blocks at the edges are left out"
    body = "mov.u32 %r6, %ctaid.x;\nsetp.eq.u32 %p1, %r6, 3;\n@!%p1 bra X;\nst.global.b32 [%rd7], %r6;\nX:"
    stored = figures(body, grid=(4, 1, 1)).counts["store_requests"]
    assert stored == pytest.approx(2 / 4), "one block of four stores with its two warps"


def test_a_chain_of_dependent_instructions_takes_longer_than_independent_ones() -> None:
    chain = "\n".join(["add.s32 %r6, %r6, %r1;"] * 20)
    free = "\n".join(f"add.s32 %r{6 + number}, %r1, %r2;" for number in range(20))
    slow, fast = figures("mov.b32 %r6, 0;\n" + chain), figures("mov.b32 %r6, 0;\n" + free)
    assert slow.counts["warp_instructions"] == fast.counts["warp_instructions"]
    assert slow.warp_cycles > fast.warp_cycles + 50


def test_the_model_is_bound_by_what_is_slowest() -> None:
    specials = figures("\n".join(["sin.approx.f32 %f1, %f1;"] * 40))
    limits = block_limits(specials, CARD)
    assert max(limits, key=limits.__getitem__) == "special"
    moved = predict_seconds(specials, 1, CARD, bytes_moved=1e9)
    assert moved == pytest.approx(1e9 / 100e9, rel=0.01), "memory is the limit of a launch that moves a gigabyte"


def test_blocks_beyond_a_full_wave_take_another() -> None:
    one = figures("\n".join(["add.s32 %r6, %r1, %r2;"] * 50))
    full = predict_seconds(msgspec.structs.replace(one, grid=(10, 1, 1)), 1, CARD)
    more = predict_seconds(msgspec.structs.replace(one, grid=(11, 1, 1)), 1, CARD)
    assert more == pytest.approx(2 * full)
    assert predict_seconds(msgspec.structs.replace(one, repeats=3.0), 1, CARD) == pytest.approx(3 * full)
