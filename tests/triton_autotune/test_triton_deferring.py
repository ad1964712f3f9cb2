"""Tuning that is put off: calls that Triton's own autotuner tunes once make one search, the others are noted."""

import pytest
import torch

import tunewright as tw
from tunewright.testing.triton_driver import A30, A100, FakeDriver, fake_driver
from tunewright.triton import idle
from tunewright.triton.dispatch_key import make_dispatch_table

CONV = """
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({{"BLOCK": b}}, num_warps=1) for b in (32, 64)], key=["D"]{options})
@triton.jit
def conv(x_ptr, o_ptr, T, D, NB: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, at < T), at < T)
"""
X = torch.ones(8192)
STORM = ((1000, 1, X), (2000, 2, X), (3000, 3, X), (3008, 3, X), (3001, 3, X[1:]), (3001, 3, X[::2]))
"""Calls that differ in a constexpr, in whether 16 divides an int, in alignment and in layout."""


def storm(kernel, calls=STORM, d=64) -> list[int]:
    """Calls a kernel, and returns the block of each call."""
    blocks = []
    for t, nb, x in calls:
        kernel[(4,)](x, torch.ones(8192, dtype=x.dtype), t, d, nb)
        blocks.append(kernel.best_config.kwargs["BLOCK"])
    return blocks


def driver_with(*cards) -> FakeDriver:
    return FakeDriver(*cards, seconds=lambda launch: 1e-3 / launch.config["BLOCK"])


def searches() -> int:
    return tw.current_session().counts["searches"]


def test_calls_that_triton_tunes_once_make_one_search(written):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100)) as driver:
        assert storm(module.conv) == [64] * 6
        assert searches() == 1
        count = len(driver.launches)
        assert storm(module.conv) == [64] * 6
        assert len(driver.launches) == count + 6


def test_another_process_too_uses_the_sibling(written):
    with fake_driver(driver_with(A100)):
        storm(written(CONV.format(options="")).conv, STORM[:1])
        session = tw.configure()
        assert storm(written(CONV.format(options="")).conv) == [64] * 6
    assert session.counts["searches"] == 0


def test_another_session_does_not_use_what_an_earlier_one_decided(written, tmp_path):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100)):
        assert storm(module.conv) == [64] * 6
        tw.configure(cache=tmp_path / "other")
        with fake_driver(FakeDriver(A100, seconds=lambda launch: 1e-5 * launch.config["BLOCK"])):
            assert storm(module.conv, ((3001, 4, X[::2]), *STORM)) == [32] * 7
    assert searches() == 1


@pytest.mark.parametrize("change", ["key", "dtype", "device"])
def test_what_triton_tunes_again_is_tuned_again(written, change):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100, A30)) as driver:
        storm(module.conv, STORM[:2])
        if change == "key":
            storm(module.conv, STORM[:2], d=128)
        elif change == "dtype":
            storm(module.conv, [(1000, 1, X.half())])
        else:
            driver.set_current_device(1)
            storm(module.conv, STORM[:2])
    assert searches() == 2


def test_what_was_put_off_is_noted_and_tuned_when_idle(written):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100)):
        storm(module.conv)
        noted = list(tw.current_session().store.misses())
        assert len(noted) == 5
        assert {miss.key.kernel for miss in noted} == {"conv"}
        with idle():
            storm(module.conv, STORM[:3])
        assert searches() == 3
        storm(module.conv)
        assert searches() == 3
        assert len(list(tw.current_session().store.misses())) == 3


def test_a_kernel_that_tunes_when_idle_begins_with_the_default(written):
    module = written(CONV.format(options=', tune_on="idle"'))
    with fake_driver(driver_with(A100)) as driver:
        assert storm(module.conv) == [32] * 6
        assert (searches(), len(driver.launches)) == (0, 6)
        with idle():
            assert storm(module.conv, STORM[:1]) == [64]
        assert storm(module.conv) == [64] * 6
        assert searches() == 1


def test_a_kernel_that_never_tunes_uses_what_is_stored(written):
    with fake_driver(driver_with(A100)):
        never = written(CONV.format(options=', tune_on="never"'), name="never").conv
        with idle():
            assert storm(never) == [32] * 6
        storm(written(CONV.format(options="")).conv, STORM[:1])
        never.cache.clear()
        assert storm(never) == [64] * 6
    assert searches() == 1


def test_an_unknown_time_to_tune_is_refused(written):
    with pytest.raises(tw.TunewrightError, match="tune_on='later' is not one of 'first call', 'idle', 'never'"):
        written(CONV.format(options=', tune_on="later"'))


def test_an_int_that_is_another_at_every_call_takes_the_fast_path(written, monkeypatch):
    module, prepared = written(CONV.format(options="")), []
    with fake_driver(driver_with(A100)):
        storm(module.conv, [(number, 3, X) for number in (1000, 2000, 1, 1 << 40)])
        prepare = module.conv._prepare
        monkeypatch.setattr(module.conv, "_prepare", lambda *args: prepared.append(args) or prepare(*args))
        storm(module.conv, [(number, 3, X) for number in range(1, 200)])
        assert prepared == []
        storm(module.conv, [(1000, 3, X)], d=65)
        storm(module.conv, [(1000, 4, X)])
        assert len(prepared) == 2


def test_ints_are_told_apart_as_triton_does(written):
    params = written(CONV.format(options="")).conv._specialized
    with fake_driver(FakeDriver()):
        table = make_dispatch_table((X, X, 5, 64, 3), {}, params)

        def key(t, d=64, nb=3):
            return table.key_of((X, X, t, d, nb), {})

        classes = ([5, 7, -3, 0x7FFFFFFF], [0, 16, -32], [1], [(1 << 31) + 1], [1 << 32], [1 << 63], [(1 << 63) + 1])
        keys = [{key(value) for value in values} for values in classes]
        assert all(len(each) == 1 for each in keys)
        assert len(set.union(*keys)) == len(classes)
        assert len({key(5), key(5, d=65), key(5, nb=4)}) == 3
        by_name = make_dispatch_table((X, X), {"T": 5, "D": 64, "NB": 3}, params)
        assert by_name.key_of((X, X), {"T": 5, "D": 64, "NB": 3}) == by_name.key_of((X, X), {"T": 9, "D": 64, "NB": 3})


def test_a_kernel_is_tuned_anew_on_request_and_then_launched_so(written):
    module = written(CONV.format(options=""))
    best = {"block": 64}

    def seconds(launch):
        return 1e-4 if launch.config["BLOCK"] == best["block"] else 2e-4

    with fake_driver(FakeDriver(A100, seconds=seconds)):
        assert storm(module.conv, STORM[:1]) == [64]
        measured = tw.current_session().counts["measurements"]
        best["block"] = 32
        call = (X, torch.ones(8192), 1000, 64, 1)
        decision = module.conv.tune(*call, grid=(4,), fresh=True)
        assert decision.config["BLOCK"] == 32
        assert tw.current_session().counts["measurements"] == measured + 2
        assert storm(module.conv, STORM[:1]) == [32]
        assert tw.configure().store.get(decision.key).config["BLOCK"] == 32


def test_without_fresh_earlier_trials_are_reused(written):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100)):
        storm(module.conv, STORM[:1])
        counts = tw.current_session().counts
        measured = counts["measurements"]
        module.conv.tune(X, torch.ones(8192), 1000, 64, 1, grid=(4,))
        assert counts["measurements"] == measured
        assert counts["replayed"] == 2


def test_a_kernel_is_not_tuned_on_request_while_a_graph_is_captured(written):
    module = written(CONV.format(options=""))
    with fake_driver(driver_with(A100)) as driver:
        driver.capturing = True
        with pytest.raises(tw.TunewrightError, match="conv cannot be tuned now: a graph is being captured"):
            module.conv.tune(X, torch.ones(8192), 1000, 64, 1, grid=(4,))
