"""Parts of the drop-in: the adapter, what kernels write, copies of arguments, configs as spaces, the pretended GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tunewright as tw
from tunewright.testing.triton_driver import A100, B200, H100, MI300X, FakeDriver, pretended
from tunewright.triton import adapter
from tunewright.triton.configs import space_from_configs, space_from_knobs, triton_config
from tunewright.triton.dispatch_key import MAX_ENTRIES, make_dispatch_table
from tunewright.triton.mutated_args import mutated_parameters, tensors_to_restore
from tunewright.triton.options import AutotuneKeywords, AutotuneOptions
from tunewright.triton.snapshot import Snapshot


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
        snapshot = Snapshot([x, x])
        x.mul_(7)
        snapshot.restore()
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


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


def test_the_adapter_names_the_version_it_was_checked_on_and_passes_its_test():
    assert triton.__version__ == adapter.TESTED_VERSION
    assert adapter.self_test() == []


def test_a_version_whose_inside_is_another_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(adapter, "VERSION", "9.9.9")
    monkeypatch.setattr(adapter, "self_test", lambda: ["JITFunction has no parse"])
    adapter.require_supported.cache_clear()
    try:
        with pytest.raises(tw.TunewrightError, match=r"9\.9\.9 differs .*: JITFunction has no parse"):
            adapter.require_supported()
        monkeypatch.setattr(adapter, "self_test", list)
        adapter.require_supported()
    finally:
        adapter.require_supported.cache_clear()


def test_the_self_test_notices_what_changed(monkeypatch):
    monkeypatch.delattr(adapter.JITFunction, "run")
    monkeypatch.setattr(adapter.JITFunction, "run", lambda self, *args: None, raising=False)
    monkeypatch.setattr(adapter, "AUTOTUNE_PARAMETERS", ("configs",))
    said = " ".join(adapter.self_test())
    assert "no grid" in said
    assert "triton.autotune takes" in said


def test_marks_tell_types_and_layouts_apart_and_are_forgotten_in_the_end():
    x = torch.zeros(4, 4)
    table = make_dispatch_table((x, 1, 2.0), {"flag": True})
    with pretended(FakeDriver()):
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

    with pretended(FakeDriver(A100, seconds=seconds)) as driver:
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
    with pretended(FakeDriver(card)) as driver:
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
    with pretended(FakeDriver(MI300X)) as driver:
        assert holder.active is driver
        assert driver.get_current_target().arch == "gfx942"
    assert holder._active is before


def test_a_driver_without_events_is_timed_by_its_own_benchmark(kernels):
    with pretended(FakeDriver()) as driver:
        driver.get_device_interface = lambda: None
        module = kernels("softmax")
        kernel, grid, args, kwargs = module.calls()[0]
        kernel[grid](*args, **kwargs)
        assert len(driver.launches) == 4  # one for each config, as under stock, and the call itself
    decision = next(tw.current_session().store.decisions())
    assert decision.evidence.clock == "do_bench"


def test_only_the_adapter_imports_triton():
    root = Path(tw.__file__).parent / "triton"
    paths = [path for path in root.glob("*.py") if path.name != "adapter.py"]
    assert len(paths) > 10
    for path in paths:
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.strip().startswith(("import triton", "from triton"))], path


def test_the_typed_keywords_are_tritons_and_ours():
    typed = get_type_hints(AutotuneKeywords)
    declared = get_type_hints(AutotuneOptions)
    assert set(typed) == {*adapter.AUTOTUNE_PARAMETERS[6:], *declared}
    assert {name: typed[name] for name in declared} == declared
