"""Triton without a GPU: a fake driver, one cache of compiled kernels for the session, kernels loaded afresh."""

import importlib.util
import os
import sys
from itertools import count
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"

if not all(map(importlib.util.find_spec, ("torch", "triton"))):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """Kernels are compiled once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", os.environ.get("TRITON_CACHE_DIR") or str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # said, or Triton warns
        yield


def load(path: Path, patch: pytest.MonkeyPatch, name: str, *, ours: bool):
    """A module with Triton kernels, executed afresh, with Triton's own decorator or with ours in its place."""
    from tunewright.triton import installed

    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    patch.syspath_prepend(path.parent)
    if ours:
        with installed():
            spec.loader.exec_module(module)
    else:
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def kernels(monkeypatch):
    """Loads a kernel file of the suite by name: `kernels("softmax", ours=True)`."""
    return lambda name, ours=True: load(KERNELS / f"{name}.py", monkeypatch, name, ours=ours)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Loads kernels from text."""

    number = count()

    def loaded(text, ours=True, name="written_kernel"):
        # In a folder of its own: written within a second, files of one length would share their bytecode.
        path = tmp_path / f"written {next(number)}" / f"{name}.py"
        path.parent.mkdir()
        path.write_text(text)
        return load(path, monkeypatch, name, ours=ours)

    return loaded


@pytest.fixture
def driver():
    from tunewright.testing.triton_driver import FakeDriver, fake_driver

    with fake_driver(FakeDriver()) as driver:
        yield driver


@pytest.fixture(params=["stock", "ours"])
def ours(request) -> bool:
    """Whether the decorator is ours; a test that takes this runs with Triton's own too."""
    return request.param == "ours"


@pytest.fixture
def own_triton_cache(tmp_path, monkeypatch):
    """A cache of Triton's for this test alone."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"
