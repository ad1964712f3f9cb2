"""Releases of Triton: the self-test knows every part that is used, and names what is missing."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import triton

import tunewright as tw
from tunewright.testing import triton_driver
from tunewright.triton import adapter, releases
from tunewright.triton.static import aot, artifacts

ALIASES = {"knobs": "triton.knobs", "stock": "triton.runtime.autotuner", "triton": "triton"}


@pytest.fixture
def unsupported(monkeypatch):
    """Pretends that another release is installed."""
    monkeypatch.setattr(releases, "VERSION", "9.9.9")
    releases.require_supported.cache_clear()
    yield monkeypatch
    releases.require_supported.cache_clear()


@contextmanager
def without(owner: type, name: str) -> Iterator[None]:
    """Takes an attribute away from a class; Triton's settings cannot be asked for on the class, so not by a patch."""
    kept = {name: vars(owner)[name]} if name in vars(owner) else {}
    for each in kept:
        delattr(owner, each)
    try:
        yield
    finally:
        for each, value in kept.items():
            setattr(owner, each, value)


def used_parts(path: Path) -> set[str]:
    """The parts of Triton that a file names: what it imports, and attributes of what it imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "triton":
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in ALIASES and rest.replace(".", "").replace("_", "").isalnum():
                found.add(f"{ALIASES[root]}.{rest}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            owner, name = node.args[:2]
            root, _, rest = ast.unparse(owner).partition(".")
            if root in ALIASES:
                found.add(f"{ALIASES[root]}.{rest}.{ast.literal_eval(name)}")
    return {one for one in found if not one.startswith("triton.__")}


@pytest.mark.parametrize("module", [adapter, aot, artifacts, triton_driver], ids=lambda module: module.__name__)
def test_the_self_test_touches_every_part_that_is_used(module):
    known = (*releases.PARTS, *releases.SINCE)
    used = used_parts(Path(module.__file__))
    assert used, "the file uses nothing of Triton: is the test still right?"
    missed = [part for part in used if not any(path == part or path.startswith(f"{part}.") for path in known)]
    assert missed == []


def test_the_installed_release_is_tested_and_passes():
    assert triton.__version__ in releases.TESTED_VERSIONS
    assert releases.self_test() == []


def test_another_release_that_passes_is_used(unsupported):
    unsupported.setattr(releases, "self_test", list)
    releases.require_supported()


def test_another_release_is_refused_with_all_that_it_lacks(unsupported):
    unsupported.setattr(releases, "self_test", lambda: ["there is no triton.compile", "JITFunction has no params"])
    said = r"9\.9\.9 differs .*: there is no triton\.compile; JITFunction has no params\. Install triton==3\.9\.0"
    with pytest.raises(tw.TunewrightError, match=said):
        releases.require_supported()
    with pytest.raises(tw.TunewrightError, match="differs"):
        aot.make_unit(None, None, (), {})


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("triton.knobs.runtime_knobs", "debug"),
        ("triton.knobs.language_knobs", "fp32_default"),
        ("triton.runtime.jit.JITCallable", "parse"),
        ("triton.runtime.jit.JITFunction", "_pack_args"),
        ("triton.runtime.autotuner.Config", "all_kwargs"),
        ("triton.backends.nvidia.driver.CudaDriver", "get_empty_cache_for_benchmark"),
    ],
)
def test_what_is_missing_is_named(owner, name):
    with without(releases._find(owner), name):
        assert name in " ".join(releases.self_test())


@pytest.mark.parametrize("path", releases.SINCE)
def test_what_is_newer_is_needed_only_from_its_release_on(path, monkeypatch):
    owner, _, name = path.rpartition(".")
    first = ".".join(map(str, releases.SINCE[path]))
    with without(type(releases._find(owner)), name):
        monkeypatch.setattr(releases, "VERSION", f"{first}.0")
        assert f"there is no {path}" in releases.self_test()
        monkeypatch.setattr(releases, "VERSION", "3.6.0")
        assert f"there is no {path}" not in releases.self_test()


def test_what_a_function_takes_is_compared(monkeypatch):
    monkeypatch.setattr(adapter.JITFunction, "run", lambda self, *args: None)
    monkeypatch.setattr(releases, "AUTOTUNE_PARAMETERS", ("configs", "colors"))
    said = " ".join(releases.self_test())
    assert "takes no grid" in said
    assert "triton.autotune takes" in said
    assert "Autotuner takes no colors" in said


def test_a_name_that_cannot_be_imported_is_named():
    error = releases.import_failed(ImportError("cannot import name 'knobs' from 'triton'"))
    assert f"triton {triton.__version__} differs from what is supported: cannot import name 'knobs'" in str(error)
