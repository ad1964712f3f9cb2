"""Weights of a bundle are used where it was read to: as they were shipped, aligned, and never beside their place."""

import gc
from io import BytesIO
from zipfile import ZipFile

import msgspec
import pytest
import torch

from tunewright.errors import BackendError, BundleError
from tunewright.stores import serialization
from tunewright.stores.bundle import build
from tunewright.stores.bundle.store import BundleStore
from tunewright.torch import bundle, load, shipping
from tunewright.torch.inductor import separate_weights
from tunewright.torch.inductor.constants import TensorLayout

PLAIN = TensorLayout("float32", (2, 3), (3, 1), 64, 24)


def memory(size=256):
    return torch.arange(size, dtype=torch.uint8)


class Convolved(torch.nn.Module):
    """A model with weights that oneDNN packs, and plain ones."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = torch.nn.Conv2d(3, 16, 3), torch.nn.Linear(64, 32)

    def forward(self, x):
        return self.linear(torch.relu(self.conv(x)).mean(1).flatten(1))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A bundle of a model for two sizes, its digest, the model and its inputs."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "model.bundle"
    model, inputs = Convolved().eval(), [torch.randn(rows, 3, 10, 10) for rows in (2, 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEWRIGHT_CACHE", str(path.parent))
        return path, bundle(path, model, *[(x,) for x in inputs], freezing=True), model, inputs


def rebuilt(path, pin, folder, **changed):
    """A bundle with the same attachments and a changed manifest."""
    store = BundleStore.open_trusted(path, None, pin)
    manifest = serialization.decode(store.read_attachment("torch", "shipment"), shipping.ModelManifest)
    changes = {name: change(getattr(manifest, name)) for name, change in changed.items()}
    kept = {name: store.read_attachment("torch", name) for _, name in store.attachments}
    kept["shipment"] = serialization.encode(msgspec.structs.replace(manifest, **changes))
    enclosed = [build.Attachment("torch", name, content) for name, content in kept.items()]
    return build.write(folder / "changed.bundle", build.build((), enclosed))


@pytest.mark.slow
def test_a_shipped_model_uses_the_memory_that_was_verified_and_is_right_for_each_call(shipped):
    path, pin, model, inputs = shipped
    loaded = load(path, pin=pin)
    gc.collect()
    with torch.no_grad():
        for x in (*inputs, inputs[0]):
            assert float((loaded(x) - model(x)).abs().max()) < 1e-5
    begin, end = addresses(loaded)
    blocks = [weight for package in loaded._packages.values() for weight in package._weights.values()]
    assert any(weight.is_mkldnn for weight in blocks)
    assert all(begin <= address_of(weight) < end for weight in blocks)
    assert all(address_of(weight) % 64 == 0 for weight in blocks)


def addresses(loaded):
    """The block that plain weights are views of."""
    storages = {
        (weight.untyped_storage().data_ptr(), weight.untyped_storage().nbytes())
        for package in loaded._packages.values()
        for weight in package._weights.values()
        if not weight.is_mkldnn
    }
    ((start, length),) = storages
    return start, start + length


def address_of(weight):
    return int(torch.ops.mkldnn.data_ptr(weight)) if weight.is_mkldnn else weight.data_ptr()


@pytest.mark.slow
def test_code_in_a_bundle_contains_no_weights_and_older_versions_find_no_package_to_load(shipped):
    path, pin, *_ = shipped
    store = BundleStore.open_trusted(path, None, pin)
    names = {name.partition(" ")[0] for _, name in store.attachments}
    assert names == {"shipment", "code", "weights"}
    for _, name in store.attachments:
        if name.startswith("code "):
            with ZipFile(BytesIO(store.read_attachment("torch", name))) as archive:
                assert not [file for file in archive.namelist() if file.endswith(".blob")]


@pytest.mark.slow
def test_weights_that_a_manifest_places_elsewhere_are_refused_before_code_runs(shipped, tmp_path):
    path, pin, *_ = shipped

    def moved(weights):
        return tuple(
            {name: msgspec.structs.replace(layout, start=1 << 40) for name, layout in call.items()} for call in weights
        )

    for change in (moved, lambda weights: weights[:1]):
        digest = rebuilt(path, pin, tmp_path, weights=change)
        with pytest.raises(BundleError, match="build"):
            load(tmp_path / "changed.bundle", pin=digest)


@pytest.mark.slow
def test_code_that_lacks_one_of_its_weights_is_refused_and_not_run(shipped, tmp_path):
    path, pin, *_ = shipped
    digest = rebuilt(path, pin, tmp_path, weights=lambda weights: tuple(dict(list(one.items())[1:]) for one in weights))
    with pytest.raises(BackendError, match="build the bundle again"):
        load(tmp_path / "changed.bundle", pin=digest)


@pytest.mark.slow
def test_a_model_with_packed_weights_alone_keeps_the_memory_that_they_are_in(tmp_path):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256, bias=False), torch.nn.ReLU(), torch.nn.Linear(256, 256, bias=False)]
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(4, 256)
    pin = bundle(tmp_path / "packed.bundle", model, (x,), freezing=True)
    loaded = load(tmp_path / "packed.bundle", pin=pin)
    gc.collect()
    (package,) = loaded._packages.values()
    assert package._weights
    assert all(weight.is_mkldnn for weight in package._weights.values())
    assert all(inside(address_of(weight), package._weights.owner) for weight in package._weights.values())
    with torch.no_grad():
        assert float((loaded(x) - model(x)).abs().max()) < 1e-5


def inside(address, block):
    return block.data_ptr() <= address < block.data_ptr() + block.numel()


def test_weights_keep_the_block_that_they_are_in():
    block = memory()
    assert separate_weights.make_weights(block, {}).owner is block


@pytest.mark.slow
def test_weights_without_a_name_of_their_own_stay_in_the_package(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).eval()
    x = torch.randn(64, 256)
    templated = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    pin = bundle(tmp_path / "templated.bundle", model, (x,), freezing=True, **templated)
    loaded = load(tmp_path / "templated.bundle", pin=pin)
    with torch.no_grad():
        assert float((loaded(x) - model(x)).abs().max()) < 1e-5


def test_a_library_that_cannot_be_run_stays_in_its_package():
    files = {"a/model.so": b"no library", "a/weights.blob": b"12345678"}
    assert separate_weights.split(separate_weights._pack(files), 0) is None


class Runner:
    """A library whose weights have these names, and that knows them by `known`."""

    def __init__(self, names, known):
        self.get_constant_names_to_original_fqns = lambda: dict(enumerate(names))
        self.extract_constants_map = lambda _: dict.fromkeys(known, torch.ones(4))
        self.update_constant_buffer_from_blob = lambda _: None


@pytest.mark.parametrize(("names", "separate"), [(["a", "b"], True), (["a", "a", "b"], False), (["a"], False)])
def test_weights_are_shipped_apart_only_if_each_has_its_own_name(names, separate, monkeypatch):
    monkeypatch.setattr(separate_weights, "hook", lambda _: lambda *_: Runner(names, ["a", "b"]))
    files = separate_weights._pack({"a/model.so": b"x", "a/weights.blob": b"12345678"})
    assert (separate_weights.split(files, 0) is not None) is separate


def test_code_is_packed_to_equal_bytes_whenever_that_is(monkeypatch):
    first = separate_weights._pack({"a": b"1"})
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert separate_weights._pack({"a": b"1"}) == first


def test_a_weight_is_a_view_of_its_place_in_the_block():
    block = memory()
    made = separate_weights.make_weights(block, {"w": PLAIN})["w"]
    assert made.shape == (2, 3)
    assert made.data_ptr() == block.data_ptr() + 64


@pytest.mark.parametrize(
    "changed",
    [
        {"start": 256},
        {"start": -64},
        {"start": 8},
        {"length": 1 << 40},
        {"length": -8},
        {"length": 16},
        {"sizes": (200, 300)},
        {"strides": (300, 1)},
        {"dtype": "no_dtype"},
        {"sizes": (1, 1)},
        {"dtype": "load"},
        {"dtype": "nn"},
        {"sizes": ((1 << 63) + 5, 3)},
        {"strides": (1 << 70, 1)},
        {"strides": (3,)},
        {"packed": b"x"},
    ],
    ids=str,
)
def test_a_weight_that_does_not_lie_in_its_place_is_refused(changed):
    wrong = msgspec.structs.replace(PLAIN, **changed)
    with pytest.raises(BundleError, match="the weight w"):
        separate_weights.make_weights(memory(), {"w": wrong})


def test_bytes_that_may_not_be_written_to_or_are_not_aligned_are_copied():
    whole = bytearray(range(200)) + bytearray(100)
    for view in (memoryview(bytes(whole)), memoryview(whole)[1:], memoryview(whole)[2:]):
        block = separate_weights.make_block(view)
        assert block.data_ptr() % 64 == 0
        assert bytes(block.tolist()) == bytes(view)
    assert separate_weights.make_block(memoryview(b"")).numel() == 0
