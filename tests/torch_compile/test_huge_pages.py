"""Weights on huge pages: fewer addresses to look up, the same numbers."""

import copy
import mmap
import re
from pathlib import Path

import pytest
import torch

from tunewright.session import Session
from tunewright.torch import compile
from tunewright.torch.inductor import huge_pages

needs_huge = pytest.mark.skipif(not huge_pages.page_size(), reason="this machine has no huge pages to give")


def on_huge_pages(tensor):
    """How many bytes of a tensor's mappings lie on huge pages; what other mappings do does not count."""
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if limits := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(limits[1], 16) < end and start < int(limits[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            found += 1024 * int(line.split()[1])
    return found


@needs_huge
def test_memory_is_gathered_in_place_and_keeps_its_values():
    room = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_DONTDUMP)  # a mapping of its own
    room.madvise(mmap.MADV_NOHUGEPAGE)  # which the kernel does not gather by itself
    weight = torch.frombuffer(room, dtype=torch.float32).normal_()
    was, place = weight.clone(), weight.data_ptr()
    assert on_huge_pages(weight) == 0
    used = huge_pages.move_to_huge_pages([weight])
    assert used * huge_pages.page_size() >= 0.5 * weight.nbytes
    assert on_huge_pages(weight) >= 0.5 * weight.nbytes
    assert weight.data_ptr() == place
    assert torch.equal(weight, was)


@needs_huge
def test_what_a_library_has_packed_is_gathered_too():
    assert huge_pages.move_to_huge_pages([torch.randn(2048, 2048).to_mkldnn()]) > 0


def test_what_has_no_memory_here_is_left_alone():
    odd = [torch.empty(0), torch.ones(3), torch.empty(4096, 4096, device="meta"), torch.eye(3).to_sparse()]
    assert huge_pages.move_to_huge_pages(odd) == 0


def test_a_machine_without_huge_pages_loses_nothing(monkeypatch, tmp_path):
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    monkeypatch.setattr(huge_pages, "_SETTINGS", tmp_path)
    huge_pages.page_size.cache_clear()
    try:
        assert huge_pages.page_size() == 0
        assert huge_pages.move_to_huge_pages([torch.randn(1024, 4096)]) == 0
    finally:
        huge_pages.page_size.cache_clear()


@needs_huge
@pytest.mark.parametrize("products", ["library", "template"])
@pytest.mark.slow
def test_frozen_weights_of_a_model_lie_on_huge_pages_where_that_was_decided(products, tmp_path, monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)).eval()
    x = torch.randn(3, 1024)
    huge_pages.page_size()  # which tries it once by itself
    moved, gained, move = [], {}, huge_pages._collapse
    monkeypatch.setattr(huge_pages, "_collapse", lambda start, length: moved.append(move(start, length)) or moved[-1])
    for kind in ("small", "huge"):
        told = {"graph *": {"freezing": True, "products": products, "pages": kind}}
        session = Session(mode="frozen", store=str(tmp_path / "none.sqlite"))
        moved.clear()
        with torch.no_grad():
            compiled = compile(copy.deepcopy(model), session=session, overrides=told)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        gained[kind] = sum(moved) * huge_pages.page_size()
    assert gained["small"] == 0
    assert gained["huge"] >= 0.5 * sum(one.nbytes for one in model.parameters())
