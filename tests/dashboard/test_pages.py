"""Pages, without a browser: what they say, that nothing in them bites, that they stand whatever is asked."""

import json
import re
from html.parser import HTMLParser

import pytest
from sample_store import BEST, DIAGNOSIS, EVIL, FILED, PREBUILD, SCHEDULE, TRIALS, filled, key, small

from tunewright.dashboard import PAGES, STATIC, ReportLimits, SavedReport, Views, not_found, render_report
from tunewright.errors import SettingsError, StoreError
from tunewright.model.trial import Timing, Trial
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import DECISION
from tunewright.torch.report.compile_report import as_dict

DIGEST = key().digest
EVERY = [
    ("/", {}), ("/kernel", {"name": "gemm"}), ("/shapes", {"name": "gemm"}),
    ("/kernel", {"name": EVIL}), ("/decision", {"key": DIGEST}),
    ("/decision", {"key": key(kernel=EVIL).digest}), ("/decision", {"key": key(2048).digest}), ("/explore", {}),
    ("/explore", {"key": DIGEST}), ("/strategies", {}), ("/strategies", {"key": DIGEST}), ("/races", {}),
    ("/race", {"key": DIGEST}), ("/resources", {}), ("/resources", {"name": FILED[0].name}), ("/schedules", {}),
    ("/schedules", {"name": FILED[1].name}), ("/torch", {}), ("/torch", {"name": FILED[2].name}),
    ("/torch", {"name": FILED[3].name}), ("/campaigns", {}),
    ("/bundles", {}), ("/counts", {}), ("/counts", {"name": FILED[4].name}),
]  # fmt: skip


class Read(HTMLParser):
    """What a browser makes of a page: its elements and their attributes, its scripts, its text."""

    VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})

    def __init__(self, html):
        super().__init__()
        self.found, self.open, self.scripts, self.text = [], [], [], ""
        self.feed(html)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif "style" not in self.open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(params=["memory", "sqlite"])
def views(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.sqlite")
    return Views(filled(store), "a store", reports=FILED)


def page(views, path, **query):
    answered = PAGES[path](views, query)
    assert answered.status == 200, answered.html
    return Read(answered.html)


@pytest.mark.parametrize(("path", "query"), EVERY)
def test_every_page_stands_and_runs_no_script_but_ours(views, path, query) -> None:
    read = page(views, path, **query)
    for attributes, text in read.scripts:
        assert attributes.get("src") in ("/static/dashboard.js", None)
        if "src" not in attributes:
            assert attributes["type"] == "application/json"
            json.loads(text)
    for tag, attributes in read.found:
        assert tag != "img"
        assert not any(name.startswith("on") for name in attributes)
        assert not str(attributes.get("href", "")).strip().lower().startswith("javascript:")


@pytest.mark.parametrize(("path", "query"), EVERY)
def test_every_page_can_be_walked_without_a_mouse_and_read_aloud(views, path, query) -> None:
    read = page(views, path, **query)
    tags = [tag for tag, _ in read.found]
    assert (tags.count("main"), tags.count("nav"), tags.count("h1")) == (1, 1, 1)
    assert dict(read.all("html")[0]) == {"lang": "en"}
    assert read.all("a")[0]["href"] == "#main"
    assert all(attributes.get("scope") in ("col", "row") for attributes in read.all("th"))
    assert tags.count("table") == tags.count("caption")
    assert all(attributes.get("aria-label") for attributes in read.all("svg"))
    ids = [attributes["id"] for _, attributes in read.found if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_names_that_bite_are_shown_as_they_are(views) -> None:
    read = page(views, "/")
    assert EVIL in read.text
    (link,) = [one for one in read.all("a") if "gotcha" in one.get("href", "")]
    assert re.fullmatch(r"/kernel\?name=[A-Za-z0-9%+._-]+", link["href"])
    assert "</script><script>" not in PAGES["/data/journal"](views, {"key": key(kernel=EVIL).digest}).html


def test_data_cannot_end_the_script_it_stands_in(views) -> None:
    told = PAGES["/data/journal"](views, {"key": key(kernel=EVIL).digest}).html
    assert "<" not in told
    assert json.loads(told)["kernel"] == EVIL
    whole = render_report(views)
    assert "<script>alert" not in whole
    assert len(re.findall(r"</script>", whole)) == len(Read(whole).scripts)


def test_the_overview_says_what_is_tuned_gained_missing_and_stale(views) -> None:
    text = page(views, "/").text
    for said in (
        "gemm",
        "conv",
        "3.00x",
        "quarantined" if views.quarantined else "stale",
        "interrupted",
        "noisy",
        "14 s at stake",
    ):
        assert said in text, said
    assert "toolchain.compiler was gcc 11" in text


def test_shapes_are_shown_by_the_configs_of_their_cover_with_the_rule() -> None:
    store = MemoryStore()
    for m, times in {4: (1.0, 2.0), 8: (1.0, 1.5), 64: (3.0, 1.0), 500: (4.0, 1.02)}.items():
        store.record(key(m), [Trial(Config(x=x), Timing((t,), "cpu")) for x, t in enumerate(times)])
    read = page(Views(store), "/shapes", name="gemm")
    for said in ("configs2of 2, each shape within 5%", "M ≤ 22", "x=0", "200.0%", "0.0% ◆", "Regret by shape"):
        assert said in read.text, said
    assert "/shapes?name=gemm" in [one.get("href") for one in page(Views(store), "/kernel", name="gemm").all("a")]
    assert 'data-path="/shapes?name=gemm"' in render_report(Views(store))
    assert PAGES["/shapes"](Views(store), {"name": "absent"}).status == 404


def test_predicted_times_of_shapes_are_marked_and_shapes_without_a_config_counted() -> None:
    store = MemoryStore()
    for m, times in {5: (1.0, 2.0), 6: (1.1, 2.2), 7: (1.2, None), 50: (None, 1.0), 600: (1.0, None)}.items():
        store.record(key(m), [Trial(Config(x=x), Timing((t,), "cpu")) for x, t in enumerate(times) if t])
    read = page(Views(store), "/shapes", name="gemm")
    assert "≈" in read.text
    assert "not verified" in read.text
    assert "configsmean slowerworstshapes not served10.0%0.0%1" in read.text
    assert "nan" not in read.text


def test_misses_are_by_time_at_stake_and_coverage_by_tier(views) -> None:
    text = page(views, "/").text
    assert text.index("M=64") < text.index("M=2048"), "9 s before 5 s"
    tiers = {str(tier): len(wants) for tier, wants in views.coverage().items()}
    assert tiers == {"nearest shape": 1, "architecture": 0, "default": 1}


def test_a_kernel_is_a_matrix_of_shapes_and_devices(views) -> None:
    read = page(views, "/kernel", name="gemm")
    assert any("H100" in text for text in read.text.split("\n")) or "H100, 8 cores" in read.text
    cells = [one for one in read.all("td") if "data-level" in one]
    assert len(cells) == 3
    assert "and 1 more" in read.text, "of the older toolchain"


def test_a_decision_shows_evidence_history_and_the_way_back(views) -> None:
    text = page(views, "/decision", key=DIGEST).text
    for said in (
        str(BEST.config),
        "portfolio",
        "3.00x",
        "0.8%",
        "Revisions",
        f"tunewright store rollback gemm --key {DIGEST[:10]}",
    ):
        assert said in text, said


def test_a_short_beginning_of_a_digest_will_do(views) -> None:
    assert PAGES["/decision"](views, {"key": DIGEST[:8]}).status == 200


@pytest.mark.parametrize(
    ("path", "query"),
    [("/kernel", {"name": "nope"}), ("/decision", {"key": ""}), ("/decision", {"key": "zz" * 32}),
     ("/race", {"key": DIGEST[:3]}), ("/race", {"key": key(1024).digest}), ("/bundle", {"digest": "00" * 32}),
     ("/resources", {"name": "../../etc/passwd"}),
     ("/explore", {"key": EVIL}), ("/data/journal", {"key": "'; DROP TABLE trials"}), ("/data/search", {"key": "x"})],
)  # fmt: skip
def test_what_is_not_there_is_said_so(views, path, query) -> None:
    answered = PAGES[path](views, query)
    assert answered.status == 404
    assert "<script>alert" not in answered.html


def test_an_unknown_path_has_a_page_too(views) -> None:
    answered = not_found(views, "/<b>")
    assert answered.status == 404
    assert "There is no page /<b>" in Read(answered.html).text


def test_a_store_that_is_away_is_said_so_with_status_503() -> None:
    class Away(MemoryStore):
        def decisions(self, kernel=None):
            raise StoreError("the server is away; try later")

    for path in ("/", "/data/journal"):
        answered = PAGES[path](Views(Away()), {"key": DIGEST})
        assert answered.status == 503
        assert "try later" in answered.html


def test_an_empty_store_says_how_to_fill_it() -> None:
    for path, query in [
        ("/", {}),
        ("/explore", {}),
        ("/strategies", {}),
        ("/races", {}),
        ("/campaigns", {}),
        ("/bundles", {}),
    ]:
        assert PAGES[path](Views(MemoryStore()), query).status == 200
    assert "tunewright tune" in PAGES["/"](Views(MemoryStore()), {}).html


def test_a_race_is_judged_again_from_its_transcript(views) -> None:
    read = page(views, "/race", key=DIGEST)
    assert "8 rounds, then out" in read.text
    assert "chosen" in read.text
    ((_, told),) = [script for script in read.scripts if script[1]]
    assert [track["leads"] for track in json.loads(told)["tracks"]] == [True, False, False, False]


def test_filed_reports_are_drawn_and_escaped(views) -> None:
    assert "it spills <much>" in page(views, "/resources", name=FILED[0].name).text
    steps = page(views, "/schedules", name=FILED[1].name)
    assert "tile <x>" in steps.text
    assert "+1 -1" in steps.text
    assert "keep it a tensor" in page(views, "/torch", name=FILED[2].name).text
    assert "void kernel(<T>)" in page(views, "/torch", name=FILED[3].name).text


def test_a_filed_journey_is_drawn_from_what_it_says_alone(views, tmp_path) -> None:
    (secret := tmp_path / "secret").write_text("a hidden treasure\n")
    place = {"file": str(secret), "line": 1}
    told = as_dict(small())
    told["final"] = [{**one, "place": place} for one in told["final"]]
    one = SavedReport("journey", "curious", told)
    answer = PAGES["/torch"](Views(MemoryStore(), reports=[one]), {"name": one.name})
    assert answer.status == 200
    assert "treasure" not in answer.html


@pytest.mark.parametrize(
    "wrong", [{"roof": {"peak": 0.0, "bandwidth": []}}, {"roof": {"peak": -1.0, "bandwidth": [[1, 0.0]]}}]
)
def test_a_journey_that_cannot_be_drawn_says_so(wrong) -> None:
    one = SavedReport("journey", "odd", {**as_dict(small()), **wrong})
    answer = PAGES["/torch"](Views(MemoryStore(), reports=[one]), {"name": one.name})
    assert answer.status == 400
    assert "save the output" in answer.html


@pytest.mark.parametrize(
    ("content", "kind"),
    [(PREBUILD, "resources"), (SCHEDULE, "schedule"), (DIAGNOSIS, "diagnosis"), (as_dict(small()), "journey")],
)
def test_reports_are_known_by_what_is_in_them_and_kept_on_a_shelf(content, kind) -> None:
    store, one = MemoryStore(), SavedReport.read(json.dumps(content).encode(), "a title")
    assert one.kind == kind
    one.save(store)
    store.keep("reports", "broken", b"{")
    assert [kept.title for kept in Views(store).saved_reports(kind)] == ["a title"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"rows": 1}', b"[1, 2]"])
def test_what_is_no_report_is_refused(body) -> None:
    with pytest.raises(SettingsError, match="save the output"):
        SavedReport.read(body, "x")


def test_the_style_sheet_and_the_scripts_are_there_to_be_served() -> None:
    assert STATIC["dashboard.css"].type == "text/css; charset=utf-8"
    assert b"prefers-color-scheme" in STATIC["dashboard.js"].body
    assert "nope.js" not in STATIC
    assert "../__init__.py" not in STATIC


def test_one_file_holds_all_pages_and_needs_nothing_else(views) -> None:
    read = Read(render_report(views, ReportLimits(searches=1)))
    sections = {one["data-path"] for one in read.all("section") if "data-path" in one}
    assert {"/", "/races", "/kernel?name=gemm", f"/explore?key={DIGEST}"} <= sections
    data = {attributes["data-path"] for attributes, _ in read.scripts if "data-path" in attributes}
    assert data == {f"/data/journal?key={one}" for one in (DIGEST, key(kernel=EVIL).digest)} | {
        f"/data/search?key={DIGEST}"
    }
    assert all("src" not in attributes for attributes, _ in read.scripts)
    assert all(not one.get("href", "#").startswith("/") for one in read.all("a"))
    inside = [one["href"][1:] for one in read.all("a") if one["href"].startswith("#/kernel")]
    assert set(inside) <= sections


def test_a_store_without_offers_can_be_shown_as_well() -> None:
    inner = filled(MemoryStore())

    class Plain:
        def __getattr__(self, name):
            if name not in ("get", "get_many", "relatives", "decisions", "trials", "keys"):
                raise AttributeError(name)
            return getattr(inner, name)

    views = Views(Plain())
    assert {tally.trials for tally in views.trial_counts()} == {len(TRIALS), 5}
    for path in ("/", "/races", "/resources", "/campaigns"):
        assert PAGES[path](views, {}).status == 200
    assert PAGES["/decision"](views, {"key": DIGEST}).status == 200


def test_what_was_read_is_read_again_after_a_while(monkeypatch) -> None:
    store, now = MemoryStore(), [0.0]
    monkeypatch.setattr("tunewright.dashboard.views.monotonic", lambda: now[0])
    views = Views(store)
    assert views.kernels() == []
    store.put(DECISION)
    assert views.kernels() == []
    now[0] = 60.0
    assert views.kernels() == ["gemm"]
