"""The dashboard as the service serves it."""

from hashlib import sha256

import httpx
import pytest

from tunewright import Config
from tunewright.dashboard import PAGES
from tunewright.model.trial import Timing, Trial
from tunewright.stores import locations
from tunewright.stores.bundle import build, signing
from tunewright.testing.keys import DECISION, KEY

OF_SOMETHING = ("/kernel", "/decision", "/race", "/bundle", "/shapes", "/data/journal", "/data/search")
"""Pages that must be told of what."""


def test_every_page_is_served_to_who_may_read_and_only_to_them(fresh) -> None:
    locations.open_authoritative(fresh.place).put(DECISION)
    with fresh.client("read") as client, fresh.client(token="") as stranger:
        for path in PAGES:
            said = client.get(path)
            assert (said.status_code == 200) == (path not in OF_SOMETHING), (path, said.text)
            assert said.status_code < 500
            assert "script-src" in said.headers["content-security-policy"]
            assert stranger.get(path).status_code == 401
        assert KEY.kernel in client.get("/").text
        assert client.get("/static/dashboard.js").status_code == 200


@pytest.mark.slow
def test_bundles_that_are_kept_are_shown_with_what_is_in_them(fresh, tmp_path, wait_until) -> None:
    signing.generate_key(tmp_path / "key.pem")
    with fresh.client("read", "sign") as client:
        assert "There are no bundles" in client.get("/bundles").text
    store, digests = locations.open_authoritative(fresh.place), []
    store.put(DECISION)
    with fresh.client("read", "sign") as client:
        for config in (DECISION.config, Config(step=77)):
            path = tmp_path / "one.bundle"
            build.write(
                path, build.build([DECISION.replace(config=config)]), signing.load_private_key(tmp_path / "key.pem")
            )
            digests.append(sha256(path.read_bytes()).hexdigest())
            assert client.put(f"/v1/bundles/{digests[-1]}", content=path.read_bytes()).status_code == 200
        wait_until(lambda: digests[1][:16] in client.get("/bundles").text, "the bundle that was put last")
        every = client.get("/bundles").text
        assert digests[0][:16] in every
        assert KEY.kernel in every
        same, other = (client.get("/bundle", params={"digest": digest}).text for digest in digests)
        assert "0 differences" in same
        assert "1 difference" in other
        assert "step=77" in client.get("/bundle", params={"digest": digests[0], "against": digests[1]}).text


def test_a_damaged_bundle_is_not_shown(fresh, tmp_path) -> None:
    signing.generate_key(tmp_path / "key.pem")
    path = tmp_path / "one.bundle"
    build.write(path, build.build([DECISION]), signing.load_private_key(tmp_path / "key.pem"))
    digest = sha256(path.read_bytes()).hexdigest()
    with fresh.client("read", "sign") as client:
        client.put(f"/v1/bundles/{digest}", content=path.read_bytes())
        locations.open_authoritative(fresh.place).keep("service:bundles", digest, b"damaged")
        said = client.get("/bundle", params={"digest": digest})
    assert said.status_code == 503
    assert "damaged" in said.text


@pytest.mark.slow
def test_trials_are_told_to_who_listens(fresh) -> None:
    store = locations.open_authoritative(fresh.place)
    store.record(KEY, [Trial(Config(step=1), Timing((1e-3,), "wall"))])
    with fresh.client("read") as client, client.stream("GET", "/events", timeout=httpx.Timeout(300)) as told:
        assert told.headers["content-type"].startswith("text/event-stream")
        lines = told.iter_lines()
        assert next(lines).startswith("retry")
        store.record(KEY, [Trial(Config(step=step), Timing((1e-3,), "wall")) for step in (2, 3)])
        data = next(line for line in lines if line.startswith("data:"))
    assert "2 new trials, 3 in total" in data
    assert KEY.kernel in data
