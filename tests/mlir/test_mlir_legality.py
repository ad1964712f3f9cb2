"""What may be done to a payload is proven from its dependences."""

import pytest

from tunewright.errors import ScheduleError
from tunewright.mlir import legality, payloads
from tunewright.mlir.legality import Legality
from tunewright.mlir.plan import PlanPart, SchedulePlan
from tunewright.mlir.seeds import suggest_fusion

PRODUCT = payloads.matmul(24, 32, 16, after="relu")
CONV = payloads.conv2d((1, 8, 8, 4), 16)
ALL = [PRODUCT, CONV, payloads.softmax(None, 64), payloads.layer_norm(8, 64), payloads.attention(2, 32, 16)]


@pytest.fixture(params=["isl", "declared"])
def by(request, monkeypatch):
    """Proofs with the polyhedral library, and without it."""
    if request.param == "isl":
        pytest.importorskip("islpy")
    else:
        monkeypatch.setattr(legality, "import_isl", lambda: None)
    for proof in (legality._parallel_loops, legality._is_legal_order, legality._count_shared_loops):
        proof.cache_clear()
    yield request.param
    for proof in (legality._parallel_loops, legality._is_legal_order, legality._count_shared_loops):
        proof.cache_clear()


def test_any_order_of_a_products_loops_keeps_the_order_of_its_additions(by) -> None:
    assert len(Legality(PRODUCT).loop_orders("product")) == 6


def test_an_order_that_turns_additions_around_is_refused_unless_allowed(by) -> None:
    turned = ("n", "h", "w", "f", "c", "p", "q")
    assert Legality(CONV).is_legal_order("product", ("p", "q", "n", "h", "w", "f", "c"))
    assert not Legality(CONV).is_legal_order("product", turned)
    assert Legality(CONV, reassociate=True).is_legal_order("product", turned)
    assert not Legality(CONV).is_legal_order("product", ("n", "h"))


def test_loops_that_sum_are_not_parallel_unless_allowed(by) -> None:
    assert Legality(PRODUCT).parallel_loops("product") == {"i", "j"}
    assert Legality(PRODUCT, reassociate=True).parallel_loops("product") == {"i", "j", "k"}
    assert Legality(PRODUCT).parallel_loops("after") == {"i", "j"}


def test_operations_share_the_loops_before_a_sum_that_the_next_one_waits_for(by) -> None:
    legality = Legality(payloads.softmax(None, 64))
    assert legality.shared_loops("top", "powers") == 1
    assert legality.shared_loops("powers", "shares") == 2
    assert legality.shared_loops("total", "inverse") == 1
    assert [Legality(payload).fusion_depth() for payload in ALL] == [2, 4, 1, 1, 2]


def test_what_linalg_declares_never_allows_more_than_is_proven(monkeypatch) -> None:
    pytest.importorskip("islpy")

    def facts():
        for proof in (legality._parallel_loops, legality._is_legal_order, legality._count_shared_loops):
            proof.cache_clear()
        for payload in ALL:
            rules = Legality(payload)
            for i, op in enumerate(payload.operations):
                yield (
                    (op.name, rules.parallel_loops(op.name)),
                    [
                        rules.shared_loops(one.name, op.name)
                        for one in payload.operations[:i]
                        if any(name == one.name for name, _ in op.reads)
                    ],
                )

    proven = list(facts())
    monkeypatch.setattr(legality, "import_isl", lambda: None)
    declared = list(facts())
    assert [one for one, _ in proven] == [one for one, _ in declared]
    assert all(d <= p for (_, ps), (_, ds) in zip(proven, declared, strict=True) for p, d in zip(ps, ds, strict=True))


def test_the_scheduler_fuses_relu_and_finds_the_parallel_loops() -> None:
    pytest.importorskip("islpy")
    hint = suggest_fusion(PRODUCT)
    assert hint.fused
    assert hint.parallel == (True, True, False)


def test_an_illegal_structure_never_enters_the_space() -> None:
    def violation(payload):
        return "" if "k" in Legality(payload).parallel_loops("product") else "k carries a sum"

    legal, illegal = (
        PlanPart("by rows", lambda context: None),
        PlanPart("by terms", lambda context: None, violation=violation),
    )
    plan = SchedulePlan(PRODUCT, [[legal, illegal]])
    assert [variant.name for variant in plan.space.variants] == ["by rows"]
    assert plan.rejected == {"by terms": "k carries a sum"}
    with pytest.raises(ScheduleError, match="no structure of the plan is legal: k carries a sum"):
        SchedulePlan(PRODUCT, [illegal])
