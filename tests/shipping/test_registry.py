"""Bundles in a real OCI registry: open, with passwords and with tokens; and in registries that lie."""

import base64
import json
import os
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from releases import ALICE, BOB, CAROL, answering, list_of, release, reply

from tunewright.errors import BundleError
from tunewright.shipping import artifact, cosign, receive
from tunewright.shipping.receive import PullOptions
from tunewright.shipping.registry import Access, Descriptor, OciRegistry, Reference
from tunewright.shipping.registry_credentials import Credentials, find_credentials, may_be_asked
from tunewright.stores.bundle import signers
from tunewright.stores.bundle.freshness import Expectation
from tunewright.stores.bundle.transfer import HttpTransfer
from tunewright.testing import servers

PUSHER = "pusher:$2y$05$BVf0ppUjY.kA1AelYrKaQuG6YbovqftgcDjkNDNtSfpvVYUEY5H5W\n"  # open sesame


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with servers.registry(tmp_path_factory.mktemp("registry")) as server:
        yield server.location


class Shipper:
    """One who pushes and pulls, with Docker's config file and a target of its own."""

    def __init__(self, folder):
        self.folder, self.file, self.signers = folder, folder / "installed", folder / "signers"
        self.config = folder / "config.json"
        self.signers.write_text(list_of(alice=ALICE))

    def log_in(self, location, user="pusher", password="open sesame", **more):
        host = location.removeprefix("oci://").partition("/")[0]
        text = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.config.write_text(json.dumps({"auths": {host: {"auth": text}}, **more}))

    def access(self, *hosts):
        return Access(self.config, None, hosts)

    def push(self, location, version=7, *keys, path=None, hosts=(), **more):
        made = path or release(self.folder / f"made{version}", version, *keys)
        return artifact.push(made, Reference.parse(location), self.access(*hosts), **more)

    def pull(self, location, *, cosign_key=None, hosts=(), max_bytes=1 << 20, **expected):
        options = PullOptions(
            self.access(*hosts), self.signers, None, Expectation(**expected), cosign_key, max_bytes, 60.0
        )
        return receive.pull(location, self.file, options, self.folder / "cache")


@pytest.fixture
def shipper(tmp_path):
    return Shipper(tmp_path)


def test_a_bundle_is_pushed_and_pulled_by_tag_and_by_digest(registry, shipper) -> None:
    digest = shipper.push(f"{registry}/team/kernels:prod")
    pulled = shipper.pull(f"{registry}/team/kernels:prod", channel="prod")
    assert pulled.digest == digest
    assert pulled.store.manifest.version == 7
    assert shipper.file.read_bytes() == (shipper.folder / "made7").read_bytes()
    assert shipper.pull(f"{registry}/team/kernels@{digest}").digest == digest
    shipper.push(f"{registry}/team/kernels:prod", 8)
    assert shipper.pull(f"{registry}/team/kernels:prod").store.manifest.version == 8
    with pytest.raises(BundleError, match="older than 8"):
        shipper.pull(f"{registry}/team/kernels:prod@{digest}")
    assert shipper.pull(f"{registry}/team/kernels@{digest}", allow=7).store.manifest.version == 7
    with pytest.raises(BundleError, match="on purpose"):
        shipper.pull(f"{registry}/team/kernels:prod")


def test_what_is_there_is_not_sent_again(registry, shipper) -> None:
    assert shipper.push(f"{registry}/same:1") == shipper.push(f"{registry}/same:2")


def test_what_is_not_there_is_said(registry, shipper) -> None:
    with pytest.raises(BundleError, match="there is no oci://"):
        shipper.pull(f"{registry}/nothing:here")
    with pytest.raises(BundleError, match="a digest cannot be chosen"):
        shipper.push(f"{registry}/x@sha256:{'0' * 64}")
    with pytest.raises(BundleError, match="say whom you trust"):
        receive.pull(f"{registry}/x", shipper.file, PullOptions(shipper.access()), shipper.folder)


def test_a_list_of_signers_comes_along_and_is_taken_over(registry, shipper) -> None:
    shipper.signers.write_text("version 1\n" + list_of(alice=ALICE))
    new = shipper.folder / "new"
    new.write_text("version 2\n" + list_of(bob=BOB) + f"revoked {list_of(alice=ALICE)}")
    for key in (ALICE, BOB):
        signers.sign_file(new, key)
    shipper.push(f"{registry}/rotated:prod", 8, BOB, signers=new)
    assert shipper.pull(f"{registry}/rotated:prod").rotated
    assert list(signers.read_signers(shipper.signers).names.values()) == ["bob"]
    assert not shipper.pull(f"{registry}/rotated:prod").rotated
    strange = shipper.folder / "strange"
    strange.write_text("version 3\n" + list_of(carol=CAROL))
    signers.sign_file(strange, CAROL)
    shipper.push(f"{registry}/rotated:prod", 9, CAROL, signers=strange)
    with pytest.raises(BundleError, match="not on your list"):
        shipper.pull(f"{registry}/rotated:prod")
    assert list(signers.read_signers(shipper.signers).names.values()) == ["bob"]


def test_a_registry_with_passwords(tmp_path, shipper) -> None:
    with servers.registry(tmp_path / "registry", htpasswd=PUSHER) as server:
        place = f"{server.location}/team/kernels:prod"
        with pytest.raises(BundleError, match="answers 401; log in"):
            shipper.push(place)
        shipper.log_in(place, password="wrong")
        with pytest.raises(BundleError, match="answers 401; log in"):
            shipper.push(place)
        shipper.log_in(place)
        shipper.push(place)
        assert shipper.pull(place).store.manifest.version == 7
        shipper.config.unlink()
        with pytest.raises(BundleError, match="answers 401"):
            shipper.pull(place)


class TokenServer:
    """Gives tokens as a registry's token server does: signed by a certificate that the registry trusts."""

    def __init__(self, folder):
        self.key, self.asked = ec.generate_private_key(ec.SECP256R1()), []
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tokens")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self.key.public_key())
            .serial_number(7).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )  # fmt: skip
        (folder / "root.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        self.chain = [base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()]

    def __call__(self, handler):
        asked = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
        if handler.command == "POST":
            body = handler.rfile.read(int(handler.headers["content-length"])).decode()
            asked = {name: values[0] for name, values in parse_qs(body).items()}
        self.asked.append((asked, handler.headers.get("authorization")))
        known = "Basic " + base64.b64encode(b"pusher:open sesame").decode()
        if handler.headers.get("authorization") != known and asked.get("refresh_token") != "refresh me":
            reply(handler, 401)
            return
        kind, name, actions = asked["scope"].split(":")
        claims = {"iss": "test", "sub": "pusher", "aud": asked["service"], "exp": int(time.time()) + 300,
                  "nbf": int(time.time()) - 60, "iat": int(time.time()), "jti": "1",
                  "access": [{"type": kind, "name": name, "actions": actions.split(",")}]}  # fmt: skip
        reply(handler, body=json.dumps({"token": self.token(claims)}).encode())

    def token(self, claims):
        head = {"typ": "JWT", "alg": "ES256", "x5c": self.chain}
        parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (head, claims)]
        r, s = decode_dss_signature(self.key.sign(b".".join(parts), ec.ECDSA(hashes.SHA256())))
        signature = base64.urlsafe_b64encode(r.to_bytes(32) + s.to_bytes(32)).rstrip(b"=")
        return b".".join([*parts, signature]).decode()


@pytest.mark.parametrize("identity", [False, True], ids=["password", "identity token"])
def test_a_registry_with_tokens(tmp_path, shipper, identity) -> None:
    tokens = TokenServer(tmp_path)
    with answering(tokens) as (host, _):
        auth = {"realm": f"http://{host}/token", "service": "reg", "issuer": "test"}
        auth["rootcertbundle"] = str(tmp_path / "root.pem")
        with servers.registry(tmp_path / "registry", options={"auth": {"token": auth}}) as server:
            place = f"{server.location}/team/kernels:prod"
            with pytest.raises(BundleError, match="answers 401"):
                shipper.push(place)
            shipper.log_in(place)
            if identity:
                registry = Reference.parse(place).registry
                shipper.config.write_text(json.dumps({"auths": {registry: {"identitytoken": "refresh me"}}}))
            shipper.push(place)
            assert shipper.pull(place).store.manifest.version == 7
    assert {asked["service"] for asked, _ in tokens.asked} == {"reg"}
    assert any("push" in asked.get("scope", "") for asked, _ in tokens.asked)


def test_cosign_signatures_are_made_and_verified(registry, shipper, tmp_path) -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    for number, key in enumerate(keys):
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        (tmp_path / f"{number}.key").write_bytes(pem)
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        (tmp_path / f"{number}.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, kind))
    place = f"{registry}/signed:prod"
    digest = shipper.push(place, cosign_key=tmp_path / "0.key")
    shipper.pull(place, cosign_key=tmp_path / "0.pub")
    with pytest.raises(BundleError, match="nobody with that key signed"):
        shipper.pull(place, cosign_key=tmp_path / "1.pub")
    shipper.push(place, cosign_key=tmp_path / "1.key")  # beside the other
    for number in (0, 1):
        shipper.pull(place, cosign_key=tmp_path / f"{number}.pub")
    # What is stored is what cosign's specification says.
    reference = Reference.parse(place)
    client = OciRegistry(reference, HttpTransfer(60), shipper.access())
    found, _ = client.get_manifest("sha256-" + digest.removeprefix("sha256:") + ".sig")
    payload = BytesIO()
    client.get_blob(found.layers[0], payload, 1 << 16)
    told = json.loads(payload.getvalue())
    assert told["critical"]["image"] == {"docker-manifest-digest": digest}
    assert told["critical"]["type"] == "cosign container image signature"
    assert told["critical"]["identity"] == {"docker-reference": f"{reference.registry}/signed"}
    signature = base64.b64decode(found.layers[0].annotations["dev.cosignproject.cosign/signature"])
    keys[0].public_key().verify(signature, payload.getvalue(), ec.ECDSA(hashes.SHA256()))
    # A signature of one manifest is none of another.
    shipper.push(place, 8)
    with pytest.raises(BundleError, match="nobody with that key signed"):
        shipper.pull(place, cosign_key=tmp_path / "0.pub")


def test_keys_of_other_kinds_are_no_keys_for_cosign(tmp_path) -> None:
    (tmp_path / "x").write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END X-----\n")
    with pytest.raises(BundleError, match="sign with `cosign sign` instead"):
        cosign.load_private_key(tmp_path / "x")
    with pytest.raises(BundleError, match=r"cosign\.pub"):
        cosign.load_public_key(tmp_path / "x")
    other = ec.generate_private_key(ec.SECP384R1()).public_key()
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "p384").write_bytes(other.public_bytes(serialization.Encoding.PEM, kind))
    with pytest.raises(BundleError, match="not a P-256 key"):
        cosign.load_public_key(tmp_path / "p384")


# Registries that lie.


class Lying:
    """A registry that has one bundle, and answers some requests its own way."""

    def __init__(self, body, **ways):
        self.body, self.ways = body, ways
        self.layers = [self.describe(artifact.BUNDLE_TYPE, body)]

    @staticmethod
    def describe(kind, body):
        return {"mediaType": kind, "digest": f"sha256:{sha256(body).hexdigest()}", "size": len(body)}

    def __call__(self, handler):
        kind = "manifest" if "/manifests/" in handler.path else "blob"
        if kind in self.ways:
            self.ways[kind](handler)
        elif kind == "manifest":
            empty = self.describe("application/vnd.oci.empty.v1+json", b"{}")
            media = "application/vnd.oci.image.manifest.v1+json"
            made = {"schemaVersion": 2, "mediaType": media, "config": empty, "layers": self.layers}
            made["annotations"] = self.ways.get("annotations", {})
            reply(handler, body=json.dumps(made).encode())
        else:
            reply(handler, body=self.body)


def lied_to(shipper, lying, match, name="/x:prod", **options):
    with answering(lying) as (host, seen), pytest.raises(BundleError, match=match):
        shipper.pull(f"oci://{host}{name}", **options)
    assert not shipper.file.exists()
    return seen


@pytest.fixture
def body(tmp_path):
    return release(tmp_path / "honest", 7).read_bytes()


def test_a_registry_that_does_not_lie_is_believed(shipper, body) -> None:
    with answering(Lying(body)) as (host, _):
        assert shipper.pull(f"oci://{host}/x:prod").store.manifest.version == 7


def test_digest_mismatch(shipper, body) -> None:
    lied_to(shipper, Lying(body), "another manifest than", f"/x@sha256:{'0' * 64}")
    changed = body[:-1] + bytes([body[-1] ^ 1])
    lied_to(shipper, Lying(body, blob=lambda handler: reply(handler, body=changed)), "another blob than")
    lied_to(shipper, Lying(body, blob=lambda handler: reply(handler, body=body[:-1])), "another blob than")
    lied_to(shipper, Lying(body, blob=lambda handler: reply(handler, body=body + b"x")), "at most")


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def test_endless_data_from_a_registry(shipper, body) -> None:
    lied_to(shipper, Lying(body, blob=endless), f"more than {len(body):,} bytes")
    lied_to(shipper, Lying(body, manifest=endless), "more than 1,048,576 bytes")
    huge = Lying(body)
    huge.layers[0]["size"] = 1 << 50
    lied_to(shipper, huge, "at most 1,048,576 are read")
    huge.layers[0]["size"] = -1
    lied_to(shipper, huge, "at most 1,048,576 are read")


def test_extraneous_dependencies(shipper, body) -> None:
    more = Lying(body)
    more.layers.append(more.describe("application/x-sh", b"rm -rf /"))
    lied_to(shipper, more, "is not a bundle: it has application/vnd.tunewright.bundle.v1, application/x-sh")
    more.layers[:] = more.layers[:1] * 2
    lied_to(shipper, more, "is not a bundle")
    more.layers.clear()
    lied_to(shipper, more, "it has nothing")


def test_a_manifest_of_one_release_with_the_bundle_of_another(shipper, body) -> None:
    mixed = Lying(body, annotations={artifact.CHANNEL: "prod", artifact.VERSION: "8"})
    lied_to(shipper, mixed, "describes another release")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"[" * 100_000, b'{"schemaVersion":"2"}', b"\xff"])
def test_a_manifest_that_is_none(shipper, body, text) -> None:
    lied_to(shipper, Lying(body, manifest=lambda handler: reply(handler, body=text)), "not an artifact of ours")


@pytest.mark.parametrize("name", ["../../../etc/cron.d/x", "/etc/passwd", "a\0b", "..\\x"])
def test_a_path_in_a_manifest_goes_nowhere(shipper, body, name, tmp_path) -> None:
    titled = Lying(body)
    titled.layers[0]["annotations"] = {"org.opencontainers.image.title": name}
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    with answering(titled) as (host, _):
        shipper.pull(f"oci://{host}/x:prod")
    after = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    assert after - before == {shipper.file} | ({shipper.folder / "cache"} & after)
    strange = Lying(body)
    strange.layers[0]["digest"] = "sha256:../../x"
    shipper.file.unlink()
    lied_to(shipper, strange, "at most")


def challenge(realm):
    def answer(handler):
        reply(handler, 401, www_authenticate=f'Bearer realm="{realm}",service="x",scope="repository:x:pull"')

    return answer


def test_a_registry_that_sends_credentials_to_another_host(shipper, body) -> None:
    with answering(lambda handler: reply(handler, body=b'{"token":"t"}')) as (other, theirs):
        port = other.rpartition(":")[2]
        lying = Lying(body, manifest=challenge(f"http://localhost:{port}/token"))
        with answering(lying) as (host, _):
            shipper.log_in(f"oci://{host}/x")
            with pytest.raises(BundleError, match=r"wants your credentials sent to localhost.*--auth-host localhost"):
                shipper.pull(f"oci://{host}/x:prod")
            assert not theirs
            with pytest.raises(BundleError, match="answers 401"):  # a person may say that it is right
                shipper.pull(f"oci://{host}/x:prod", hosts=("localhost",))
            assert theirs[0][2]["authorization"].startswith("Basic ")
    lied_to(shipper, Lying(body, manifest=challenge("http://tokens.example.com/")), "without encryption")


def test_a_registry_that_redirects_an_upload_to_another_host(shipper) -> None:
    with answering(lambda handler: reply(handler, 201)) as (other, theirs):

        def answer(handler):
            if "authorization" not in handler.headers:
                reply(handler, 401, www_authenticate='Basic realm="x"')
            elif handler.command == "POST":
                reply(handler, 202, location=f"http://{other}/upload")
            else:
                reply(handler, 404)

        with answering(answer) as (host, _):
            shipper.log_in(f"oci://{host}/x")
            with pytest.raises(BundleError, match="upload to another host"):
                shipper.push(f"oci://{host}/x:prod")
        assert not theirs


def test_a_redirected_blob_comes_without_credentials(shipper, body) -> None:
    """Registries keep blobs in object stores, which must not see the registry's password."""
    with answering(lambda handler: reply(handler, body=body)) as (other, theirs):
        honest = Lying(body, blob=lambda handler: reply(handler, 307, location=f"http://{other}/blob"))

        def answer(handler):
            if "authorization" in handler.headers:
                honest(handler)
            else:
                reply(handler, 401, www_authenticate='Basic realm="x"')

        with answering(answer) as (host, _):
            shipper.log_in(f"oci://{host}/x")
            assert shipper.pull(f"oci://{host}/x:prod").store.manifest.version == 7
        assert "authorization" not in {name.lower() for name in theirs[0][2]}


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"token":5}', b'{"token":"a\\r\\nb"}', b'{"token":""}'])
def test_a_token_that_is_none(shipper, body, answer) -> None:
    with answering(lambda handler: reply(handler, body=answer)) as (tokens, _):
        lied_to(shipper, Lying(body, manifest=challenge(f"http://{tokens}/")), "gives no token")


# Names and credentials.


def test_locations_are_read_as_docker_reads_them() -> None:
    digest = "sha256:" + "a" * 64
    assert Reference.parse("oci://h/r") == ("h", "r", "latest", "")
    assert Reference.parse("oci://H:5000/a/b-c:T.1") == ("h:5000", "a/b-c", "T.1", "")
    assert Reference.parse(f"oci://h/r:t@{digest}").digest == digest
    assert Reference.parse("oci://[::1]:5000/r").host == "::1"
    assert str(Reference.parse(f"oci://h/r:t@{digest}")) == f"oci://h/r@{digest}"
    for wrong in ("oci://h", "oci://h/", "oci://h/../x", "oci://h/R", "oci://u@h/r", "oci://h/r:", "oci://h/r@sha256:0",
                  "oci://h/r?x", "oci://h/r:t\n", "oci://h/r#x", "oci:///r", "oci://h/r:" + "t" * 129):  # fmt: skip
        with pytest.raises(BundleError, match="write oci://HOST/REPO:TAG"):
            Reference.parse(wrong)


def test_credentials_are_shown_to_the_registrys_own_hosts_alone() -> None:
    assert may_be_asked("r.example.com", "r.example.com")
    assert may_be_asked("gitlab.com", "registry.gitlab.com")
    assert may_be_asked("auth.docker.io", "docker.io")
    assert may_be_asked("login.example.net", "r.example.com", ("login.example.net",))
    for realm in ("evil.com", "com", "example.com.evil.com", "xr.example.com", "auth.docker.io", "other.co.uk"):
        assert not may_be_asked(realm, "r.example.com")
    assert not may_be_asked("0.1", "127.0.0.1")
    assert not may_be_asked("other.co.uk", "mine.co.uk")


def test_credentials_come_from_dockers_config(tmp_path, monkeypatch) -> None:
    config = tmp_path / "config.json"
    assert find_credentials(config, "h") is None
    text = base64.b64encode(b"me:pa:ss").decode()
    config.write_text(json.dumps({"auths": {"https://h:5000/v1/": {"auth": text}, "other": {}}, "HttpHeaders": {}}))
    assert find_credentials(config, "h:5000") == Credentials("me", "pa:ss")
    assert find_credentials(config, "h") is None
    assert find_credentials(config, "other") is None
    assert "pa:ss" not in repr(find_credentials(config, "h:5000"))
    for helper, known in (("docker-credential-good", '{"Username":"me","Secret":"s"}'), ("docker-credential-none", "")):
        program = tmp_path / helper
        program.write_text(
            f"#!/bin/sh\nread server\n[ $server = h ] || exit 1\n[ -n '{known}' ] || exit 1\necho '{known}'\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    config.write_text(json.dumps({"credHelpers": {"h": "good"}, "credsStore": "none"}))
    assert find_credentials(config, "h") == Credentials("me", "s")
    assert find_credentials(config, "k") is None
    config.write_text(json.dumps({"credsStore": "good"}))
    assert find_credentials(config, "h") == Credentials("me", "s")
    for wrong in ("../good", "x/y", "", "-x", "missing"):
        config.write_text(json.dumps({"credHelpers": {"h": wrong}}))
        with pytest.raises(BundleError):
            find_credentials(config, "h")
    for text in ("{", "[]", '{"auths":{"h":{"auth":"%"}}}'):
        config.write_text(text)
        with pytest.raises(BundleError, match="docker login"):
            find_credentials(config, "h")


def test_a_blob_is_not_written_beyond_its_size(registry, shipper) -> None:
    place = Reference.parse(f"{registry}/blobs")
    client = OciRegistry(place, HttpTransfer(60), shipper.access())
    blob = Descriptor("", f"sha256:{sha256(b'abc').hexdigest()}", 3)
    client.put_blob(BytesIO(b"abc"), blob)
    sink = BytesIO()
    client.get_blob(blob, sink, 3)
    assert sink.getvalue() == b"abc"
    with pytest.raises(BundleError, match="at most 2"):
        client.get_blob(blob, BytesIO(), 2)
