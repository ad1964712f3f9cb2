"""One thread, own caches of compiled code, and a compiler whose state is restored."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboard"))  # has the small report that pages are tested with

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's own deprecation warnings on import
    import torch._inductor.compile_fx
    import torch._inductor.config

SUBJECTS = Path(__file__).parent / "subjects"


@pytest.fixture(autouse=True)
def own_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch._inductor.config.patch(freezing=False):
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def subject():
    """Loads a module of `subjects` by its name, each time anew."""
    names = []

    def load(name):
        spec = importlib.util.spec_from_file_location(f"subject_{name}", SUBJECTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        names.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]
