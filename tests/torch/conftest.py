"""One thread, caches of compiled code of its own, and a compiler that is left as it was found."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # the small journey that pages are tried on

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # parts of PyTorch call other parts deprecated when they are first loaded
    import torch._inductor.compile_fx
    import torch._inductor.config

PATIENTS = Path(__file__).parent / "patients"


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
def patient():
    """A module of patients by its name, loaded anew."""
    names = []

    def load(name):
        spec = importlib.util.spec_from_file_location(f"patient_{name}", PATIENTS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        names.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]
