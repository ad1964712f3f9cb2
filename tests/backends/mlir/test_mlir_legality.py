"""What may be done to a payload is proven from its dependences."""

import pytest

from tunewright.backends.mlir import legality, payloads
from tunewright.backends.mlir.legality import Legality
from tunewright.backends.mlir.plan import Part, Plan
from tunewright.backends.mlir.suggestions import suggestion
from tunewright.errors import ScheduleError

PRODUCT = payloads.matmul(24, 32, 16, after="relu")
CONV = payloads.conv2d((1, 8, 8, 4), 16)
ALL = [PRODUCT, CONV, payloads.softmax(None, 64), payloads.layer_norm(8, 64), payloads.attention(2, 32, 16)]


@pytest.fixture(params=["isl", "declared"])
def by(request, monkeypatch):
    """Proofs with the polyhedral library, and without it."""
    if request.param == "isl":
        pytest.importorskip("islpy")
    else:
        monkeypatch.setattr(legality, "isl", lambda: None)
    for proof in (legality._parallel, legality._allowed, legality._shared):
        proof.cache_clear()
    yield request.param
    for proof in (legality._parallel, legality._allowed, legality._shared):
        proof.cache_clear()


def test_any_order_of_a_products_loops_keeps_the_order_of_its_additions(by) -> None:
    assert len(Legality(PRODUCT).orders("product")) == 6


def test_an_order_that_turns_additions_around_is_refused_unless_allowed(by) -> None:
    turned = ("n", "h", "w", "f", "c", "p", "q")
    assert Legality(CONV).allows("product", ("p", "q", "n", "h", "w", "f", "c"))
    assert not Legality(CONV).allows("product", turned)
    assert Legality(CONV, reassociate=True).allows("product", turned)
    assert not Legality(CONV).allows("product", ("n", "h"))


def test_loops_that_sum_are_not_parallel_unless_allowed(by) -> None:
    assert Legality(PRODUCT).parallel("product") == {"i", "j"}
    assert Legality(PRODUCT, reassociate=True).parallel("product") == {"i", "j", "k"}
    assert Legality(PRODUCT).parallel("after") == {"i", "j"}


def test_operations_share_the_loops_before_a_sum_that_the_next_one_waits_for(by) -> None:
    said = Legality(payloads.softmax(None, 64))
    assert said.shared("top", "powers") == 1
    assert said.shared("powers", "shares") == 2
    assert said.shared("total", "shares") == 1
    assert [Legality(payload).fusable() for payload in ALL] == [2, 4, 1, 1, 2]


def test_what_linalg_declares_never_allows_more_than_is_proven(monkeypatch) -> None:
    pytest.importorskip("islpy")

    def facts():
        for proof in (legality._parallel, legality._allowed, legality._shared):
            proof.cache_clear()
        for payload in ALL:
            said = Legality(payload)
            for i, op in enumerate(payload.operations):
                yield (
                    (op.name, said.parallel(op.name)),
                    [
                        said.shared(one.name, op.name)
                        for one in payload.operations[:i]
                        if any(name == one.name for name, _ in op.reads)
                    ],
                )

    proven = list(facts())
    monkeypatch.setattr(legality, "isl", lambda: None)
    declared = list(facts())
    assert [one for one, _ in proven] == [one for one, _ in declared]
    assert all(d <= p for (_, ps), (_, ds) in zip(proven, declared, strict=True) for p, d in zip(ps, ds, strict=True))


def test_the_scheduler_fuses_relu_and_finds_the_parallel_loops() -> None:
    pytest.importorskip("islpy")
    said = suggestion(PRODUCT)
    assert said.fused
    assert said.parallel == (True, True, False)


def test_an_illegal_structure_never_enters_the_space() -> None:
    def objects(payload):
        return "" if "k" in Legality(payload).parallel("product") else "k carries a sum"

    legal, illegal = Part("by rows", lambda work: None), Part("by terms", lambda work: None, objects=objects)
    plan = Plan(PRODUCT, [[legal, illegal]])
    assert [variant.name for variant in plan.space.variants] == ["by rows"]
    assert plan.refused == {"by terms": "k carries a sum"}
    with pytest.raises(ScheduleError, match="no structure of the plan is legal: k carries a sum"):
        Plan(PRODUCT, [illegal])
