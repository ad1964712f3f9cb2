"""What is answered without the framework is answered as with it."""

from tunewright.stores import locations
from tunewright.testing.keys import DECISION, KEY

CHANGING = ("x-request-id", "date")


def same(one, other) -> None:
    assert one.status_code == other.status_code
    assert one.content == other.content
    headers = [{name: text for name, text in said.headers.items() if name not in CHANGING} for said in (one, other)]
    assert headers[0] == headers[1]


def routes(client) -> dict[str, float]:
    """Requests so far, by the route they are counted under."""
    lines = [line for line in client.get("/metrics").text.splitlines() if "_seconds_count{" in line]
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines if "decisions" in line}


def test_a_warm_record_is_answered_as_a_cold_one_and_counted_the_same(fresh, wait_until) -> None:
    locations.open_authoritative(fresh.place).put(DECISION)
    with fresh.client("read") as client:
        same(*(client.get(f"/v1/decisions/{KEY.digest}") for _ in range(2)))
        one = {"accept-encoding": "identity"}
        cold = client.post("/v1/decisions/lookup", json={"digests": [KEY.digest, "0" * 64]}, headers=one)
        warm = client.post("/v1/decisions/lookup", json={"digests": [KEY.digest]}, headers=one)
        same(cold, warm)
        # A request is counted when it is answered.
        wait_until(lambda: sorted(routes(client).values()) == [2.0, 2.0], "two requests of each route")


def test_what_a_token_may_not_read_stays_unread_however_warm_it_is(fresh) -> None:
    locations.open_authoritative(fresh.place).put(DECISION)
    with fresh.client("read") as reader, fresh.client("record") as other, fresh.client(token="") as stranger:
        for _ in range(2):
            assert reader.get(f"/v1/decisions/{KEY.digest}").status_code == 200
            assert other.get(f"/v1/decisions/{KEY.digest}").status_code == 403
            assert other.post("/v1/decisions/lookup", json={"digests": [KEY.digest]}).status_code == 403
            assert stranger.get(f"/v1/decisions/{KEY.digest}").status_code == 401


def test_a_body_that_is_wrong_is_refused_in_words(fresh) -> None:
    with fresh.client("read") as client:
        for body in (b"{", b'{"digests": 3}', b'{"digests": [], "more": 1}', b"[" * 5000):
            said = client.post("/v1/decisions/lookup", content=body, headers={"content-type": "application/json"})
            assert said.status_code == 400, body
            assert said.json()["error"]
