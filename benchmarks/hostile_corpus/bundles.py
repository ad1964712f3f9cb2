"""Attacks on bundles and on their way to a machine: old, foreign, half signed, endless, misdirected."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hostile_corpus.case import LEAK, LOSS, SECRET, WRONG_CONFIG, Finding, Workspace, attack, held, honest
from tunewright import Session
from tunewright.errors import BundleError
from tunewright.model.signature import Signature
from tunewright.shipping import receive
from tunewright.shipping.receive import PullOptions
from tunewright.shipping.registry import Access
from tunewright.spaces.config import Config
from tunewright.stores import artifacts
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.bundle import BundleStore, signers, signing
from tunewright.stores.bundle.build import Attachment, ReleaseInfo, build, write
from tunewright.stores.bundle.freshness import Expectation
from tunewright.testing.keys import KEY, other_decision

ALICE, BOB, MALLORY = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3))
FAR, PAST = "2099-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"
Answer = Callable[[BaseHTTPRequestHandler], None]


class Target:
    """A machine with a list of signers, an installed bundle, and what it remembers."""

    def __init__(self, workspace: Workspace) -> None:
        self.folder, self.file = workspace.folder, workspace.folder / "installed"
        self.signers, self.cache = workspace.folder / "signers", workspace.folder / "cache"
        self.config = workspace.folder / "config.json"
        self.trust(alice=ALICE)

    def trust(self, rules: str = "", **keys: Ed25519PrivateKey) -> None:
        """Writes the list of signers."""
        lines = (f"{signing.encode_public_key(signing.public_bytes(key))} {name}\n" for name, key in keys.items())
        self.signers.write_text(rules + "".join(lines))

    def pull(self, location: str, **expected: Any) -> None:
        """Pulls from a location."""
        access = Access(self.config)
        options = PullOptions(access, self.signers, None, Expectation(**expected), max_bytes=1 << 20, seconds=20)
        receive.pull(location, self.file, options, self.cache)

    def take(self, content: bytes, **expected: Any) -> None:
        """Pulls what a server sends."""
        with serving(lambda handler: reply(handler, 200, content)) as host:
            self.pull(f"http://{host}/x", **expected)

    def found(self) -> Any:
        """The tile that a process runs with now."""
        store = Session(mode="frozen", store=f"bundle:{self.file}?signers={self.signers}", cache=str(self.cache)).store
        decision = store.get(KEY)
        return None if decision is None else decision.config["tile"]

    def verdict(self, wanted: int) -> Finding:
        """Held if the machine still runs with the wanted tile."""
        found = self.found()
        return held(f"runs with {found}") if found == wanted else Finding(WRONG_CONFIG, f"runs with {found}")


def made(version: int, *keys: Ed25519PrivateKey, tile: int | None = None, **about: Any) -> bytes:
    """A release, signed by Alice unless keys are given; its tile is its version."""
    info = ReleaseInfo(**{"channel": "prod", "version": version, "expires": FAR, **about})
    content = build([other_decision(config=Config(tile=tile or version))], release=info)
    return content + signing.make_trailers(sha256(content).digest(), keys or (ALICE,))


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """A server on loopback; yields `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            try:
                answer(self)
            except OSError:
                return  # the client has had enough

        do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815 - as the library calls them

        def log_message(self, *given: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"content_length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def registry_of(content: bytes, blob: Answer | None = None, **about: Any) -> Answer:
    """A registry with one bundle, whose blob may be answered otherwise; `about` changes its layer."""
    digest = f"sha256:{sha256(content).hexdigest()}"
    layer = {"mediaType": "application/vnd.tunewright.bundle.v1", "digest": digest, "size": len(content), **about}
    empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": 2}
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": empty, "layers": [layer]}).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "/manifests/" in handler.path:
            reply(handler, 200, manifest)
        elif blob is not None:
            blob(handler)
        else:
            reply(handler, 200, content)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))


def refused(target: Target, content: bytes, wanted: int, **expected: Any) -> Finding:
    """Offers a bundle that must be refused, and sees with what the machine runs afterwards."""
    try:
        target.take(content, **expected)
    except BundleError:
        return target.verdict(wanted)
    return Finding(WRONG_CONFIG, "it was installed")


@attack
def an_older_version_is_served_again(workspace: Workspace) -> Finding:
    """A mirror that serves the release before the present one."""
    target = Target(workspace)
    target.take(made(8))
    return refused(target, made(7), 8)


@attack
def an_older_file_is_put_in_place_of_the_installed_one(workspace: Workspace) -> Finding:
    """A file server whose file goes back to the release before."""
    target = Target(workspace)
    target.file.write_bytes(made(8))
    target.found()
    target.file.write_bytes(made(7))
    return Finding(WRONG_CONFIG, f"runs with {target.found()}")


@attack
def an_expired_version_is_served_for_ever(workspace: Workspace) -> Finding:
    """A mirror that never serves anything newer."""
    target = Target(workspace)
    target.take(made(8))
    return refused(target, made(9, expires=PAST), 8)


@attack
def a_withdrawn_version_is_replayed_after_a_rollback(workspace: Workspace) -> Finding:
    """Somebody went back from 8 to 7 on purpose, and a mirror serves 8 again."""
    target = Target(workspace)
    target.take(made(7))
    target.take(made(8))
    target.take(made(7), allow=7)
    return refused(target, made(8), 7)


@attack
def two_bundles_have_one_version(workspace: Workspace) -> Finding:
    """A signed bundle that never was released under its version."""
    target = Target(workspace)
    target.take(made(8))
    return refused(target, made(8, tile=99), 8)


@attack
def parts_of_two_bundles_are_put_together(workspace: Workspace) -> Finding:
    """The content of one release with the signature of another."""
    target = Target(workspace)
    target.take(made(7))
    return refused(target, made(8)[:-96] + made(9)[-96:], 7)


@attack
def a_bundle_from_before_channels_replaces_a_release(workspace: Workspace) -> Finding:
    """A signed bundle without a version, in place of one that has."""
    target = Target(workspace)
    target.take(made(8))
    content = build([other_decision(config=Config(tile=1))])
    return refused(target, content + signing.make_trailers(sha256(content).digest(), (ALICE,)), 8)


@attack
def a_revoked_key_signs(workspace: Workspace) -> Finding:
    """A key that was stolen and revoked."""
    target = Target(workspace)
    target.trust("version 1\n", alice=ALICE, bob=BOB)
    target.take(made(8))
    new = workspace.folder / "new"
    public = signing.encode_public_key(signing.public_bytes(BOB))
    new.write_text(target.signers.read_text().replace("version 1", "version 2") + f"revoked {public} bob\n")
    signers.sign_file(new, ALICE)
    signers.rotate(target.signers, new)
    return refused(target, made(9, BOB), 8)


@attack
def one_of_two_signatures_is_there(workspace: Workspace) -> Finding:
    """A bundle by one thief where two must sign, once by itself, once with the same signature twice."""
    target = Target(workspace)
    target.trust("threshold 2\n", alice=ALICE, bob=BOB)
    target.take(made(8, ALICE, BOB))
    refused(target, made(9), 8)
    refused(target, made(9, ALICE, MALLORY), 8)
    count = (b"TWSIGNATURES" + (2).to_bytes(4, "little")).ljust(96, b"\0")
    return refused(target, made(9) + made(9)[-96:] + count, 8)


@attack
def a_stranger_replaces_the_list_of_signers(workspace: Workspace) -> Finding:
    """A list of signers with a higher version, signed by those on it alone."""
    target = Target(workspace)
    target.trust("version 1\n", alice=ALICE)
    before, new = target.signers.read_bytes(), workspace.folder / "new"
    public = signing.encode_public_key(signing.public_bytes(MALLORY))
    new.write_text(f"version 2\n{public} mallory\n")
    signers.sign_file(new, MALLORY)
    try:
        signers.rotate(target.signers, new)
    except BundleError:
        return held() if target.signers.read_bytes() == before else Finding(LOSS, "the list changed")
    return Finding(WRONG_CONFIG, "the list was replaced")


@attack
def a_version_beyond_all_others_stops_updates(workspace: Workspace) -> Finding:
    """A version so high that no honest one could follow."""
    target = Target(workspace)
    target.take(made(8))
    refused(target, made(2**50), 8)
    target.take(made(9))
    return target.verdict(9)


@attack
def a_bundle_for_others_is_served(workspace: Workspace) -> Finding:
    """A release for another audience, and one of another channel."""
    target = Target(workspace)
    target.take(made(8))
    refused(target, made(9, audience=("batch",)), 8, audience="web")
    return refused(target, made(9, channel="canary"), 8)


@attack
def a_registry_sends_an_endless_blob(workspace: Workspace) -> Finding:
    """A body that never ends, where the manifest says how long it is."""
    target = Target(workspace)
    with serving(registry_of(made(8), endless)) as host:
        target.pull(f"oci://{host}/x:prod")
    return Finding(LOSS, "it was read")


@attack
def a_registry_sends_another_blob_than_its_digest_says(workspace: Workspace) -> Finding:
    """Other bytes of the same length, honestly signed."""
    target = Target(workspace)
    with serving(registry_of(made(8), lambda handler: reply(handler, 200, made(7)))) as host:
        target.pull(f"oci://{host}/x:prod")
    return Finding(WRONG_CONFIG, f"runs with {target.found()}")


@attack
def a_registry_asks_to_send_the_password_elsewhere(workspace: Workspace) -> Finding:
    """A token server on another host, named by the registry."""
    target, stolen = Target(workspace), list[str]()

    def thief(handler: BaseHTTPRequestHandler) -> None:
        stolen.append(str(handler.headers.get("authorization")))
        reply(handler, 200, b'{"token":"x"}')

    with serving(thief) as other:
        realm = f"http://localhost:{other.rpartition(':')[2]}/"
        ask = {"www_authenticate": f'Bearer realm="{realm}",service="x"'}
        with serving(lambda handler: reply(handler, 401, **ask)) as host:
            text = base64.b64encode(f"me:{SECRET}".encode()).decode()
            target.config.write_text(json.dumps({"auths": {host: {"auth": text}}}))
            try:
                target.pull(f"oci://{host}/x:prod")
            except BundleError as error:
                print(error)
    return Finding(LEAK, "the password arrived") if stolen else held("not sent")


@attack
def a_redirect_takes_the_password_along(workspace: Workspace) -> Finding:
    """A blob that lies elsewhere, as registries do with object stores."""
    target, stolen = Target(workspace), list[str]()
    content = made(8)

    def store(handler: BaseHTTPRequestHandler) -> None:
        stolen.append(str(handler.headers.get("authorization")))
        reply(handler, 200, content)

    with serving(store) as other:
        inside = registry_of(content, lambda handler: reply(handler, 307, location=f"http://{other}/blob"))

        def registry(handler: BaseHTTPRequestHandler) -> None:
            if "authorization" in handler.headers:
                inside(handler)
            else:
                reply(handler, 401, www_authenticate='Basic realm="x"')

        with serving(registry) as host:
            text = base64.b64encode(f"me:{SECRET}".encode()).decode()
            target.config.write_text(json.dumps({"auths": {host: {"auth": text}}}))
            target.pull(f"oci://{host}/x:prod")
    return held("not sent along") if stolen == ["None"] else Finding(LEAK, f"arrived: {len(stolen)}")


@attack
def paths_in_a_bundle_lead_out_of_the_cache(workspace: Workspace) -> Finding:
    """An artifact and a title whose names climb up."""
    target = Target(workspace)
    name = "../../../escaped"
    label = ArtifactLabel(name, "gemm", "", Config(), Signature(), {})
    attached = [Attachment("build", name, b"code", label)]
    content = build([other_decision(config=Config(tile=8))], attached)
    path = workspace.folder / "x"
    write(path, content, ALICE)
    title = {"annotations": {"org.opencontainers.image.title": "../escaped"}}
    with serving(registry_of(path.read_bytes(), **title)) as host:
        target.pull(f"oci://{host}/x:prod")
    store = BundleStore.open_trusted(target.file, target.signers)
    body = store.read_attachment("build", name)
    if list(workspace.folder.parent.rglob("escaped")):
        return Finding(LOSS, "a file was written elsewhere")
    artifacts.unpack(target.cache, body or b"", label)
    return Finding(LOSS, "the name was accepted")


@honest
def the_next_version_is_installed(workspace: Workspace) -> Finding:
    """Two releases in order, the second one twice."""
    target = Target(workspace)
    for version in (7, 8, 8):
        target.take(made(version))
    return target.verdict(8)


@honest
def a_person_names_an_older_version(workspace: Workspace) -> Finding:
    """A rollback on purpose, then the fix."""
    target = Target(workspace)
    target.take(made(8))
    target.take(made(7), allow=7)
    before = target.found()
    target.take(made(9))
    return target.verdict(9) if before == 7 else Finding(WRONG_CONFIG, f"ran with {before}")


@honest
def keys_are_rotated(workspace: Workspace) -> Finding:
    """Alice hands over to Bob, who signs the next release."""
    target = Target(workspace)
    target.take(made(7))
    new = workspace.folder / "new"
    new.write_text(f"version 1\n{signing.encode_public_key(signing.public_bytes(BOB))} bob\n")
    for key in (ALICE, BOB):
        signers.sign_file(new, key)
    signers.rotate(target.signers, new)
    target.take(made(8, BOB))
    return target.verdict(8)


@honest
def what_expired_while_it_was_installed_still_starts(workspace: Workspace) -> Finding:
    """A restart after the expiry of what runs."""
    target = Target(workspace)
    target.take(made(8, expires=PAST), allow=8)
    return target.verdict(8)


@honest
def a_registry_is_pulled_from(workspace: Workspace) -> Finding:
    """An honest registry, by tag."""
    target = Target(workspace)
    with serving(registry_of(made(8))) as host:
        target.pull(f"oci://{host}/x:prod", channel="prod")
    return target.verdict(8)


@honest
def a_bundle_without_a_channel_is_installed(workspace: Workspace) -> Finding:
    """A bundle as they were before there were channels."""
    target = Target(workspace)
    path = Path("plain")
    write(path, build([other_decision(config=Config(tile=5))]), ALICE)
    target.take(path.read_bytes())
    return target.verdict(5)
