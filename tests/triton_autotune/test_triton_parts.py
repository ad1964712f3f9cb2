"""Parts of the drop-in: the adapter, what kernels write, copies of arguments, configs as spaces, the fake driver."""

from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tunewright as tw
from tunewright.cases.tolerance import Tolerance, find_mismatch
from tunewright.testing.triton_driver import A100, B200, H100, MI300X, FakeDriver, fake_driver, pretended
from tunewright.triton import adapter, releases
from tunewright.triton.configs import space_from_configs, space_from_knobs, triton_config
from tunewright.triton.contents import CHANGED_ELEMENTS, ArgumentContents
from tunewright.triton.dispatch_key import MAX_ENTRIES, make_dispatch_table
from tunewright.triton.mutated_args import mutated_parameters, pointer_use, tensors_to_restore
from tunewright.triton.options import AutotuneKeywords, AutotuneOptions
from tunewright.triton.results import StoredResults, to_numpy
from tunewright.triton.snapshot import Snapshot
from tunewright.triton.tensors import Memories, Room, has_own_elements, same_bits, view_like


@triton.jit
def put(where, what):
    tl.store(where, what)


@triton.jit
def shifted(where, by):
    return where + by


@triton.jit
def writer(a, b, c, d, e, desc, index, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(a + at)
    place = shifted(b, tl.load(index))
    for _ in range(n):
        here = place
        place += BLOCK
        tl.store(here + at, x)
    put(what=x, where=c)
    tl.atomic_max(pointer=d, val=n)
    desc.store([0, 0], tl.zeros((BLOCK, BLOCK), tl.float32))
    y = tl.load(e)
    if n > 3:
        tl.device_print("y", y)


@triton.jit
def later(a, b, n):
    p = a
    for _ in range(n):
        tl.store(p, 1.0)
        p = b


@triton.jit
def load_place(where, by):
    return where + by


@triton.jit
def misleading(a, b):
    tl.store(load_place(a, 1), tl.load(b))


@triton.jit
def opaque(a, b, c):
    tl.inline_asm_elementwise("st.global.f32 [$1], $2;", "=r,l,f", [b, 1.0], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(c, tl.load(a))


def test_what_a_kernel_writes_is_found_through_names_loops_calls_and_methods():
    assert mutated_parameters(writer) - {"n", "BLOCK"} == {"b", "c", "d", "desc"}


def test_a_pointer_that_takes_its_place_in_a_later_round_counts():
    assert {"a", "b"} <= mutated_parameters(later)


def test_a_function_that_returns_a_pointer_is_followed_however_it_is_named():
    assert mutated_parameters(misleading) == {"a"}


def test_assembly_may_write_to_whatever_it_is_given():
    assert {"b", "c"} <= mutated_parameters(opaque)
    assert "a" not in mutated_parameters(opaque)


@triton.jit
def reader(a, b, c, d, e, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(a + at, tl.load(b + at))
    tl.atomic_add(c + at, 1.0)
    put(where=shifted(d, 1), what=1.0)
    tl.store(e + at, tl.load(e + at) + 1)


def test_what_a_kernel_only_writes_is_known():
    use = pointer_use(reader)
    assert use.mutated - use.read == {"a", "d"}
    assert {"b", "c", "e"} <= use.read


@triton.jit
def by_address(addresses, b, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    put(tl.load(addresses).to(tl.pointer_type(tl.float32)) + at, 1.0)
    tl.store(shifted(b, n) + at, 1.0)


def test_stores_to_addresses_that_come_from_no_tensor_are_known():
    assert {store & {"addresses", "b"} for store in pointer_use(by_address).stores} == {frozenset(), frozenset({"b"})}
    assert frozenset() not in pointer_use(reader).stores


def test_what_is_in_doubt_counts_as_read():
    assert {"b"} <= pointer_use(opaque).read
    assert "a" in pointer_use(misleading).mutated - pointer_use(misleading).read


def test_kernels_of_the_suite_write_what_they_write(kernels):
    expected = {
        "grouped_matmul": {"c_ptr"},
        "split_k": {"c_ptr"},
        "persistent_matmul": {"c_ptr"},
        "softmax": {"out_ptr"},
        "moe_gather": {"out_ptr"},
        "inplace_update": {"p_ptr", "m_ptr"},
        "flash_attention": {"out_ptr"},
    }
    for name, written in expected.items():
        kernel, _, args, kwargs = kernels(name).calls()[0]
        named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        assert set(tensors_to_restore(kernel, named)) == written, name


def test_tensors_in_tuples_and_descriptors_are_restored_too():
    fn = SimpleNamespace(fn=writer, arg_names=writer.arg_names)
    x, y, z = torch.zeros(1), torch.zeros(1), torch.zeros(16, 16)
    named = {"b": (x, 3), "c": y, "desc": TensorDescriptor.from_tensor(z, [16, 16]), "a": torch.zeros(2)}
    found = tensors_to_restore(fn, named)
    assert list(found) == ["b.0", "c", "desc"]
    assert found["desc"] is z


def test_a_snapshot_puts_back_and_goes_to_the_host_where_there_is_no_room(monkeypatch):
    x = torch.arange(4.0)
    for full in (False, True):
        if full:
            monkeypatch.setattr(torch.Tensor, "clone", lambda self: (_ for _ in ()).throw(RuntimeError("no memory")))
            monkeypatch.setattr(torch.Tensor, "cpu", lambda self: torch.tensor(self.tolist()))
        snapshot = Snapshot({"x": x, "y": x})
        x.mul_(7)
        snapshot.restore()
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def changed(tensor, draw, seed=1):
    """A copy of the tensor with the contents of a draw."""
    own = tensor.clone()
    contents = ArgumentContents({"x": own})
    contents.seed = seed
    contents.draw(draw)
    return own, contents


def test_a_draw_replaces_a_few_elements_by_others_of_the_tensor_and_can_be_undone():
    for x in (torch.randn(1000), torch.randn(40, 50).T, torch.randn(30, 60)[:, ::3], torch.randn(999).half()):
        own, contents = changed(x, 7)
        assert 0 < int((own != x).sum()) <= CHANGED_ELEMENTS
        assert set(own.flatten().tolist()) <= set(x.flatten().tolist())
        assert own.equal(changed(x, 7)[0])
        assert not own.equal(changed(x, 8)[0])
        assert not own.equal(changed(x, 7, seed=2)[0])
        assert changed(x, 0)[0].equal(x)
        contents.undo()
        assert own.equal(x)


@pytest.mark.parametrize("shape", [(1000,), (20, 50), (500, 1)])
@pytest.mark.parametrize("descending", [True, False])
def test_a_draw_leaves_sorted_rows_sorted(shape, descending):
    x = torch.randn(shape).sort(dim=-1 if shape[-1] > 1 else 0, descending=descending).values
    own = changed(x, 3)[0]
    assert not own.equal(x)
    assert own.equal(own.sort(dim=-1 if shape[-1] > 1 else 0, descending=descending).values)


def test_a_draw_changes_no_indices_and_nothing_that_overlaps():
    for x in (torch.arange(9), torch.ones(9, dtype=torch.bool), torch.randn(1), torch.randn(()), torch.randn(0)):
        assert not ArgumentContents({"x": x}).can_change
    assert not has_own_elements(torch.randn(3, 1).expand(3, 4))
    assert not has_own_elements(torch.randn(10).unfold(0, 4, 1))
    assert has_own_elements(torch.randn(4, 6)[::2, ::3].T)


def test_views_of_one_memory_stay_so_in_a_copy():
    whole = torch.randn(64)
    tensors = {"a": whole[4:20], "b": whole[::2], "c": torch.randn(3, dtype=torch.float64)}
    memories = Memories(tensors)
    assert (memories.of["a"], memories.is_shared("a"), memories.is_shared("c")) == (memories.of["b"], True, False)
    copies = memories.copies(Room(1000))
    a, b = (view_like(tensors[name], copies[memories.of[name]]) for name in "ab")
    assert (a.stride(), b.stride(), a.data_ptr() % 16) == ((1,), (2,), tensors["a"].data_ptr() % 16)
    a[0] = 5.0
    assert b[2] == 5.0 != whole[4]
    assert list(memories.copies(Room(100))) == [memories.of["c"]]  # the smallest first, as many as fit


def test_bits_are_compared_where_elements_are_not_equal():
    x = torch.tensor([1.0, torch.nan, 3.0, 4.0])
    assert same_bits(x, x.clone())
    assert not same_bits(x, x.double())
    assert not same_bits(x, torch.tensor([1.0, torch.nan, 3.0, 5.0]))
    assert same_bits(x[:3].clone(), x[:3])  # no whole words
    assert same_bits(torch.arange(9)[::2], torch.tensor([0, 2, 4, 6, 8]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32])
def test_a_comparison_on_the_device_says_what_one_on_the_host_says(dtype):
    generator = torch.Generator().manual_seed(0)
    verdicts = set()
    for _ in range(200):
        want = (10 * torch.randn(50, generator=generator)).to(dtype)
        have = (want.double() * (1 + 10 ** float(-6 * torch.rand(1, generator=generator)))).to(dtype)
        for tensor in (want, have):
            if dtype.is_floating_point and torch.rand(1, generator=generator) < 0.3:
                place = int(torch.randint(0, 3, (1,), generator=generator))
                tensor[place] = (torch.nan, torch.inf, -torch.inf)[int(torch.randint(0, 3, (1,), generator=generator))]
        tolerance = Tolerance(1e-3)
        device = StoredResults({"out": (want, tolerance)}, Room(0))._is_close("out", have, want, tolerance)
        host = find_mismatch([to_numpy(want)], {"out": to_numpy(have)}, tolerance) is None
        assert host or not device
        verdicts.add((device, host))
    assert {(True, True), (False, False)} <= verdicts


def test_the_former_name_of_the_fake_driver_warns():
    with pytest.warns(DeprecationWarning, match="use fake_driver"), pretended(FakeDriver()) as driver:
        assert adapter.driver_holder().active is driver


def test_launches_have_results_only_with_an_effect():
    for effect in (None, print):
        with fake_driver(FakeDriver(effect=effect)):
            assert adapter.has_results() == (effect is not None)


def hook_one(named):
    pass


def test_a_list_of_configs_is_a_space_of_exactly_these():
    configs = [
        triton.Config({"BLOCK": 64, "DTYPE": tl.float16}, num_warps=8),
        triton.Config({"BLOCK": 32, "DTYPE": None}, num_stages=1, maxnreg=128),
        triton.Config({"BLOCK": 32}, pre_hook=hook_one),
        triton.Config({"BLOCK": 32}, pre_hook=hook_one),  # said twice
        triton.Config({"BLOCK": 32}, pre_hook=lambda named: None),
    ]
    menu = space_from_configs(configs)
    assert menu.space.size == 4
    assert menu.to_triton(menu.default) is configs[0]
    assert {id(menu.to_triton(one)) for one in menu.space} == {id(configs[i]) for i in (0, 1, 2, 4)}
    assert menu.default["DTYPE"] == "fp16"


def test_adding_a_config_to_a_list_keeps_what_was_decided():
    one, two = triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32}, maxnreg=64)
    assert space_from_configs([one]).default in space_from_configs([two, one]).space


def test_a_setting_of_a_space_becomes_tritons_config():
    config = triton_config(tw.Config(BLOCK=64, num_warps=8, maxnreg=0, launch_pdl=True))
    assert (config.kwargs, config.num_warps, config.maxnreg) == ({"BLOCK": 64, "launch_pdl": True}, 8, None)
    with pytest.raises(tw.TunewrightError, match="cannot have variants"):
        space_from_knobs(tw.Space(variants=[tw.Variant("one")]))


def test_marks_tell_types_and_layouts_apart_and_are_forgotten_in_the_end():
    x = torch.zeros(4, 4)
    table = make_dispatch_table((x, 1, 2.0), {"flag": True})
    with fake_driver(FakeDriver()):
        keys = [
            table.key_of((tensor, 1, 2.0), {"flag": True}) for tensor in (x, x.T, x[:, :2], x.half(), x.view(-1)[1:])
        ]
        assert len(set(keys)) == 5
        assert table.key_of((x, 1, 2.0), {"flag": True}) == table.key_of((x, 1, 3.0), {"flag": True})
        for number in range(MAX_ENTRIES + 5):
            table.insert(number, number)
    assert len(table.entries) == MAX_ENTRIES


def test_the_driver_notes_launches_and_keeps_time():
    def seconds(launch):
        return 0.25 * launch.grid[0]

    with fake_driver(FakeDriver(A100, seconds=seconds)) as driver:
        put[(3,)](torch.zeros(1), 2.0)
        assert [(one.kernel, one.grid, one.device, one.args) for one in driver.launches] == [("put", (3, 1, 1), 0, ())]
        assert driver.now == 0.75
        assert driver.get_benchmarker()(lambda: put[(2,)](torch.zeros(1), 2.0), quantiles=(0.5, 0.2)) == [500.0] * 2
        start, end = (driver.get_device_interface().Event(enable_timing=True) for _ in range(2))
        start.record()
        driver.passed(2.0)
        end.record()
        assert start.elapsed_time(end) == 2000.0


@pytest.mark.parametrize("card", [H100, B200, MI300X])
def test_cards_of_any_maker_compile_launch_and_have_a_key(kernels, card):
    with fake_driver(FakeDriver(card)) as driver:
        kernel, grid, args, kwargs = kernels("modelled").calls()[0]
        kernel[grid](*args, **kwargs)
        assert driver.launches
    key = next(iter(list(tw.current_session().store.keys())))
    assert (key.device.model, key.device.limits["processors"]) == (card.name, card.processors)
    assert key.device.architecture == (card.arch if isinstance(card.arch, str) else f"sm_{card.arch}")
    assert len(key.toolchain) == 3


def test_afterwards_triton_has_what_it_had():
    from triton.runtime.driver import driver as holder

    before = holder._active
    with fake_driver(FakeDriver(MI300X)) as driver:
        assert holder.active is driver
        assert driver.get_current_target().arch == "gfx942"
    assert holder._active is before


def test_a_driver_without_events_is_timed_by_its_own_benchmark(kernels):
    with fake_driver(FakeDriver()) as driver:
        driver.get_device_interface = lambda: None
        module = kernels("softmax")
        kernel, grid, args, kwargs = module.calls()[0]
        kernel[grid](*args, **kwargs)
        assert len(driver.launches) == 4  # one for each config, as under stock, and the call itself
    decision = next(tw.current_session().store.decisions())
    assert decision.evidence.clock == "do_bench"


def test_only_the_adapter_and_its_self_test_import_triton():
    root = Path(tw.__file__).parent / "triton"
    paths = [path for path in root.glob("*.py") if path.name not in ("adapter.py", "releases.py")]
    assert len(paths) > 10
    for path in paths:
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.strip().startswith(("import triton", "from triton"))], path


def test_the_typed_keywords_are_tritons_and_ours():
    typed = get_type_hints(AutotuneKeywords)
    declared = get_type_hints(AutotuneOptions)
    assert set(typed) == {*releases.AUTOTUNE_PARAMETERS[6:], *declared}
    assert {name: typed[name] for name in declared} == declared


def test_a_checked_dispatch_key_is_for_these_types_alone() -> None:
    with fake_driver(FakeDriver(A100)):
        x = torch.ones(8)
        table = make_dispatch_table((x, 1, 2.0), {})
        assert table.checked_key_of((x, 1, 5.0)) == table.key_of((x, 1, 5.0), {}) is not None
        for other in ((x, True, 2.0), (x, 1.0, 2.0), (x, 1, 2), (x.numpy(), 1, 2.0)):
            assert table.checked_key_of(other) is None
        with pytest.raises(ValueError, match="unpack"):
            table.checked_key_of((x, 1))
        assert make_dispatch_table((x,), {"n": 1}).checked_key_of((x,)) is None


def test_layouts_and_alignments_of_each_tensor_are_in_the_key() -> None:
    with fake_driver(FakeDriver(A100)):
        x, y = torch.ones(64, 4), torch.ones(257)
        calls = [(x, y), (x.T, y), (x, y[1:]), (x, y[4:]), (x[:, ::2], y), (x[::2], y), (y[1:], x), (y[:256], x)]
        table = make_dispatch_table(calls[0], {})
        keys = [table.key_of(call, {}) for call in calls]
    assert keys[3] == keys[0] == keys[7]  # contiguous, aligned, of one dtype
    assert len(set(keys)) == len(keys) - 2
