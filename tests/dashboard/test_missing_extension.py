"""The dashboard without the extensions that draw some of its reports."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
for name in {hidden!r}:
    sys.modules[name] = None  # the import system then finds no such module

from tunewright.dashboard import PAGES, SavedReport, Views, render_report
from tunewright.stores.memory import MemoryStore

report = SavedReport({kind!r}, "a report", {content!r})
store = MemoryStore()
report.save(store)
views = Views(store)
page = PAGES[{path!r}](views, {{"name": report.name}})
print(json.dumps({{
    "overview": PAGES["/"](views, {{}}).status,
    "list": PAGES[{path!r}](views, {{}}).html,
    "status": page.status,
    "html": page.html,
    "file": render_report(views),
}}))
"""

REPORTS = [
    ("tunewright.torch", "journey", {"name": "model"}, "/torch"),
    ("tunewright.mlir", "schedule", [{"name": "payload", "script": "", "code": "a"}], "/schedules"),
    ("tunewright.triton", "resources",
     {"kernel": "matmul", "planned": 1, "rows": [{"target": "sm_90", "config": {"BLOCK": 64}, "keep": True}]},
     "/resources"),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "kind", "content", "path"), REPORTS)
def test_a_report_of_a_missing_extension_says_which_one_it_needs(extension, kind, content, path) -> None:
    program = PROGRAM.format(hidden=[extension], kind=kind, content=content, path=path)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = json.loads(result.stdout)
    assert pages["overview"] == 200
    assert "a report" in pages["list"], "it is still listed"
    assert pages["status"] == 501
    assert f"needs the extension {extension}" in pages["html"]
    assert f"needs the extension {extension}" in pages["file"]


def test_the_dashboard_loads_without_any_of_them() -> None:
    hidden = [extension for extension, *_ in REPORTS]
    program = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); import tunewright.dashboard"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_it_loads_an_extension_only_when_a_report_needs_it() -> None:
    names = [extension for extension, *_ in REPORTS]
    program = f"import sys, tunewright.dashboard; print([name for name in {names!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
