import re

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import NotInvariant, SignatureError
from tunewright.kernel.row_bits import RowBits, classes_of, what_breaks
from tunewright.model.decision import Decision, Tier
from tunewright.stores.memory import MemoryStore
from worked_time import work

pytestmark = pytest.mark.usefixtures("by_work")

SHAPES = [{"M": m, "K": 12, "N": 3} for m in (4, 16)]
COST = {(2, 4): 100, (2, 16): 300, (3, 4): 110, (3, 16): 200}
"""Microseconds by parts and size: 3 is slower at 4, and the faster of the two over all sizes."""
PARTS = tw.Space(tw.Knob("parts", [2, 3]))


def summed(a, b, parts):
    """The product, with K in interleaved parts: other parts, other bits."""
    work(COST.get((parts, len(a)), 100))
    return sum(np.add.reduce([a[:, j, None] * b[j] for j in range(p, len(b), parts)]) for p in range(parts))


def product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N"), *, parts):
    c[...] = summed(a, b, parts)


def returned(a: tw.In("M", "K"), b: tw.In("K", "N"), *, parts):
    return summed(a, b, parts)


def split_below(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N"), *, parts, spare):
    c[...] = summed(a, b, parts if len(a) < 8 else 1)


def made(function, space=PARTS, store=None, **declared):
    session = tw.Session(store=store or MemoryStore(), pool="serial", mode=declared.pop("mode", "tune"))
    options = {"reference": np.matmul, "invariant": ["M"], "buckets": {"M": "pow2"}, "shapes": SHAPES}
    return tw.tune(space, **options, session=session, budget="2", **declared)(function)


def decided(kernel):
    return {d.key.signature.dims["M"]: d for d in kernel.session.store.decisions() if "invariant" in d.key.mode}


def test_all_sizes_get_configs_of_one_class_and_a_row_has_the_same_bits_at_each() -> None:
    kernel = made(product)
    kernel.tune(*kernel.example(SHAPES[0]))
    found = decided(kernel)
    assert set(found) == {4, 16}
    assert [d.config["parts"] for d in found.values()] == [3, 3], "the class that is fastest over all sizes"
    notes = " ".join(found[4].evidence.notes)
    assert "do not depend on M: 1 config has the same bits at" in notes
    assert re.search(r"9\.\d% \(9\.\d% to 9\.\d%\) slower than the free choice, parts=2", notes)
    assert "it is also the free choice" in " ".join(found[16].evidence.notes)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((40, 12), dtype=np.float32), rng.standard_normal((12, 3), dtype=np.float32)
    rows = set()
    for m in range(1, 17):
        c = np.empty((m, 3), np.float32)
        kernel(a[:m].copy(), b, c)
        rows.add(c[0].tobytes())
    assert len(rows) == 1
    # A size that comes later is given the class of those before it.
    later = kernel.decide(a[:20].copy(), b, np.empty((20, 3), np.float32))
    assert later.config == found[4].config


def test_a_kernel_without_a_class_is_told_which_knob_changes_the_bits() -> None:
    kernel = made(split_below, tw.Space(tw.Knob("parts", [2, 3]), tw.Knob("spare", [0, 1])))
    with pytest.raises(NotInvariant, match=r"at all sizes of M \(4, 16\): every config .* the knob parts changes"):
        kernel.tune(*kernel.example(SHAPES[0]))
    assert not decided(kernel)


def test_the_rows_of_what_a_kernel_returns_are_found_by_its_shape() -> None:
    kernel = made(returned)
    kernel.tune(*kernel.example(SHAPES[0]))
    assert set(decided(kernel)) == {4, 16}


def test_sizes_that_were_not_tuned_all_get_the_same_config_of_other_shapes() -> None:
    store = MemoryStore()
    tuned = made(product, store=store)
    for m, parts in ((4, 2), (64, 3)):
        key = tuned.problem(tuned.example({"M": m, "K": 12, "N": 3})).key
        store.put(Decision(key, tw.Config(parts=parts)))
    frozen = made(product, store=store, mode="frozen")
    near = [frozen.decide(*frozen.example({"M": m, "K": 12, "N": 3})) for m in (1, 200)]
    assert [(d.config["parts"], d.tier) for d in near] == [(2, Tier.NEAREST), (3, Tier.NEAREST)]
    far = [frozen.decide(*frozen.example({"M": m, "K": 48, "N": 3})) for m in (1, 4, 30, 64, 200)]
    assert len({d.config for d in far}) == 1


def test_only_named_dimensions_of_the_kernel_can_be_invariant() -> None:
    with pytest.raises(SignatureError, match=r"invariant names 'B'; product has M, K, N"):
        tw.tune(PARTS, invariant=["B"])(product)
    with pytest.raises(SignatureError, match=r"invariant takes a list of named dimensions"):
        tw.tune(PARTS, invariant="M")(product)


def bits(**rows):
    """Row 0 of one draw, at sizes `s8=...`."""
    return RowBits({(0, "0"): {(int(name[1:]),): own for name, own in rows.items()}})


def test_configs_with_equal_rows_are_a_class_and_those_that_change_are_in_none() -> None:
    a, b, c, d = (tw.Config(n=n) for n in range(4))
    found = classes_of({a: bits(s1="x", s8="x"), b: bits(s1="x"), c: bits(s1="y", s8="y"), d: bits(s1="x", s8="z")})
    assert [one.configs for one in found] == [[a, b], [c]]


def test_a_knob_that_separates_classes_of_which_none_runs_everywhere_is_named() -> None:
    space = tw.Space(tw.Knob("split", [1, 4]), tw.Knob("unroll", [1, 2]))
    probed = {config: bits(s1="x") if config["split"] == 4 else bits(s8="y") for config in space}
    assert "the knob split separates the classes" in what_breaks(space, probed, ["M"])
    fixed = {config: bits(s1="x", s8="y") for config in space}
    assert "no knob does, so the kernel itself" in what_breaks(space, fixed, ["M"])


def test_decisions_of_other_devices_are_not_mixed_by_size_either() -> None:
    store = MemoryStore()
    tuned = made(product, store=store)
    for m, parts in ((4, 2), (64, 3)):
        key = tuned.problem(tuned.example({"M": m, "K": 12, "N": 3})).key
        device = msgspec.structs.replace(key.device, model=f"another {m}")
        store.put(Decision(msgspec.structs.replace(key, device=device), tw.Config(parts=parts)))
    frozen = made(product, store=store, mode="frozen")
    found = [frozen.decide(*frozen.example({"M": m, "K": 12, "N": 3})) for m in (4, 64, 200)]
    assert {d.tier for d in found} == {Tier.ARCHITECTURE}
    assert len({d.config for d in found}) == 1
