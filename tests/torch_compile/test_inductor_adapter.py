"""What of PyTorch's inside is used is in one file, which knows when it no longer fits."""

import logging
import re
from pathlib import Path

import pytest
import torch

import tunewright
from tunewright.errors import PluginError
from tunewright.torch import doctor
from tunewright.torch.inductor import adapter, releases

ROOT = Path(tunewright.__file__).parent


@pytest.fixture
def another_release(monkeypatch):
    monkeypatch.setattr(adapter, "VERSION", "2.99.0")
    releases.require_supported.cache_clear()
    yield
    releases.require_supported.cache_clear()


checked = pytest.mark.skipif(
    adapter.VERSION not in adapter.TESTED_VERSIONS,
    reason=f"the adapter was tested on torch {', '.join(adapter.TESTED_VERSIONS)}; {adapter.VERSION} is installed",
)


@checked
def test_the_self_test_passes_on_the_checked_release():
    assert set(releases.self_test().values()) == {""}


def test_a_missing_hook_is_named_with_what_it_is_for_and_what_still_works(another_release, monkeypatch):
    monkeypatch.delattr(torch._inductor.utils, "fresh_cache")
    with pytest.raises(PluginError) as error:
        doctor(torch.sin, torch.ones(2), backend="eager")
    said = str(error.value)
    assert "no torch._inductor.utils.fresh_cache, which is needed for inert options" in said
    assert "still works: graph breaks, recompilations, caches and phases" in said
    assert f"Install torch=={adapter.TESTED_VERSIONS[-1]}" in said


def test_a_channel_that_says_nothing_any_more_is_noticed(another_release, monkeypatch):
    import torch._logging._internal as inside

    monkeypatch.setattr(inside, "trace_log", logging.getLogger("silence"))
    with pytest.raises(PluginError, match="the trace has no dynamo_graph_break_reason"):
        releases.require_supported()


@checked
def test_a_hook_that_is_gone_from_the_checked_release_is_named_when_it_is_needed(monkeypatch):
    monkeypatch.delattr(torch._logging._internal, "trace_log")
    with pytest.raises(PluginError, match=r"has no torch\._logging\._internal\.trace_log"):
        doctor(torch.sin, torch.ones(2), backend="eager")


def test_the_channel_is_left_as_it_was():
    before = list(logging.getLogger("torch.__trace").handlers)
    with adapter.capture_records():
        assert len(logging.getLogger("torch.__trace").handlers) == len(before) + 1
    assert logging.getLogger("torch.__trace").handlers == before


def test_a_release_that_was_not_checked_is_used_if_it_passes_and_refused_by_name_if_not(another_release, caplog):
    wrong = [said for said in releases.self_test().values() if said]
    if wrong:
        with pytest.raises(PluginError, match=f"Install torch=={adapter.TESTED_VERSIONS[-1]}") as error:
            releases.require_supported()
        assert all(said in str(error.value) for said in wrong)
    else:
        with caplog.at_level(logging.WARNING):
            releases.require_supported()
        assert "2.99.0 is used since it passes the self-test" in caplog.text


def test_what_was_compiled_is_found_with_how_it_was():
    linear = torch.nn.Linear(2, 2)
    assert adapter.unwrap_compiled(torch.compile(linear, options={"freezing": True})) == (
        linear,
        {"options": {"freezing": True}},
    )

    def twice(x):
        return 2 * x

    fn, how = adapter.unwrap_compiled(torch.compile(twice, dynamic=True, backend="eager"))
    assert fn is twice
    assert how["dynamic"] is True
    assert callable(how["backend"])
    assert adapter.unwrap_compiled(linear) == (linear, {})


def test_nobody_else_imports_a_private_part_of_torch():
    for path in ROOT.rglob("*.py"):
        if path.name != "adapter.py":
            lines = [line for line in path.read_text().splitlines() if re.match(r"\s*(from|import) torch\._", line)]
            assert not lines, path
    for path in (ROOT / "torch").rglob("*.py"):
        code = re.sub(r'"[^"\n]*"|`[^`\n]*`', "", path.read_text())
        assert not re.search(r"torch\._[a-z]", code), path
