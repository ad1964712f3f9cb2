"""What pages say of bundles: content, signer, differences, the way back."""

import pytest
from sample_store import BEST, EVIL, filled, key

from tunewright.dashboard import PAGES, Views, render_report
from tunewright.dashboard.bundles import find_changes
from tunewright.spaces.config import Config
from tunewright.stores.bundle import BundleStore
from tunewright.stores.bundle import build as making
from tunewright.stores.bundle.quarantine import QuarantinedEntry
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import DECISION, other_decision, other_key

pytest.importorskip("cryptography")


def bundle_at(path, decisions) -> BundleStore:
    digest = making.write(path, making.build(decisions, []), None)
    return BundleStore.open_trusted(path, None, digest)


@pytest.fixture
def views(tmp_path):
    store = filled(MemoryStore())
    before = bundle_at(tmp_path / "may.bundle", store.decisions())
    store.put(store.get(key()).replace(config=Config(tile=8, unroll=8, order="ij")))
    after = bundle_at(tmp_path / "june.bundle", store.decisions())
    return Views(store, "a store", bundles=[before, after])


def test_bundles_are_listed_with_who_vouches_for_them(views) -> None:
    html = PAGES["/bundles"](views, {}).html
    assert "may.bundle" in html
    assert "nobody; its digest is pinned" in html
    assert EVIL not in html


def test_a_bundle_is_held_against_the_store_or_another(views) -> None:
    may, june = views.bundles
    against_store = PAGES["/bundle"](views, {"digest": may.digest}).html
    assert "1 difference from a store" in against_store
    assert "tile=8</span> <span>unroll=8" in against_store
    assert (
        "1 difference from may.bundle" in PAGES["/bundle"](views, {"digest": june.digest, "against": may.digest}).html
    )
    assert "0 differences from a store" in PAGES["/bundle"](views, {"digest": june.digest}).html
    assert "tunewright store rollback gemm --to yesterday" in against_store


def test_what_is_gone_new_and_changed_is_told_apart() -> None:
    conv, fast = other_decision(key=other_key(kernel="conv")), other_decision(config=Config(tile=1))
    assert [each.what for each in find_changes([DECISION], [conv])] == ["gone", "new"]
    assert [each.what for each in find_changes([DECISION], [fast])] == ["changed"]
    assert find_changes([DECISION], [DECISION]) == []


def test_a_bundle_alone_can_be_shown(views) -> None:
    alone = Views(views.bundles[0], "may.bundle", bundles=views.bundles[:1])
    for path, query in [
        ("/", {}),
        ("/kernel", {"name": "gemm"}),
        ("/decision", {"key": key().digest}),
        ("/explore", {}),
    ]:
        assert PAGES[path](alone, query).status == 200
    assert "No trials are recorded" in PAGES["/explore"](alone, {}).html
    assert str(BEST.config["tile"]) in render_report(alone)


def test_what_is_in_quarantine_is_to_be_looked_at(views) -> None:
    held = {key().digest: QuarantinedEntry(BEST.config, "1.3x slower than <the> default", "2026-06-01")}
    html = PAGES["/"](Views(views.store, quarantined=held), {}).html
    assert "quarantined" in html
    assert "1.3x slower than &lt;the&gt; default" in html
