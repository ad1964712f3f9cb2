"""What shipped code takes for granted is compared before anything of it is believed; each difference is named."""

import msgspec
import pytest
import torch

from tunewright.torch import compatibility

BEFORE = """
import torch

class Small(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        return y + 1
"""


def loaded(folder, text, name="small"):
    import importlib.util

    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{name}_{folder.name}", path)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def named(made, now):
    return {one.name: one for one in compatibility.differences(made, now)}


def test_nothing_differs_from_itself():
    model = torch.nn.Linear(2, 2)
    assert compatibility.differences(compatibility.current(model), compatibility.current(model)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch", "2.99.0"),
        ("machine", "Linux aarch64"),
        ("capability", "AVX2"),
        ("processor", "another"),
        ("processor", "Some Maker(R) Some Processor @ 2.50GHz family 6 model 85 stepping 7"),
        ("threads", 7),
    ],
)
def test_each_difference_is_named_with_both_sides_and_a_remedy(name, value):
    now = compatibility.current()
    found = named(msgspec.structs.replace(now, **{name: value}), now)
    assert set(found) == {name}
    assert found[name].there == str(value)
    assert found[name].here == str(getattr(now, name))
    assert found[name].remedy


def test_instructions_that_are_not_offered_here_are_named_and_more_than_was_used_is_no_difference():
    now = compatibility.current()
    assert named(msgspec.structs.replace(now, isa=(*now.isa, "avx1024")), now)["isa"].there == "avx1024"
    assert named(msgspec.structs.replace(now, isa=now.isa[:1]), now) == {}


def test_what_pytorch_is_told_to_use_counts_not_only_what_the_processor_offers(monkeypatch):
    made = compatibility.current()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert set(named(made, compatibility.current())) == {"capability"}


def test_a_changed_line_of_source_is_named_by_its_number(tmp_path):
    for name in ("was", "is"):
        (tmp_path / name).mkdir()
    was = loaded(tmp_path / "was", BEFORE).Small()
    now = loaded(tmp_path / "is", BEFORE.replace("y + 1", "y + 2")).Small()
    found = named(compatibility.current(was), compatibility.current(now))
    assert set(found) == {"source"}
    assert "Small" in found["source"].there
    assert "from its line 4 on (small.py)" in found["source"].here


def test_a_line_that_only_moved_is_no_difference(tmp_path):
    for name in ("was", "is"):
        (tmp_path / name).mkdir()
    was = loaded(tmp_path / "was", BEFORE).Small()
    now = loaded(tmp_path / "is", "\n\n# a remark\n" + BEFORE).Small()
    assert named(compatibility.current(was), compatibility.current(now)) == {}


def test_source_is_kept_as_digests_and_a_file_name():
    class Secret(torch.nn.Module):
        def forward(self, x):
            return x * 1234567

    said = msgspec.json.encode(compatibility.current(Secret())).decode()
    assert "1234567" not in said
    assert "/" not in next(iter(compatibility.current(Secret()).sources.values())).file


def test_changed_weights_are_told_from_the_same(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(torch.bfloat16)
    made = compatibility.current(model)
    assert named(made, compatibility.current(model)) == {}
    with torch.no_grad():
        model[0].bias[1] += 1
    assert set(named(made, compatibility.current(model))) == {"weights"}


def test_without_a_model_neither_source_nor_weights_are_compared():
    assert named(compatibility.current(torch.nn.Linear(2, 2)), compatibility.current()) == {}


def test_the_tag_of_caches_changes_with_what_pytorch_may_use(monkeypatch):
    before = compatibility.cache_tag()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert compatibility.cache_tag() != before
