"""One test for each threat of docs/security.md, against a real service."""

import gzip
import json
import socket
import time
from hashlib import sha256
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.trial import Timing, Trial
from tunewright.service.tokens import TOKEN_NAMESPACE, Scope
from tunewright.spaces.config import Config
from tunewright.stores import locations, serialization
from tunewright.stores.bundle import signing
from tunewright.stores.http import HttpStore
from tunewright.testing.keys import DECISION, KEY, TIMED, other_decision, other_key

ROUTES = {  # every kind of thing that can be asked for, and what it takes
    "read": [
        ("GET", "/v1/decisions"),
        ("GET", f"/v1/decisions/{'0' * 64}"),
        ("GET", "/v1/bundles"),
        ("GET", "/metrics"),
    ],
    "record": [("POST", "/v1/trials"), ("POST", "/v1/leases/claim"), ("POST", "/v1/untuned")],
    "publish": [("POST", "/v1/decisions")],
    "sign": [("PUT", f"/v1/bundles/{'0' * 64}")],
    "admin": [("GET", "/v1/audit")],
}
EVERY = [(scope, *route) for scope, routes in ROUTES.items() for route in routes]
NASTY = "'; DROP TABLE decisions; --"


def published(decision, **more):
    return {"decision": json.loads(serialization.dump_decision(decision)), **more}


@pytest.mark.parametrize(("scope", "method", "path"), EVERY)
def test_without_a_token_nothing_opens(shared, scope, method, path) -> None:
    for token in ("", "tw_0123456789abcdef_nonsense", "nonsense", "tw__", "tw_\xff"):
        headers = {"authorization": f"Bearer {token}".encode("latin-1")} if token else {}
        answer = httpx.request(method, shared.location + path, headers=headers, trust_env=False, timeout=300)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("scope", "method", "path"), EVERY)
def test_a_token_of_another_scope_opens_nothing_either(shared, scope, method, path) -> None:
    others = [str(other) for other in Scope if other not in (scope, "admin")]
    with shared.client(*others) as client:
        answer = client.request(method, path, headers={"content-type": "application/json"}, content=b"{}")
        assert answer.status_code == 403, answer.text
        assert scope in answer.json()["error"]


def test_a_revoked_token_opens_nothing_after_a_moment(shared, wait_until) -> None:
    text = shared.token("read")
    with shared.client(token=text) as client:
        assert client.get("/v1/decisions").status_code == 200
        shared.tokens.revoke(text.split("_")[1])
        wait_until(lambda: client.get("/v1/decisions").status_code == 401, "a token that opens nothing")
        assert client.get("/v1/decisions").status_code == 401


@pytest.mark.clock("within 5 s of the revocation")
def test_a_token_is_revoked_within_seconds(shared, wait_until) -> None:
    text = shared.token("read")
    with shared.client(token=text) as client:
        assert client.get("/v1/decisions").status_code == 200
        shared.tokens.revoke(text.split("_")[1])
        wait_until(lambda: client.get("/v1/decisions").status_code == 401, "a token that opens nothing", seconds=5)


def test_a_rotated_token_is_good_until_its_grace_ends(shared, wait_until) -> None:
    former = shared.token("read")
    _, text = shared.tokens.rotate(former.split("_")[1], grace=3600)
    with shared.client(token=former) as old, shared.client(token=text) as new:
        assert new.get("/v1/decisions").status_code == 200
        assert old.get("/v1/decisions").status_code == 200
        shared.tokens.rotate(former.split("_")[1], grace=0)
        for client in (old, new):
            wait_until(lambda client=client: client.get("/v1/decisions").status_code == 401, "the end of its grace")


def test_an_expired_token_opens_nothing(shared) -> None:
    with shared.client("read", until=time.time() - 1) as client:
        assert client.get("/v1/decisions").status_code == 401


def test_tokens_are_kept_as_digests_that_open_nothing(shared) -> None:
    text = shared.token("read")
    secret = text.split("_", 2)[2]
    for path in Path(shared.place).parent.glob("store.sqlite*"):
        assert secret.encode() not in path.read_bytes()
    token = shared.tokens.find(text.split("_")[1])
    with shared.client(token=f"tw_{token.id}_{token.digest}") as client:
        assert client.get("/v1/decisions").status_code == 401


def test_what_the_service_keeps_for_itself_cannot_be_reached_through_it(shared) -> None:
    with shared.client() as client:
        asked = {"shelf": TOKEN_NAMESPACE, "names": ["x"]}
        assert client.post("/v1/shelves/fetch", json=asked).status_code == 400
        assert client.get("/v1/shelves", params={"shelf": TOKEN_NAMESPACE}).status_code == 400
        kept = {"shelf": TOKEN_NAMESPACE, "name": "x", "body": ""}
        assert client.post("/v1/shelves/keep", json=kept).status_code == 400
        assert client.post("/v1/shelves/clear", json={"shelf": TOKEN_NAMESPACE}).status_code == 400
        lease = {"name": "service:publish:x", "owner": "me", "seconds": 1}
        assert client.post("/v1/leases/claim", json=lease).status_code == 400
    assert shared.tokens.all()


def test_a_body_that_is_too_large_is_refused(shared) -> None:
    with shared.client("record", largest=10_000) as client:
        assert client.post("/v1/trials", content=b"x" * 10_001).status_code == 413

        def parts():
            for _ in range(20):
                yield b"x" * 1000

        assert client.post("/v1/trials", content=parts()).status_code == 413, "also if it does not say how large it is"


def most_memory(pids) -> int:
    """The most bytes that these processes ever had at once, each of them."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(text.partition("VmHWM:")[2].split()[0]) << 10 for text in texts)


def test_a_body_that_unpacks_to_far_more_is_refused_before_it_does(shared) -> None:
    bomb = gzip.compress(b"\0" * (200 << 20))
    with shared.client("record", largest=1 << 20) as client:
        client.post("/v1/trials", content=bomb[:1000], headers={"content-encoding": "gzip"})
        for pid in shared.server.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # what it ever had is from now on what it has
        before = most_memory(shared.server.pids)
        answer = client.post("/v1/trials", content=bomb, headers={"content-encoding": "gzip"})
        assert answer.status_code == 413
        assert most_memory(shared.server.pids) < before + (10 << 20)
        assert client.post("/v1/trials", content=b"x", headers={"content-encoding": "gzip"}).status_code == 400
        assert client.post("/v1/trials", content=b"x", headers={"content-encoding": "br"}).status_code == 415
        cut = gzip.compress(serialization.dump_key(KEY))[:-9]
        assert client.post("/v1/trials", content=cut, headers={"content-encoding": "gzip"}).status_code == 400


@pytest.fixture(scope="module")
def hasty(serve):
    """A service that waits for a body for two seconds."""
    return serve("--patience", "2")


def dribbled(service) -> tuple[bytes, float]:
    """What is answered to a body that comes byte by byte, and after how many seconds."""
    host, port = service.location.removeprefix("http://").split(":")
    token = service.token("record")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(
            f"POST /v1/trials HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {token}\r\n"
            "content-length: 1000\r\n\r\n".encode()
        )
        began, said = time.monotonic(), b""
        for _ in range(900):
            if b"\r\n\r\n" in said:
                break
            try:
                line.sendall(b"x")
                line.settimeout(0.3)
                said += line.recv(4096) or b"closed\r\n\r\n"
            except TimeoutError:
                continue
            except OSError:
                break
        return said, time.monotonic() - began


def test_a_body_that_comes_too_slowly_is_given_up(hasty) -> None:
    assert b" 408 " in dribbled(hasty)[0]


@pytest.mark.clock("1.5 to 10 s where 2 s are said")
def test_a_body_that_comes_too_slowly_is_given_up_after_as_long_as_was_said(hasty) -> None:
    assert 1.5 < dribbled(hasty)[1] < 10


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/x", "0" * 63, "0" * 64 + "%00", "A" * 64, "con"],
)
def test_a_bundle_is_called_by_a_digest_and_by_nothing_else(shared, name) -> None:
    with shared.client() as client:
        assert client.get(f"/v1/bundles/{name}").status_code in (400, 404, 405)
        assert client.put(f"/v1/bundles/{name}", content=b"x").status_code in (400, 404, 405)


def test_what_is_sent_back_in_a_header_cannot_make_another_header(shared) -> None:
    with shared.client("read") as client:
        good = client.get("/v1/health", headers={"x-request-id": "mine-1.2_3"})
        assert good.headers["x-request-id"] == "mine-1.2_3"
        for bad in (b"a\tb", b"x" * 65, b"a b", b"\xe4", b"a,b"):
            answer = client.get("/v1/health", headers=[(b"x-request-id", bad)])
            assert len(answer.headers["x-request-id"]) == 16
    host, port = shared.location.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(f"GET /v1/health HTTP/1.1\r\nhost: {host}\r\nx-request-id: a\rset-cookie: b=c\r\n\r\n".encode())
        line.settimeout(300)
        assert b"set-cookie" not in line.recv(65536).lower()


def test_sql_in_every_field_is_text_like_any_other(shared) -> None:
    device = msgspec.structs.replace(KEY.device, model=NASTY, architecture=NASTY, kind=NASTY, features=(NASTY,))
    signature = msgspec.structs.replace(KEY.signature, args=(NASTY,), dims={NASTY: 1})
    key = other_key(
        kernel=NASTY, source=NASTY, device=device, signature=signature, toolchain={NASTY: NASTY}, mode={NASTY: NASTY}
    )
    decision = other_decision(key=key, config=Config(**{NASTY: NASTY}))
    store = shared.store()
    assert store.put(decision) == decision
    store.record(key, [msgspec.structs.replace(TIMED, config=Config(**{NASTY: NASTY}), fingerprint=NASTY)])
    assert store.claim(NASTY, NASTY, 5)
    store.keep(NASTY, NASTY, NASTY.encode())
    assert store.get(key) == decision
    assert list(store.decisions(NASTY)) == [decision]
    assert len(list(store.trials(key))) == 1
    assert store.fetch(NASTY, [NASTY]) == {NASTY: NASTY.encode()}
    with shared.client() as client:
        for path in ("/v1/decisions", "/v1/keys", "/v1/untuned"):
            assert client.get(path, params={"kernel": NASTY}).status_code == 200
        assert client.get(f"/v1/decisions/{NASTY}").status_code == 404


def test_script_in_names_is_never_sent_as_a_page(shared) -> None:
    script = "<script>alert(1)</script>"
    device = msgspec.structs.replace(KEY.device, model=script)
    decision = other_decision(key=other_key(kernel=script, device=device))
    shared.store().put(decision)
    with shared.client() as client:
        paths = [
            f"/v1/decisions/{decision.key.digest}",
            "/v1/decisions",
            "/v1/devices",
            "/v1/nonsense",
            f"/v1/{script}",
        ]
        for path in paths:
            answer = client.get(path)
            assert "html" not in answer.headers.get("content-type", "")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        page = client.get("/no-such-page")
        assert page.headers["x-frame-options"] == "DENY"
        assert "script-src 'self';" in page.headers["content-security-policy"]


def test_another_site_cannot_use_a_browser_against_it(shared, serve) -> None:
    open_one = serve("--open")
    body = published(DECISION)
    foreign = [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
    for service, token in ((shared, None), (open_one, "")):
        with service.client(token=token) as client:
            for headers in foreign:
                assert client.post("/v1/decisions", json=body, headers=headers).status_code == 403
            own = {"origin": service.location, "sec-fetch-site": "same-origin"}
            assert client.post("/v1/decisions", json=body, headers=own).status_code == 200
            assert "access-control-allow-origin" not in client.get("/v1/decisions").headers
            assert "set-cookie" not in client.get("/v1/decisions").headers
    with open_one.client(token="") as client:
        # A name of the attacker's that was made to point to this machine.
        assert client.get("/v1/decisions", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/v1/decisions", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_password_opens_pages_alone(shared) -> None:
    token = shared.token("admin")
    with shared.client(token="") as client:
        assert client.get("/v1/decisions", auth=("anybody", token)).status_code == 401
        assert client.post("/v1/decisions", json=published(DECISION), auth=("anybody", token)).status_code == 401
        assert client.get("/no-such-page", auth=("anybody", token)).status_code == 404


def test_a_publication_that_is_sent_again_changes_nothing(fresh) -> None:
    first, second, third = (other_decision(config=Config(tile=size)) for size in (8, 16, 32))
    over = sha256(serialization.dump_decision(first)).hexdigest()
    with fresh.client("publish", "read") as client:
        assert client.post("/v1/decisions", json=published(first)).json()["stands"]
        replacing = published(second, over=over)
        assert client.post("/v1/decisions", json=replacing).json()["stands"]
        last = published(third, over=sha256(serialization.dump_decision(second)).hexdigest())
        assert client.post("/v1/decisions", json=last).json()["stands"]
        for again in (published(first), replacing):
            answer = client.post("/v1/decisions", json=again)
            assert not answer.json()["stands"]
            assert answer.json()["standing"]["decision"]["config"] == {"tile": 32}
        assert answer.status_code == 409
    assert locations.open_single(fresh.place).get(KEY) == third


def test_a_token_is_used_no_more_often_than_it_may(shared) -> None:
    with shared.client("read", rate=0.0001) as client:  # one at once, and another hours later
        assert client.get("/v1/decisions").status_code == 200
        for _ in range(3):
            refused = client.get("/v1/decisions")
            assert refused.status_code == 429
            assert 3600 < int(refused.headers["retry-after"]) <= 10_000
    with shared.client("read", rate=100_000.0) as quick:
        assert {quick.get("/v1/decisions").status_code for _ in range(12)} == {200}
    with shared.client("read") as other:
        assert other.get("/v1/decisions").status_code == 200


def test_only_what_a_trusted_signer_signed_is_published(serve, tmp_path) -> None:
    trusted, stranger = tmp_path / "trusted.pem", tmp_path / "stranger.pem"
    (tmp_path / "signers").write_text(f"{signing.generate_key(trusted)} team\n")
    signing.generate_key(stranger)
    service = serve("--signers", str(tmp_path / "signers"))
    for query in ("?tries=1&timeout=300", f"?tries=1&timeout=300&sign={stranger}"):
        with pytest.raises(StoreError, match="403"):
            service.store(query=query).put(DECISION)
    store = service.store(query=f"?tries=1&timeout=300&sign={trusted}")
    assert store.put(DECISION) == DECISION
    better = other_decision(config=Config(tile=8))
    assert store.put(better) == better
    with service.client() as client:
        text = signing.sign_decision(serialization.dump_decision(DECISION), "", signing.load_private_key(trusted))
        forged = published(other_decision(config=Config(tile=1)), signature=text)
        assert client.post("/v1/decisions", json=forged).status_code == 403
        noted = [json.loads(line) for line in client.get("/v1/audit").text.splitlines()[:-1]]
    assert [one["signer"] for one in noted] == ["team"] * len(noted)


def test_a_signed_publication_does_not_bring_back_what_was_rolled_back(serve, tmp_path) -> None:
    """Who has a token and an old signed request, but no key, cannot undo a rollback."""
    signing.generate_key(tmp_path / "team.pem")
    key = signing.load_private_key(tmp_path / "team.pem")
    (tmp_path / "signers").write_text(f"{signing.encode_public_key(signing.public_bytes(key))} team\n")
    service = serve("--signers", str(tmp_path / "signers"), "--fresh", "0")

    def signed(decision, over=None):
        record = serialization.dump_decision(decision)
        more = {"over": over} if over else {}
        return published(decision, signature=signing.sign_decision(record, over or "", key), **more)

    good, bad, fixed = (other_decision(config=Config(tile=size)) for size in (8, 16, 32))
    over = sha256(serialization.dump_decision(good)).hexdigest()
    first, second = signed(good), signed(bad, over)
    with service.client("publish", "read") as client:
        for request in (first, second, second):  # a client that got no answer sends it again
            assert client.post("/v1/decisions", json=request).json()["stands"]
        locations.open_single(service.place).put(good)  # rolled back
        answer = client.post("/v1/decisions", json=second)
        assert answer.status_code == 403
        assert "has been replaced since" in answer.json()["error"]
        assert locations.open_single(service.place).get(KEY) == good
        assert client.post("/v1/decisions", json=signed(fixed, over)).json()["stands"]


def test_a_token_that_records_cannot_make_an_honest_tuner_publish_a_wrong_config(fresh, tmp_path) -> None:
    """Forged trials reach the journal through the service; the tuner judges what it decides."""

    @tw.tune(tw.Space(tw.Knob("step", [1, 2, 3])), session=tw.Session(store=tmp_path / "none.sqlite", pool="serial"))
    def double(x: tw.In("N"), *, step: int):
        return 2 * x if step != 3 else x  # 3 is wrong

    key = double.problem((np.ones(3),)).key
    member = fresh.store("record", "read")
    lies = [Trial(Config(step=3), Timing((1e-9,) * 5)), Trial(Config(step=1), Timing((1e9,) * 5))]
    member.record(key, lies * 8)
    with pytest.raises(StoreError, match="publish"):
        member.put(Decision(key, Config(step=3)))
    honest = fresh.at(fresh.token("read", "record", "publish"))
    session = tw.Session(store=honest, pool="serial", trials=3, cache=tmp_path / "cache")
    assert tw.tune(double.space, session=session)(double.function)(np.ones(3)).tolist() == [2, 2, 2]
    stored = fresh.store("read")
    assert {trial.config["step"] for trial in stored.trials(key)} == {1, 2, 3}, "the forged ones were read"
    assert stored.get(key).config["step"] in (1, 2)


def test_no_secret_is_logged(fresh, wait_until) -> None:
    token = fresh.token()
    store = HttpStore.at(fresh.at(token))
    store.put(DECISION)
    with fresh.client(token=token) as client:
        client.get("/v1/nonsense?token=" + token)
        client.post("/v1/decisions", content=b"{")
    with fresh.client(token=token + "x") as client:
        client.get("/v1/decisions")
    wait_until(lambda: '"status":401' in fresh.server.log.read_text(), "the last request in the log")
    said = fresh.server.log.read_text()
    assert "published" in said
    assert token.split("_", 2)[2] not in said
    for line in said.splitlines()[1:]:
        if line.startswith("{"):
            assert json.loads(line)["at"]


def test_a_token_is_never_sent_in_the_clear_to_another_machine() -> None:
    with pytest.raises(StoreError, match="unencrypted") as caught:
        HttpStore.at("http://tw_a_secret@tuning.example")
    assert "secret" not in str(caught.value)
    HttpStore.at("http://tw_a_b@tuning.example?insecure=yes")
    HttpStore.at("https://tw_a_b@tuning.example")


def test_every_publication_is_written_down_with_before_and_after(fresh) -> None:
    store = fresh.store("publish", "read")
    store.put(other_decision(config=Config(tile=8)))
    store.put(other_decision(config=Config(tile=16)))
    with fresh.client() as client:
        *lines, _ = client.get("/v1/audit").text.splitlines()
    noted = [json.loads(line) for line in lines]
    assert [(one.get("before"), one["after"], one["stands"]) for one in noted] == [
        (None, {"tile": 8}, True),
        ({"tile": 8}, {"tile": 16}, True),
    ]
    assert {one["kernel"] for one in noted} == {"gemm"}
    assert all(fresh.tokens.find(one["token"]) for one in noted)
