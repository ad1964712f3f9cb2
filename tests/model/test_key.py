import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunewright.model.device import Device
from tunewright.model.key import Key, flatten
from tunewright.model.signature import Signature
from tunewright.stores import serialization
from tunewright.testing.keys import KEY, other_key

words = st.text(min_size=1, max_size=8)
mappings = st.dictionaries(words, words, max_size=3)
signatures = st.builds(
    Signature, st.lists(words, max_size=3).map(tuple), st.dictionaries(words, st.integers(0, 10**6), max_size=3)
)
devices = st.builds(
    Device,
    words,
    words,
    words,
    st.lists(words, max_size=3).map(tuple),
    st.dictionaries(words, st.integers(), max_size=3),
)
keys = st.builds(Key, words, words, signatures, devices, mappings, mappings)


def changed():
    """KEY with each of its fields, down to the last, changed; and the name that must be given."""
    device, signature = KEY.device, KEY.signature
    yield "kernel", other_key(kernel="gemv")
    yield "source", other_key(source="ffff")
    yield "signature.args.1", other_key(signature=msgspec.structs.replace(signature, args=("float32[M,K]", "f", "g")))
    for dim in signature.dims:
        sizes = {**signature.dims, dim: 7}
        yield f"signature.dims.{dim}", other_key(signature=msgspec.structs.replace(signature, dims=sizes))
    for field in ("kind", "model", "architecture"):
        yield f"device.{field}", other_key(device=msgspec.structs.replace(device, **{field: "other"}))
    yield "device.features.avx512f", other_key(device=msgspec.structs.replace(device, features=("avx2",)))
    for limit in device.limits:
        limits = {**device.limits, limit: 3}
        yield f"device.limits.{limit}", other_key(device=msgspec.structs.replace(device, limits=limits))
    for part in KEY.toolchain:
        yield f"toolchain.{part}", other_key(toolchain={**KEY.toolchain, part: "other"})
    for part in KEY.mode:
        yield f"mode.{part}", other_key(mode={**KEY.mode, part: "other"})


@pytest.mark.parametrize(("name", "key"), list(changed()), ids=lambda value: value if isinstance(value, str) else "")
def test_each_field_changes_the_digest_and_is_named(name, key) -> None:
    assert key.digest != KEY.digest
    assert name in KEY.differences(key)
    assert name in flatten(KEY) or name in flatten(key)


def test_every_field_of_a_key_is_covered_above() -> None:
    covered = {name.split(".")[0] for name, _ in changed()}
    assert covered == set(Key.__struct_fields__)
    assert {n.split(".")[1] for n, _ in changed() if n.startswith("device.")} == set(Device.__struct_fields__)


def test_the_order_of_entries_does_not_count() -> None:
    turned = other_key(toolchain=dict(reversed(KEY.toolchain.items())), mode=dict(reversed(KEY.mode.items())))
    assert turned == KEY
    assert turned.differences(KEY) == {}


@given(keys, keys)
def test_keys_are_equal_exactly_when_nothing_differs(one, two) -> None:
    assert (one.digest == two.digest) == (not one.differences(two))
    assert serialization.load_key(serialization.dump_key(one)) == one


def test_the_digest_is_the_same_in_another_process_and_for_ever() -> None:
    code = "from tunewright.testing.keys import KEY; print(KEY.digest)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == KEY.digest
    assert KEY.digest == "505991169355f9d5b9a4c58d4af5f5dcf7c2af914a25a4b51980dd16f7111d91"
