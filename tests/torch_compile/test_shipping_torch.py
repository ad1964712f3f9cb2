"""A model compiled ahead is loaded by a fresh process without a compiler, or refused; never believed unseen."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tunewright.errors import BackendError, BundleError, Sealed, SettingsError, SignatureError
from tunewright.stores import serialization
from tunewright.stores.bundle import build, signing
from tunewright.torch import bundle, load, shipping
from tunewright.torch.calls import Call
from tunewright.torch.inductor import packages

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(1, 2, 40))

    def forward(self, x, more):
        return {"soft": torch.softmax(x * self.scale + 2, -1) + more["y"], "sum": x.sum(-1, keepdim=True)}

def make():
    torch.manual_seed(0)
    x = torch.randn(8, 40)
    return Small().eval(), (x, {"y": x + 1})
"""

FRESH = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(str(args[0])) if event in ("subprocess.Popen", "os.fork") else None)
import torch
torch.set_num_threads(1)
from model import make
from tunewright.torch import load
model, call = make()
shipped = load("small.bundle", signers="signers", model=model)
with torch.no_grad():
    got, right = shipped(*call), model(*call)
print(json.dumps({
    "started": started,
    "counts": dict(shipped.counts),
    "compiler_loaded": "torch._inductor.codecache" in sys.modules,
    "error": max(float((got[name] - right[name]).abs().max()) for name in right),
    "names": sorted(got),
}))
"""


def ran(folder, *words, **environment):
    """A fresh process with empty caches of its own."""
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "empty"),
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        **environment,
    }
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def keyed(folder):
    """A key to sign with, and a list with its public half."""
    public = signing.generate_key(folder / "key.pem")
    (folder / "signers").write_text(f"{public} us\n")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A folder with a model, and a bundle of it made by the command."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "model.py").write_text(MODEL)
    keyed(folder)
    words = ("torch", "bundle", "model.py:make", "--out", "small.bundle", "--sign", "key.pem", "--threads", 1, "--json")
    own = {"TUNEWRIGHT_CACHE": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "built")}
    done = ran(folder, "-m", "tunewright", *words, **own)
    assert done.returncode == 0, done.stderr
    (folder / "told.json").write_text(done.stdout)
    return folder


@pytest.fixture
def hollow(tmp_path):
    """A folder with a signed bundle that says all a real one does, and holds no machine code."""
    keyed(tmp_path)
    model, call = torch.nn.ReLU().eval(), (torch.ones(3),)
    said = shipping.ModelManifest("ReLU", shipping.compatibility.current(model), (Call.read(call).describe(),))
    packed = shipping.package_name(said.calls[0])
    enclosed = [
        build.Attachment("torch", "shipment", serialization.encode(said)),
        build.Attachment("torch", packed, b"no code"),
    ]
    build.write(tmp_path / "small.bundle", build.build((), enclosed), signing.load_private_key(tmp_path / "key.pem"))
    return tmp_path


@pytest.fixture
def never_loaded(monkeypatch):
    def loaded(*_):
        raise AssertionError("machine code was loaded")

    monkeypatch.setattr(packages, "LoadedPackage", loaded)


@pytest.mark.slow
def test_a_fresh_process_without_a_compiler_starts_nothing_compiles_nothing_and_is_right(shipped):
    done = ran(shipped, "-c", FRESH, CXX="/nonexistent", PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["started"] == []
    assert told["counts"] == {}
    assert not told["compiler_loaded"]
    assert told["error"] < 1e-5
    assert told["names"] == ["soft", "sum"]
    assert not (shipped / "empty").exists() or not any((shipped / "empty").rglob("*.so"))


WARMED = """
import json
import torch
torch.set_num_threads(1)
from model import make
from torch._dynamo.utils import counters
from tunewright.torch import load
model, call = make()
warmed = load("caches.bundle", signers="signers", model=model)
with torch.no_grad():
    got, right = warmed(*call), model(*call)
print(json.dumps({
    "inductor": dict(counters["inductor"]),
    "error": max(float((got[name] - right[name]).abs().max()) for name in right),
}))
"""

CACHED = """
import torch
torch.set_num_threads(1)
from model import make
from tunewright.torch import bundle
model, call = make()
bundle("caches.bundle", torch.compile(model, options={"max_fusion_size": 8}), call, sign="key.pem", caches=True)
"""


@pytest.mark.slow
def test_caches_that_were_shipped_are_hit_with_the_options_they_were_made_with(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    keyed(tmp_path)
    made = ran(tmp_path, "-c", CACHED, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "built"))
    assert made.returncode == 0, made.stderr
    done = ran(tmp_path, "-c", WARMED)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["inductor"]["fxgraph_cache_hit"] == 1
    assert "fxgraph_cache_miss" not in told["inductor"]
    assert told["error"] < 1e-5


def test_caches_of_a_frozen_model_are_refused_rather_than_empty(tmp_path):
    with pytest.raises(SignatureError, match="do not freeze"):
        bundle(tmp_path / "a.bundle", torch.nn.ReLU().eval(), (torch.ones(3),), caches=True, freezing=True)


def test_an_option_that_cannot_be_shipped_with_caches_is_named(tmp_path):
    passed = torch.compile(torch.nn.ReLU().eval(), options={"post_grad_custom_post_pass": print})
    with pytest.raises(SignatureError, match="post_grad_custom_post_pass cannot be shipped"):
        bundle(tmp_path / "a.bundle", passed, (torch.ones(3),), caches=True)


@pytest.mark.slow
def test_another_kind_of_call_is_refused_rather_than_miscomputed(shipped):
    model = load(shipped / "small.bundle", signers=shipped / "signers")
    x = torch.randn(8, 40)
    assert model(x, {"y": x})["soft"].shape == (8, 40)
    for wrong in (torch.randn(4, 40), torch.randn(8, 80)[:, ::2], x.double()):
        with pytest.raises(SignatureError, match=r"was compiled for \(float32\[8, 40\]"):
            model(wrong, {"y": x})


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="needs a processor with AVX-512")
def test_explain_names_a_changed_source_line_and_another_isa(shipped, tmp_path):
    (tmp_path / "model.py").write_text(MODEL.replace("+ 2, -1)", "+ 3, -1)"))
    words = ("-m", "tunewright", "torch", "explain", shipped / "small.bundle", "--signers", shipped / "signers")
    done = ran(tmp_path, *words, "model.py:make", OMP_NUM_THREADS="1", ATEN_CPU_CAPABILITY="avx2")
    assert done.returncode == 1, done.stderr
    assert "from its line 7 on (model.py)" in done.stdout
    assert "AVX2 here" in done.stdout
    assert "weights" not in done.stdout


def test_code_for_another_isa_is_refused_before_it_is_loaded(hollow, never_loaded, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    with pytest.raises(BundleError, match=r"capability: .* there, another here"):
        load(hollow / "small.bundle", signers=hollow / "signers")
    with pytest.raises(SettingsError, match="'capability' cannot be allowed"):
        load(hollow / "small.bundle", signers=hollow / "signers", allow=["capability"])


def test_what_does_not_fit_is_compiled_here_if_somebody_says_how(hollow, never_loaded, monkeypatch, caplog):
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    got = load(hollow / "small.bundle", signers=hollow / "signers", otherwise=lambda: "compiled here")
    assert got == "compiled here"
    assert "2.99.0 here" in caplog.text


def test_a_sealed_process_does_not_fall_back_to_compiling(hollow, never_loaded, monkeypatch):
    from tunewright import seal, unseal

    monkeypatch.setattr(torch, "__version__", "2.99.0")
    seal()
    try:
        with pytest.raises(Sealed, match="ReLU is compiled"):
            load(hollow / "small.bundle", signers=hollow / "signers", otherwise=lambda: None)
    finally:
        unseal()


def test_another_number_of_threads_is_refused_unless_allowed(hollow):
    torch.set_num_threads(2)
    with pytest.raises(BundleError, match=r"threads: 1 there, 2 here; call torch.set_num_threads\(1\)"):
        load(hollow / "small.bundle", signers=hollow / "signers")
    with pytest.raises(BackendError, match="cannot be loaded"):  # as far as the code, of which there is none
        load(hollow / "small.bundle", signers=hollow / "signers", allow=["threads"])


def test_what_nobody_vouches_for_is_not_looked_at(hollow, never_loaded, monkeypatch):
    whole = (hollow / "small.bundle").read_bytes()
    monkeypatch.setattr(serialization, "decode", lambda *_: pytest.fail("it was looked at"))
    for changed in (whole[:400] + bytes([whole[400] ^ 1]) + whole[401:], whole[:-96] + bytes(96)):
        (hollow / "small.bundle").write_bytes(changed)
        with pytest.raises(BundleError):
            load(hollow / "small.bundle", signers=hollow / "signers")
    with pytest.raises(BundleError, match="say whom you trust"):
        load(hollow / "small.bundle")


def test_a_bundle_without_a_model_says_how_to_make_one(tmp_path):
    digest = build.write(tmp_path / "bare.bundle", build.build(()))
    with pytest.raises(BundleError, match="tunewright torch bundle"):
        load(tmp_path / "bare.bundle", pin=digest)


def test_a_model_in_training_mode_is_not_shipped(tmp_path):
    with pytest.raises(SignatureError, match=r"call its eval\(\)"):
        bundle(tmp_path / "m.bundle", torch.nn.Linear(2, 2), (torch.ones(2),))


def test_a_model_that_cannot_be_exported_is_told_with_the_way_out(tmp_path):
    def broken(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(BackendError, match=r"cannot be compiled ahead.*--caches"):
        bundle(tmp_path / "m.bundle", broken, (torch.ones(2),))


ISA = """
import json, os, sys, torch
torch.set_num_threads(1)
from tunewright.errors import BundleError
from tunewright.torch import bundle, load

def f(x):
    return torch.softmax(x * 1.5 + 2, -1) + x.sum(-1, keepdim=True)

torch.manual_seed(0)
x = torch.randn(8, 40)
if sys.argv[1] == "save":
    bundle("isa.bundle", f, (x,), sign="key.pem", caches=True)
    open("isa.blob", "wb").write(torch.compiler.save_cache_artifacts()[0])
elif sys.argv[1] == "stock":
    torch.compiler.load_cache_artifacts(open("isa.blob", "rb").read())
    with torch.no_grad():
        got = torch.compile(f)(x)
    print(json.dumps({"nan": bool(got.isnan().any()), "error": float((got - f(x)).abs().nan_to_num(1e9).max())}))
else:
    try:
        load("isa.bundle", signers="signers", model=f)
    except BundleError as error:
        print(json.dumps({"refused": str(error)}))
"""


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="needs a processor with AVX-512")
def test_stock_believes_a_cache_from_another_isa_and_returns_nonsense_where_ours_refuses(tmp_path):
    (tmp_path / "isa.py").write_text(ISA)
    keyed(tmp_path)
    saved = ran(tmp_path, "isa.py", "save", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "here"))
    assert saved.returncode == 0, saved.stderr
    stock = ran(tmp_path, "isa.py", "stock", ATEN_CPU_CAPABILITY="avx2")
    told = json.loads(stock.stdout)
    assert told["nan"] or told["error"] > 1e-3, "stock torch has been mended: this page can be rewritten"
    ours = json.loads(ran(tmp_path, "isa.py", "ours", ATEN_CPU_CAPABILITY="avx2").stdout)
    assert "capability: AVX512 there, AVX2 here" in ours["refused"]


def test_counts_are_those_since_loading():
    before = packages.compile_counts()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert (packages.compile_counts() - before)["compiles"] >= 1


@pytest.mark.parametrize(
    ("given", "said"), [({"freezing": True}, "settings of Inductor"), ({"caches": True}, "with caches")]
)
def test_reduced_precisions_beside_what_looks_nothing_up_are_refused(given, said, tmp_path):
    model, x = torch.nn.Linear(4, 4).eval(), torch.ones(2, 4)
    with pytest.raises(SettingsError, match=f"{said}: leave out"):
        bundle(tmp_path / "m.bundle", model, (x,), numerics=["bfloat16"], **given)
    assert not (tmp_path / "m.bundle").exists()
