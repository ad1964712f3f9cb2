"""The service against its own description and against noise: no request makes it fail."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunewright.errors import StoreError, WireError
from tunewright.service.bundles import _range
from tunewright.service.schemas import is_digest, is_name
from tunewright.service.tokens import RateBucket, split_token
from tunewright.stores import serialization
from tunewright.stores.http.location import ServiceLocation
from tunewright.stores.location_text import address_of
from tunewright.testing.keys import DECISION, KEY, other_key

SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "401", "404", "409", "413"]
{records}
"""

RECORDS = """
[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "413"]
"""

OPAQUE = ("POST /v1/decisions", "POST /v1/trials", "PUT /v1/bundles/{digest}")
"""They take records and bundles, which are described elsewhere: that it is a body is all that a schema says of them."""

HOOKS = """
import schemathesis

def whole(value):
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

@schemathesis.hook
def map_body(context, body):
    return whole(body)  # a schema takes 3.0 for an integer; we do not, and it has no way to say so

@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return str(value).encode()
"""


@pytest.mark.slow
def test_every_route_keeps_to_its_description_whatever_is_sent(serve, tmp_path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        pytest.skip("schemathesis is not installed")
    service = serve()
    token = service.token("admin")
    (tmp_path / "schemathesis.toml").write_text(
        SETTINGS.format(records="".join(RECORDS.format(name=name) for name in OPAQUE))
    )
    (tmp_path / "hooks.py").write_text(HOOKS)
    command = [program, "run", f"{service.location}/schema/openapi.json", "-H", f"Authorization: Bearer {token}"]
    command += ["--checks", "all", "--phases", "coverage,fuzzing", "--max-examples", "10", "--no-color"]
    command += ["--request-timeout", "300"]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert '"status":5' not in service.server.log.read_text()


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_location_or_an_error(text) -> None:
    for location in (f"https://{text}", f"https://secret-token@host/{text}", f"http://secret-token@127.0.0.1?{text}"):
        with suppress(StoreError):
            ServiceLocation.parse(location)
    assert "secret-token" not in address_of("https://secret-token@host/" + text.replace("@", ""))


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_token_in_two_parts_or_none(text) -> None:
    number, secret = split_token(text)
    assert bool(number) == bool(secret)
    assert not number or text == f"tw_{number}_{secret}"


@settings(deadline=None)
@given(st.one_of(st.text(), st.from_regex(r"bytes=\d*-\d*", fullmatch=True)), st.integers(1, 10_000))
def test_any_range_is_within_what_there_is_or_not_understood(text, size) -> None:
    found = _range(text, size)
    if found is not None and found[0] < found[1]:
        assert 0 <= found[0] < found[1] <= size


@settings(deadline=None)
@given(st.text())
def test_a_digest_is_no_path_and_a_name_is_none_of_ours(text) -> None:
    assert not is_digest(text) or (len(text) == 64 and set(text) <= set("0123456789abcdef"))
    assert not is_name("service:" + text)


@settings(deadline=None)
@given(st.floats(0.1, 1e6), st.lists(st.floats(0.0, 10.0), max_size=50))
def test_a_bucket_never_lets_through_more_than_its_rate_and_a_second_saved_up(rate, pauses) -> None:
    bucket, now, taken = RateBucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now) == 0.0
    assert taken <= max(1.0, rate) + now * rate + 1e-6


def test_a_bucket_fills_again_as_time_passes() -> None:
    bucket = RateBucket(5.0, 100.0)
    assert [bucket.take(100.0) for _ in range(5)] == [0.0] * 5
    assert bucket.take(100.0) == pytest.approx(0.2)
    assert bucket.take(100.1) == pytest.approx(0.1)
    assert bucket.take(100.3) == 0.0
    assert bucket.take(100.3) > 0.0


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["/v1/trials", "/v1/decisions", "/v1/decisions/lookup", "/v1/untuned"]))
def test_noise_is_refused_and_breaks_nothing(shared, noise, path) -> None:
    with shared.client() as client:
        answer = client.post(path, content=noise, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 413, 415)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_damaged_record_is_refused_or_still_one(shared, data) -> None:
    body = bytearray(serialization.dump_key(other_key(kernel="damaged")) + b"\n")
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with shared.client() as client:
        answer = client.post("/v1/trials", content=bytes(body))
    if answer.status_code != 200:
        assert answer.status_code in (400, 413)
        return
    try:
        serialization.load_key(bytes(body).splitlines()[0])
    except WireError as error:
        raise AssertionError("it took what cannot be read") from error


def test_what_no_store_could_keep_is_refused(shared) -> None:
    import json

    import msgspec

    nul = msgspec.structs.replace(KEY, kernel="a\0b")
    deep = msgspec.structs.replace(KEY, mode={"x": "a\0b"})
    huge = msgspec.structs.replace(KEY, signature=msgspec.structs.replace(KEY.signature, dims={"M": 1 << 80}))
    long = msgspec.structs.replace(KEY, kernel="k" * 2000)
    with shared.client() as client:
        for key in (nul, deep, huge, long):
            record = {"decision": json.loads(serialization.dump_decision(DECISION.replace(key=key)))}
            assert client.post("/v1/decisions", json=record).status_code == 400
            assert client.post("/v1/trials", content=serialization.dump_key(key)).status_code == 400
            want = {"wants": [{"key": json.loads(serialization.encode(key))}]}
            assert client.post("/v1/untuned", json=want).status_code == 400
        key = json.loads(serialization.encode(KEY))
        for calls, seconds in ((1 << 70, 1.0), (-1, 1.0), (1, -1.0), (1, 1e300)):
            want = {"wants": [{"key": key, "calls": calls, "seconds": seconds}]}
            assert client.post("/v1/untuned", json=want).status_code == 400
