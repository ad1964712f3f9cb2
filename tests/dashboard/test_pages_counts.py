"""The page of counts shows the source with the counts of two configs, and refuses what is not saved."""

import pytest
from sample_store import COUNTS, FILED

from tunewright.dashboard import PAGES, SavedReport, Views
from tunewright.stores import serialization
from tunewright.stores.memory import MemoryStore

COUNTED = FILED[4]
SINGLE = SavedReport("counts", "one", {
    "kernel": "transpose", "target": "sm_80", "rung": "emulated", "source": [], "config": {"PAD": "2"},
    "counters": {"warp_instructions": 45}, "lines": [],
})  # fmt: skip


def shown(reports, status=200, **query):
    answered = PAGES["/counts"](Views(MemoryStore(), "a store", reports=reports), query)
    assert answered.status == status, answered.html
    return answered.html


def test_the_source_stands_beside_the_counts_of_both_configs() -> None:
    html = shown([COUNTED], name=COUNTED.name)
    assert "if (a &lt; b)" in html
    assert "80</td>" in html
    assert "81</td>" in html
    assert "1,234" in html
    assert ">1.01<" in html, "the second over the first"
    assert "barriers" not in html, "counts of zero are left out"


def test_a_config_of_another_report_of_the_kernel_can_be_the_second() -> None:
    html = shown([COUNTED, SINGLE], name=COUNTED.name, against=f"{SINGLE.name}.0")
    assert ">0.50<" in html
    assert "sm_80" in html


def test_a_report_of_one_config_without_source_is_shown() -> None:
    html = shown([SINGLE], name=SINGLE.name)
    assert "could not be read" in html
    assert "second over first" not in html


@pytest.mark.parametrize("query", [{"name": "x"}, {"name": COUNTED.name, "against": "../etc"}])
def test_what_is_not_saved_is_not_found(query) -> None:
    assert "saved as" in shown([COUNTED], 404, **query)


def test_the_output_of_the_command_is_known_as_a_report_of_counts() -> None:
    assert SavedReport.read(serialization.encode(COUNTS), "c").kind == "counts"
