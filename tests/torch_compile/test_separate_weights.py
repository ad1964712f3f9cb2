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
def test_a_bundle_contains_each_weight_once_and_older_versions_find_no_package_to_load(shipped):
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
