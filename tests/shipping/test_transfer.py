"""Servers that are endless, slow, broken or hostile: nothing of theirs is installed, and nothing of ours is shown."""

import ssl
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from releases import ALICE, answering, list_of, release, reply

from tunewright import Session
from tunewright.errors import BundleError
from tunewright.shipping import receive
from tunewright.shipping.receive import PullOptions
from tunewright.shipping.registry import Access
from tunewright.stores.bundle import BundleStore
from tunewright.stores.bundle.transfer import HttpTransfer, download, origin
from tunewright.testing.keys import KEY


@pytest.fixture
def pull(tmp_path):
    """How to pull from an address; the file is what is installed."""
    (tmp_path / "signers").write_text(list_of(alice=ALICE))

    def run(location, ca=None, **options):
        wanted = PullOptions(Access(tmp_path / "none", ca), tmp_path / "signers", **options)
        return receive.pull(location, tmp_path / "file", wanted, tmp_path / "cache")

    run.file = tmp_path / "file"
    return run


@pytest.fixture
def bundle(tmp_path):
    return release(tmp_path / "made", 7).read_bytes()


def refused(pull, location, match, **options):
    with pytest.raises(BundleError, match=match):
        pull(location, **options)
    assert not pull.file.exists()
    assert not list(pull.file.parent.glob(".*.part"))


def test_a_bundle_comes_from_any_server(pull, bundle, tmp_path) -> None:
    with answering(lambda handler: reply(handler, body=bundle)) as (host, seen):
        pulled = pull(f"http://{host}/a/b.bundle?key=1")
        assert pull.file.read_bytes() == bundle
        assert pulled.received == len(bundle)
        assert seen[0][1] == "/a/b.bundle?key=1"
        store = f"bundle:http://{host}/x.bundle?signers={tmp_path / 'signers'}"
        assert Session(mode="frozen", store=store).store.get(KEY).config["tile"] == 7
        assert "authorization" not in {name.lower() for name in seen[-1][2]}


def test_a_token_for_a_service_is_not_for_bundles(monkeypatch, bundle, tmp_path) -> None:
    monkeypatch.setenv("TUNEWRIGHT_TOKEN", "secret")
    (tmp_path / "signers").write_text(list_of(alice=ALICE))
    with answering(lambda handler: reply(handler, body=bundle)) as (host, seen):
        session = Session(mode="frozen", store=f"bundle:http://{host}/x?signers={tmp_path / 'signers'}")
        assert session.store.get(KEY) is not None
        assert "secret" not in session.settings.store_location
    assert "secret" not in str(seen)


def test_a_bundle_in_chunks_and_after_a_redirect_comes_too(pull, bundle) -> None:
    def answer(handler):
        if handler.path == "/old":
            reply(handler, 302, location="/new")
            return
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(bundle), bundle))

    with answering(answer) as (host, _):
        pull(f"http://{host}/old")
    assert pull.file.read_bytes() == bundle


def endless(handler):
    """Never stops, and never says how much there is."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def endless_chunks(handler):
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    while True:
        handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


def endless_headers(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"x: y\r\n")


@pytest.mark.parametrize("answer", [endless, endless_chunks, endless_headers])
def test_endless_data(pull, answer) -> None:
    with answering(answer) as (host, _):
        refused(pull, f"http://{host}/x", "more than 1,000,000 bytes|did not answer", max_bytes=1_000_000)


def test_more_than_is_allowed_is_not_even_begun(pull) -> None:
    with answering(lambda handler: reply(handler, 200, content_length=str(1 << 40))) as (host, _):
        refused(pull, f"http://{host}/x", "offers 1,099,511,627,776 bytes")


def dripping(where):
    """A server that sends a byte now and then, in the head or in the body, until the other side is gone."""

    def answer(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"" if where == "head" else b"\r\n"))
        pause = threading.Event()
        while not pause.wait(0.02):
            handler.wfile.write(b"x")

    return answer


@pytest.mark.parametrize("where", ["head", "body"])
def test_slow_retrieval(pull, where) -> None:
    """Every read brings a byte in time; the whole does not come in time."""
    with answering(dripping(where)) as (host, _):
        refused(pull, f"http://{host}/x", r"took more than 0\.3 s", seconds=0.3)


def test_a_server_that_never_answers(pull) -> None:
    ended = threading.Event()
    try:
        with answering(lambda handler: ended.wait(60)) as (host, _):
            refused(pull, f"http://{host}/x", r"took more than 0\.3 s", seconds=0.3)
            ended.set()
    finally:
        ended.set()


def test_truncated_and_changed_bodies(pull, bundle) -> None:
    whole = str(len(bundle))
    with answering(lambda handler: reply(handler, body=bundle[:-1], content_length=whole)) as (host, _):
        refused(pull, f"http://{host}/x", "broke off")
    with answering(lambda handler: reply(handler, body=bundle[:-1])) as (host, _):
        refused(pull, f"http://{host}/x", "signature is wrong|malformed")
    with answering(lambda handler: reply(handler, body=bundle, content_encoding="gzip")) as (host, _):
        refused(pull, f"http://{host}/x", "plain bytes were asked for")
    with answering(lambda handler: reply(handler, 404)) as (host, _):
        refused(pull, f"http://{host}/x", "answers 404")
    with answering(lambda handler: handler.wfile.write(b"nonsense\r\n\r\n")) as (host, _):
        refused(pull, f"http://{host}/x", "did not answer as it should")


def test_malicious_mirrors_are_not_followed_where_others_listen(pull, bundle) -> None:
    with answering(lambda handler: reply(handler, 302, location="http://files.example.com/x")) as (host, _):
        refused(pull, f"http://{host}/x", "without encryption")
    with answering(lambda handler: reply(handler, 302, location=handler.path)) as (host, seen):
        refused(pull, f"http://{host}/x", "in a circle")
        assert len(seen) < 10
    for place in ("file:///etc/passwd", "ftp://h/x", "", "gopher://h", "http://"):
        with answering(lambda handler, place=place: reply(handler, 302, location=place)) as (host, _):
            refused(pull, f"http://{host}/x", "is not an address|in a circle")


NO_ADDRESSES = [
    "http://files.example.com/x", "ftp://h/x", "https://", "https://h:x/", "https://h/\n",
    "http://127.0.0.1.example.com/", "http://localhost.example.com/", "https://h/a b",
]  # fmt: skip


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_what_is_no_encrypted_address_is_refused_at_once(pull, url) -> None:
    refused(pull, url, "without encryption|not an address")


def test_credentials_do_not_follow_to_another_host() -> None:
    with (
        answering(lambda handler: reply(handler, body=b"there")) as (other, theirs),
        answering(lambda handler: reply(handler, 307, location=f"http://{other}/x")) as (host, ours),
    ):
        with HttpTransfer(60).get(f"http://{host}/x", {"Authorization": "Basic c2VjcmV0"}) as response:
            assert response.read() == b"there"
        assert ours[0][2]["Authorization"] == "Basic c2VjcmV0"
    assert "c2VjcmV0" not in str(theirs)


def test_ports_and_hosts_are_read_as_written() -> None:
    assert origin("https://h/x") == ("https", "h", 443)
    assert origin("http://[::1]:80/x") == ("http", "::1", 80)


@pytest.fixture
def encrypted(tmp_path):
    """A certificate of a test for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "both.pem").write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return tmp_path


def test_https_is_verified(pull, bundle, encrypted) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(encrypted / "both.pem")
    with answering(lambda handler: reply(handler, body=bundle), context) as (host, _):
        refused(pull, f"https://{host}/x", "CERTIFICATE_VERIFY_FAILED|certificate verify failed")
        refused(pull, f"https://{host}/x", "cannot be read", ca=str(encrypted / "missing.pem"))
        pull(f"https://{host}/x", ca=str(encrypted / "cert.pem"))
    assert pull.file.read_bytes() == bundle


def test_an_encrypted_server_does_not_redirect_to_an_open_one(pull, bundle, encrypted) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(encrypted / "both.pem")
    with answering(lambda handler: reply(handler, body=bundle)) as (other, seen):
        with answering(lambda handler: reply(handler, 302, location=f"http://{other}/x"), context) as (host, _):
            refused(pull, f"https://{host}/x", "without encryption", ca=str(encrypted / "cert.pem"))
        assert not seen


def test_a_bundle_is_read_from_an_address_like_a_file(bundle) -> None:
    with answering(lambda handler: reply(handler, body=bundle)) as (host, _):
        assert download(f"http://{host}/x") == bundle
        with pytest.raises(BundleError, match="at most 10 are read"):
            download(f"http://{host}/x", limit=10)
    with pytest.raises(BundleError, match="cannot be reached"):
        download(f"http://{host}/x")


def test_a_cut_off_install_leaves_what_was_there(pull, bundle, tmp_path) -> None:
    pull.file.write_bytes(release(tmp_path / "six", 6).read_bytes())
    before = pull.file.read_bytes()
    with answering(lambda handler: reply(handler, body=bundle[:100])) as (host, _), pytest.raises(BundleError):
        pull(f"http://{host}/x")
    assert pull.file.read_bytes() == before
    assert BundleStore.open_trusted(pull.file, tmp_path / "signers").manifest.version == 6
