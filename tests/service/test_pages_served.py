"""The dashboard as the service serves it."""

import httpx

from tunewright import Config
from tunewright.model.trial import Timing, Trial
from tunewright.report.pages import PAGES
from tunewright.stores import places
from tunewright.testing.keys import DECISION, KEY

OF_SOMETHING = ("/kernel", "/decision", "/race", "/bundle", "/data/journal", "/data/search")
"""Pages that must be told of what."""


def test_every_page_is_served_to_who_may_read_and_only_to_them(fresh) -> None:
    places.truth(fresh.place).put(DECISION)
    with fresh.client("read") as client, fresh.client(token="") as stranger:
        for path in PAGES:
            said = client.get(path)
            assert (said.status_code == 200) == (path not in OF_SOMETHING), (path, said.text)
            assert said.status_code < 500
            assert "script-src" in said.headers["content-security-policy"]
            assert stranger.get(path).status_code == 401
        assert KEY.kernel in client.get("/").text
        assert client.get("/static/dashboard.js").status_code == 200


def test_trials_are_told_to_who_listens(fresh) -> None:
    store = places.truth(fresh.place)
    store.record(KEY, [Trial(Config(step=1), Timing((1e-3,), "wall"))])
    with fresh.client("read") as client, client.stream("GET", "/events", timeout=httpx.Timeout(40)) as told:
        assert told.headers["content-type"].startswith("text/event-stream")
        lines = told.iter_lines()
        assert next(lines).startswith("retry")
        store.record(KEY, [Trial(Config(step=step), Timing((1e-3,), "wall")) for step in (2, 3)])
        data = next(line for line in lines if line.startswith("data:"))
    assert "2 more, 3 in all" in data
    assert KEY.kernel in data
