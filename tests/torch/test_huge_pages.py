"""Weights on huge pages: fewer addresses to look up, the same numbers."""

import copy

import pytest
import torch

from tunewright.backends.inductor import pages
from tunewright.session import Session
from tunewright.torch import compile

needs_huge = pytest.mark.skipif(not pages.size(), reason="this machine has no huge pages to give")


def huge_bytes():
    with open("/proc/self/smaps_rollup") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


@needs_huge
def test_memory_is_gathered_in_place_and_keeps_its_values():
    weight = torch.randn(1024, 4096)
    was, before, place = weight.clone(), huge_bytes(), weight.data_ptr()
    used = pages.gather([weight])
    assert used * pages.size() >= 0.5 * weight.nbytes
    assert huge_bytes() - before >= 0.5 * weight.nbytes
    assert weight.data_ptr() == place
    assert torch.equal(weight, was)


@needs_huge
def test_what_a_library_has_packed_is_gathered_too():
    assert pages.gather([torch.randn(2048, 2048).to_mkldnn()]) > 0


def test_what_has_no_memory_here_is_left_alone():
    odd = [torch.empty(0), torch.ones(3), torch.empty(4096, 4096, device="meta"), torch.eye(3).to_sparse()]
    assert pages.gather(odd) == 0


def test_a_machine_without_huge_pages_loses_nothing(monkeypatch, tmp_path):
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(pages, "_SETTINGS", tmp_path)
    pages.size.cache_clear()
    try:
        assert pages.size() == 0
        assert pages.gather([torch.randn(1024, 4096)]) == 0
    finally:
        pages.size.cache_clear()


@needs_huge
@pytest.mark.parametrize("products", ["library", "template"])
def test_frozen_weights_of_a_model_lie_on_huge_pages_where_that_was_decided(products, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)).eval()
    x = torch.randn(3, 1024)
    gained = {}
    for kind in ("small", "huge"):
        told = {"graph *": {"freezing": True, "products": products, "pages": kind}}
        session = Session(mode="frozen", store=str(tmp_path / "none.sqlite"))
        before = huge_bytes()
        with torch.no_grad():
            compiled = compile(copy.deepcopy(model), session=session, overrides=told)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        gained[kind] = huge_bytes() - before
    assert gained["huge"] >= gained["small"] + 0.5 * sum(one.nbytes for one in model.parameters())
