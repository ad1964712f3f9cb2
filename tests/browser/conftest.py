"""A real browser, and pages served to it as a service would serve them."""

import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboard"))  # the small store that pages are tried on

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


ALIVE = """[...document.querySelectorAll('[data-kind]')].every(one =>
!one.offsetParent || ['done', 'failed'].includes(one.dataset.alive))"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as started:
        # In a container there is often no user namespace for its sandbox; the pages are ours.
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Tab:
    """A page of the browser that notes what it complains of."""

    def __init__(self, context, base):
        self.page, self._base = context.new_page(), base
        self.complaints = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, address):
        self.page.goto(self._base + address)
        self.wait(ALIVE)
        return self.page

    def wait(self, condition, seconds=300.0):
        """Asked from here, again and again: to wait in the page is to evaluate text, which its policy forbids."""
        until = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < until, condition
            self.page.wait_for_timeout(30)


@pytest.fixture
def tabs(browser):
    """Tabs on an address, closed at the end; none of them may have complained."""
    contexts, made = [], []

    def opened(base, theme="light"):
        contexts.append(browser.new_context(color_scheme=theme, viewport={"width": 1280, "height": 900}))
        contexts[-1].set_default_timeout(300_000)  # it only ends what would hang
        made.append(Tab(contexts[-1], base))
        return made[-1]

    yield opened
    for context in contexts:
        context.close()
    assert [complaint for tab in made for complaint in tab.complaints] == []
