"""The service as its users meet it: look-ups, publishing, bundles, metrics, the end of it."""

import json
import os
import signal
import threading
from hashlib import sha256

import pytest

from tunewright.errors import SettingsError
from tunewright.model.decision import Tier
from tunewright.service.app import ROUTES
from tunewright.service.config import ServiceConfig
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.stores import locations, serialization
from tunewright.stores.bundle import build, signing
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED, other_decision, other_key


def test_every_route_says_which_scope_it_needs() -> None:
    every = [handler for route in ROUTES.routes for handler in route.route_handlers]
    free = {handler.handler_name for handler in every if "scope" not in handler.opt} - {"options_handler"}
    assert free == {"health", "ready"}


def test_a_key_is_answered_by_tiers(shared) -> None:
    import msgspec

    store = shared.store()
    near = other_key(kernel="tiers")
    store.put(other_decision(key=near))
    larger = msgspec.structs.replace(
        near, signature=msgspec.structs.replace(near.signature, dims={"M": 1024, "K": 256, "N": 128})
    )
    elsewhere = msgspec.structs.replace(
        near, device=msgspec.structs.replace(near.device, model="Other", limits={"cores": 2})
    )
    unknown = other_key(kernel="tiers", source="other")
    with shared.client("read") as client:
        asked = {
            "questions": [{"key": json.loads(serialization.encode(key))} for key in (near, larger, elsewhere, unknown)]
        }
        answers = client.post("/v1/decisions/nearest", json=asked).json()["answers"]
        assert [one and one["tier"] for one in answers] == [Tier.EXACT, Tier.NEAREST, Tier.ARCHITECTURE, None]
        assert answers[1]["decision"]["decision"]["config"] == DECISION.config.plain()
        strict = client.post("/v1/decisions/nearest", json={**asked, "like": False}).json()["answers"]
        assert [one and one["tier"] for one in strict] == [Tier.EXACT, None, None, None]


def test_what_is_published_is_seen_at_once_also_by_those_who_had_the_other_one(fresh) -> None:
    store = fresh.store()
    for size in range(20):
        decision = other_decision(config=Config(tile=size))
        store.put(decision)
        assert store.get(KEY) == decision
        assert store.get_many([KEY]) == {KEY: decision}


def test_many_who_replace_at_once_leave_one_and_all_generations(fresh) -> None:
    stores = [fresh.store() for _ in range(4)]

    def replace(number: int) -> None:
        for i in range(5):
            stores[number].put(other_decision(config=Config(tile=100 * number + i)))

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = stores[0].history(KEY)
    assert len(history) == 20
    assert stores[0].get(KEY) == history[-1].decision


def test_trials_of_a_batch_are_kept_whole_or_not_at_all(fresh) -> None:
    store = fresh.store()
    lines = [serialization.dump_key(KEY), serialization.dump_trial(TIMED), b'{"schema":1,"trial":{}}']
    with fresh.client("record") as client:
        assert client.post("/v1/trials", content=b"\n".join(lines)).status_code == 400
        assert client.post("/v1/trials", content=b"").status_code == 400
        assert list(store.trials(KEY)) == []
        good = b"\n".join([*lines[:2], serialization.dump_trial(FAILED)])
        assert client.post("/v1/trials", content=good).json() == {"recorded": 2}
    assert list(store.trials(KEY)) == [TIMED, FAILED]


def signed_bundle(tmp_path, *decisions):
    path, key = tmp_path / "a.bundle", tmp_path / "key.pem"
    if not key.exists():
        signing.generate_key(key)
    build.write(path, build.build(decisions), signing.load_private_key(key))
    body = path.read_bytes()
    return body, sha256(body).hexdigest()


def test_a_bundle_is_kept_by_its_digest_and_cached_for_ever(shared, tmp_path) -> None:
    body, digest = signed_bundle(tmp_path, DECISION)
    with shared.client("read", "sign") as client:
        assert client.put(f"/v1/bundles/{'0' * 64}", content=body).status_code == 400
        for short in (body[:-5], b"x", b"x" * 96, b""):
            assert client.put(f"/v1/bundles/{sha256(short).hexdigest()}", content=short).status_code == 400
        assert client.put(f"/v1/bundles/{digest}", content=body).status_code == 200
        assert digest in {one["digest"] for one in client.get("/v1/bundles").json()["bundles"]}
        whole = client.get(f"/v1/bundles/{digest}")
        assert whole.content == body
        assert "immutable" in whole.headers["cache-control"]
        tag = whole.headers["etag"]
        for asked in (tag, "*", f'"other", {tag}'):
            again = client.get(f"/v1/bundles/{digest}", headers={"if-none-match": asked})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
        assert client.get(f"/v1/bundles/{digest}", headers={"if-none-match": '"other"'}).status_code == 200
        for asked, (start, end) in {"0-9": (0, 10), "10-": (10, None), "-7": (-7, None)}.items():
            part = client.get(f"/v1/bundles/{digest}", headers={"range": f"bytes={asked}"})
            assert (part.status_code, part.content) == (206, body[start:end])
            assert part.headers["content-range"].endswith(f"/{len(body)}")
        assert client.get(f"/v1/bundles/{digest}", headers={"range": "bytes=999999999-"}).status_code == 416
        for odd in (f"bytes={'9' * 5000}-", "bytes=a-b", "bytes=1-2,5-6", "lines=1-2", "bytes=-"):
            assert client.get(f"/v1/bundles/{digest}", headers={"range": odd}).content == body
        head = client.head(f"/v1/bundles/{digest}")
        assert (head.status_code, head.content) == (200, b"")
        assert client.get(f"/v1/bundles/{'1' * 64}").status_code == 404


def test_metrics_say_what_was_asked_and_found(fresh, wait_until) -> None:
    store = fresh.store()
    store.put(DECISION)
    for _ in range(3):
        store.get_many([KEY, other_key(kernel="missing")])
    store.record(KEY, [TIMED, TIMED])
    lines = (
        'tunewright_publishes_total{outcome="stands"} 1.0',
        'tunewright_lookups_total{found="missed"} 3.0',
        'tunewright_lookups_total{found="stored"} 1.0',
        'tunewright_lookups_total{found="warm"} 2.0',
        "tunewright_trials_total 2.0",
        "tunewright_queue_depth",
        'tunewright_request_duration_seconds_bucket{le="0.005",route="/v1/decisions/lookup"}',
    )
    with fresh.client("read") as client:  # a request is counted when it is answered
        wait_until(lambda: all(line in client.get("/metrics").text for line in lines), "all that was counted")


def test_it_says_who_it_is_and_what_can_be_asked(shared) -> None:
    with shared.client("read") as client:
        assert client.get("/v1/health").json()["status"] == "here"
        assert client.get("/v1/ready").json() == {"status": "ready"}
        schema = client.get("/schema/openapi.json").json()
    assert schema["openapi"].startswith("3.")
    assert "/v1/decisions/lookup" in schema["paths"]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.slow
def test_sigterm_lets_what_was_begun_end(serve, wait_until) -> None:
    service = serve("--drain", "300")
    store = service.store()
    keys = [other_key(mode={"n": str(i)}) for i in range(5000)]
    locations.open_single(service.place).fill([other_decision(key=key) for key in keys])
    answer = iter(store.decisions())
    assert next(answer).key in keys, "the answer has begun"
    os.kill(service.server.pids[0], signal.SIGTERM)
    assert sum(1 for _ in answer) == 4999
    wait_until(lambda: not service.server.pids, "the end of the service")
    service.server.start()
    assert service.store().get(keys[0]) is not None


def test_a_program_uses_it_by_its_location_and_the_token_in_the_environment(shared, monkeypatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_TOKEN", shared.token("read", "record", "publish"))
    session = Session(store=shared.location)
    decision = other_decision(key=other_key(kernel="by location"))
    session.store.put(decision)
    assert session.store.get(decision.key) == decision
    assert "tw_" not in session.settings.store_name
    assert locations.open_single(shared.place).get(decision.key) == decision


def test_a_service_that_is_away_is_a_miss_not_a_crash(monkeypatch) -> None:
    session = Session(store="http://127.0.0.1:9/")
    assert session.store.get(KEY) is None
    session.store.put(DECISION)
    assert session.store.get(KEY) == DECISION


def test_what_would_be_unsafe_is_not_served() -> None:
    for wrong, said in (
        ({"address": "0.0.0.0"}, "unencrypted"),
        ({"address": "0.0.0.0", "open": True, "proxied": True}, "everybody"),
        ({"certificate": "a.pem"}, "TLS needs a certificate"),
    ):
        with pytest.raises(SettingsError, match=said):
            ServiceConfig(store="x", **wrong)
    assert ServiceConfig(store="x", address="0.0.0.0", proxied=True).port
