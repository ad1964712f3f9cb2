"""The dashboard on many trials: how soon each page is painted in a real browser, and what it complains of.

    python benchmarks/dashboard.py [--spaces DIR] [--copies 5] [--pictures DIR] [--quick] [--json]

Recordings in DIR (NAME.parquet with NAME.json beside it) become the journals of a fresh SQLite store, each as often as
`--copies` says, under keys of their own; what is decided for each is the best config recorded, compared with the
median one. Every page is opened in chromium, light and dark, served from this process with the policy that a service
sends; the store is read anew for each. `first_paint_ms` is the least of the repeats, since a browser shares the
machine with whatever else runs; all of them are in the JSON. `server_ms` is CPU time to make a page from a store that
nobody has read yet.

Needs playwright, chromium, and the extras `plot` and `replay`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from figures import Goal, Report, parser
from search import OWN, SHARED

from tunewright.backends.replay import Recording
from tunewright.dashboard import PAGES, Views
from tunewright.model.decision import Decision, Evidence
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import MissRecord

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

PAINT = """() => new Promise(done => new PerformanceObserver(list => {
for (const one of list.getEntries()) if (one.name === 'first-contentful-paint') done(one.startTime)})
.observe({type: 'paint', buffered: true}))"""
ALIVE = """[...document.querySelectorAll('[data-kind]')].every(one => ['done', 'failed'].includes(one.dataset.alive))"""
GOALS = [Goal("first_paint_ms", "<", 1500.0), Goal("complaints", "==", 0), Goal("trials", ">=", 200_000)]


def key_of(recording: Recording, size: int) -> Key:
    device = Device("cuda", recording.device, "recorded")
    return Key(recording.kernel, "recorded", Signature(("float32[N]",), {"N": size}), device, {"recorded": "1"})


def fill(store: SqliteStore, folder: Path, copies: int) -> int:
    """Every recording as journals with a decision and a want each; how many trials that is."""
    total = 0
    for file in sorted(folder.glob("*.parquet")):
        recording = Recording.read(file)
        trials, best = list(recording.trials.values()), recording.best
        times = sorted(trial.seconds for trial in trials if trial.works)
        counts = {"trials": len(trials), "failures": len(trials) - len(times)}
        for copy in range(copies):
            key = key_of(recording, 4096 << copy)
            store.record(key, trials)
            said = Evidence(best.seconds, best.seconds, best.seconds, times[len(times) // 2], **counts)
            store.put(Decision(key, best.config, said))
            total += len(trials)
        store.record_misses([MissRecord(key_of(recording, 1000), 100, 100 * times[len(times) // 2])])
    return total


def addresses(shown: Views) -> dict[str, tuple[str, dict[str, str]]]:
    key = shown.trial_counts()[0].key
    small = min(shown.trial_counts(), key=lambda tally: tally.trials).key
    return {
        "overview": ("/", {}),
        "kernel": ("/kernel", {"name": key.kernel}),
        "decision": ("/decision", {"key": key.digest}),
        "spaces": ("/explore", {}),
        "explorer": ("/explore", {"key": key.digest}),
        "strategies": ("/strategies", {"key": small.digest}),
        "races": ("/races", {}),
        "resources": ("/resources", {}),
        "schedules": ("/schedules", {}),
        "torch": ("/torch", {}),
        "campaigns": ("/campaigns", {}),
        "bundles": ("/bundles", {}),
    }


def server_ms(store: SqliteStore, path: str, query: dict[str, str]) -> float:
    """CPU time to make a page of a store that nobody has read yet."""
    began = process_time()
    assert PAGES[path](Views(store), query).status == 200
    return round(1e3 * (process_time() - began), 1)


def visits(
    browser, base: str, theme: str, repeats: int, shown: Views
) -> Iterator[tuple[str, list[float], list[str], object]]:
    """Each page with its paints, its complaints and the tab that it is open in."""
    from urllib.parse import urlencode

    for name, (path, query) in addresses(shown).items():
        paints, said = [], []
        for _ in range(repeats):
            context = browser.new_context(color_scheme=theme, viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.on("console", lambda one, said=said: said.append(one.text) if one.type == "error" else None)
            page.on("pageerror", lambda one, said=said: said.append(str(one)))
            shown._cache.clear()  # as if the page were the first to be asked for
            page.goto(f"{base}{path}?{urlencode(query)}")
            paints.append(round(page.evaluate(PAINT), 1))
            for _ in range(2000):
                if page.evaluate(ALIVE):
                    break
                page.wait_for_timeout(50)
            yield name, paints, said, page
            context.close()


def main() -> int:
    arguments = parser(__doc__)
    place = SHARED / "spaces" if (SHARED / "spaces").is_dir() else OWN
    arguments.add_argument("--spaces", type=Path, default=place, metavar="DIR", help="a folder of recordings")
    arguments.add_argument("--copies", type=int, default=1, help="how often each becomes a journal")
    arguments.add_argument("--pictures", type=Path, help="also keep a picture of each page here")
    given = arguments.parse_args()
    from playwright.sync_api import sync_playwright
    from serving import served

    report = Report()
    with TemporaryDirectory() as folder, sync_playwright() as started:
        store = SqliteStore(Path(folder) / "store.sqlite")
        report.figures["trials"] = fill(store, given.spaces, given.copies)
        shown = Views(store, "store.sqlite")
        made = {name: server_ms(store, *place) for name, place in addresses(shown).items()}
        paints: dict[str, dict[str, list[float]]] = {}
        complaints: list[str] = []
        with served(shown) as base:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for theme in ("light", "dark"):
                for name, times, said, page in visits(browser, base, theme, 1 if given.quick else 3, shown):
                    paints.setdefault(name, {})[theme] = times
                    complaints += [f"{name}, {theme}: {one}" for one in said]
                    if given.pictures:
                        given.pictures.mkdir(parents=True, exist_ok=True)
                        page.screenshot(path=given.pictures / f"{name}-{theme}.png")
            browser.close()
    least = {name: min(min(times) for times in both.values()) for name, both in paints.items()}
    report.figures |= {
        "first_paint_ms": max(least.values()),
        "complaints": len(complaints),
        "paints": paints,
        "server_ms": made,
    }
    report.lines.append(f"{report.figures['trials']:,} trials; first paint in ms, least and most; CPU ms of the server")
    for name, both in paints.items():
        every = [time for times in both.values() for time in times]
        report.lines.append(f"  {name:12} {min(every):7.0f} {max(every):7.0f}   {made[name]:7.1f}")
    report.check(not complaints, "; ".join(complaints))
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
