"""A client of OCI registries: manifests and blobs by digest, each verified while it arrives."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import msgspec

from tunewright.errors import BundleError
from tunewright.shipping.registry_credentials import Credentials, find_credentials, may_be_asked
from tunewright.stores.bundle.transfer import HttpTransfer, origin
from tunewright.stores.loopback import is_loopback

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
MAX_MANIFEST_BYTES = 1 << 20
_MAX_TOKEN_BYTES = 1 << 16
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(
    r"oci://(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?P<port>:\d{1,5})?"
    r"/(?P<repository>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE = re.compile(r'([a-z]+)="([^"]*)"')


class Reference(NamedTuple):
    """What `oci://HOST/REPO:TAG@sha256:DIGEST` names; the digest decides if both are there."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Returns the reference in a location; raises BundleError if it is malformed."""
        found = _REFERENCE.fullmatch(text)
        if found is None or len(text) > 500:
            raise BundleError(f"{text[:80]!r} names nothing in a registry; write oci://HOST/REPO:TAG")
        registry = found["host"].lower() + (found["port"] or "")
        return cls(registry, found["repository"], found["tag"] or "latest", found["digest"] or "")

    @property
    def host(self) -> str:
        """The host of the registry, without a port."""
        return re.sub(r":\d+$", "", self.registry).strip("[]")

    def __str__(self) -> str:
        return f"oci://{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A blob in a manifest: its type, digest and size."""

    media_type: str = msgspec.field(name="mediaType")
    digest: str
    size: int
    annotations: dict[str, str] = {}


class OciManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest of an artifact, as OCI 1.1 defines it."""

    schema_version: int = msgspec.field(name="schemaVersion")
    media_type: str = msgspec.field(name="mediaType")
    config: Descriptor
    layers: tuple[Descriptor, ...]
    artifact_type: str = msgspec.field(default="", name="artifactType")
    annotations: dict[str, str] = {}


class Access(NamedTuple):
    """How registries are reached: Docker's config file, certificates, hosts that may be shown credentials."""

    docker_config: Path
    ca: str | None = None
    auth_hosts: tuple[str, ...] = ()


class OciRegistry:
    """One repository of a registry, within one transfer."""

    def __init__(self, reference: Reference, transfer: HttpTransfer, access: Access) -> None:
        self._reference, self._transfer, self._access = reference, transfer, access
        scheme = "http" if is_loopback(reference.host) else "https"
        name = "registry-1.docker.io" if reference.registry == "docker.io" else reference.registry
        self._base = f"{scheme}://{name}/v2/{reference.repository}/"
        self._authorization = ""

    def get_manifest(self, name: str) -> tuple[OciManifest, str] | None:
        """Returns the manifest with that tag or digest, and its digest; None if there is none."""
        with self._get(f"manifests/{name}", accept=MANIFEST_TYPE) as response:
            if response.status == 404:
                return None
            self._require(response, 200)
            body = self._transfer.read(response, MAX_MANIFEST_BYTES)
        digest = f"sha256:{sha256(body).hexdigest()}"
        if _DIGEST.fullmatch(name) and digest != name:
            raise BundleError(f"the registry sends another manifest than {name[:19]}...; do not use it")
        try:
            manifest = msgspec.json.decode(body, type=OciManifest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BundleError(f"{self._reference} is not an artifact of ours: {error}; check the tag") from error
        return manifest, digest

    def get_blob(self, blob: Descriptor, sink: IO[bytes], limit: int) -> None:
        """Writes a blob to `sink`; raises BundleError if its size or digest is another than the manifest says."""
        if not _DIGEST.fullmatch(blob.digest) or not 0 <= blob.size <= limit:
            raise BundleError(f"the manifest offers a blob of {blob.size:,} bytes; at most {limit:,} are read")
        digest, size = sha256(), 0
        with self._get(f"blobs/{blob.digest}") as response:
            self._require(response, 200)
            for part in self._transfer.parts(response, blob.size):
                digest.update(part)
                size += len(part)
                sink.write(part)
        if size != blob.size or f"sha256:{digest.hexdigest()}" != blob.digest:
            raise BundleError(f"the registry sends another blob than {blob.digest[:19]}...; do not use it")

    def put_blob(self, content: IO[bytes], blob: Descriptor) -> None:
        """Uploads a blob, unless the registry has it."""
        with self._send("HEAD", f"blobs/{blob.digest}") as response:
            if response.status == 200:
                return
        with self._send("POST", "blobs/uploads/") as response:
            self._require(response, 202)
            place = urljoin(self._base, response.getheader("location") or "")
        if origin(place) != origin(self._base):
            raise BundleError("the registry asks to upload to another host, which would see credentials; use another")
        place += ("&" if urlsplit(place).query else "?") + urlencode({"digest": blob.digest})
        with self._send("PUT", place, content, "application/octet-stream") as response:
            self._require(response, 201)

    def put_manifest(self, manifest: OciManifest, tag: str) -> str:
        """Uploads a manifest under a tag, and returns its digest."""
        body = msgspec.json.encode(manifest)
        with self._send("PUT", f"manifests/{tag}", body, MANIFEST_TYPE) as response:
            self._require(response, 201)
        return f"sha256:{sha256(body).hexdigest()}"

    @contextmanager
    def _get(self, path: str, accept: str = "*/*") -> Iterator[http.client.HTTPResponse]:
        for is_last in (False, True):
            with self._transfer.get(self._base + path, self._headers(accept=accept)) as response:
                if response.status != 401 or is_last or not self._log_in(response):
                    yield response
                    return

    @contextmanager
    def _send(
        self, method: str, path: str, body: bytes | IO[bytes] | None = None, kind: str = ""
    ) -> Iterator[http.client.HTTPResponse]:
        """Sends a request; redirects of anything but GET are not followed."""
        url = urljoin(self._base, path)
        for is_last in (False, True):
            if not isinstance(body, bytes | None):
                body.seek(0)
            headers = self._headers(**({"content-type": kind} if kind else {}))
            with self._transfer.request(method, url, headers, body) as response:
                if response.status != 401 or is_last or not self._log_in(response):
                    yield response
                    return

    def _headers(self, **more: str) -> dict[str, str]:
        return {**more, **({"authorization": self._authorization} if self._authorization else {})}

    def _require(self, response: http.client.HTTPResponse, status: int) -> None:
        if response.status == status:
            return
        hints = {
            401: "log in with `docker login`",
            403: "ask for the right to this repository",
            404: "check repository and tag",
            429: "try again later",
        }
        hint = hints.get(response.status, "ask those who run it")
        raise BundleError(f"the registry {self._reference.registry} answers {response.status}; {hint}")

    def _log_in(self, response: http.client.HTTPResponse) -> bool:
        """Gets an authorization that the registry asks for; False if there is none to get."""
        scheme, _, rest = (response.getheader("www-authenticate") or "").partition(" ")
        known = find_credentials(self._access.docker_config, self._reference.registry)
        if scheme.lower() == "bearer":
            self._authorization = self._fetch_token(dict(_CHALLENGE.findall(rest)), known)
            return True
        if scheme.lower() != "basic" or known is None or known.is_token:
            return False
        self._authorization = known.basic
        return True

    def _fetch_token(self, challenge: Mapping[str, str], known: Credentials | None) -> str:
        """Returns the authorization that the token server of a registry gives us."""
        realm = challenge.get("realm", "")
        host = origin(realm)[1]
        query = {name: challenge[name] for name in ("service", "scope") if name in challenge}
        if known is not None and not may_be_asked(host, self._reference.host, self._access.auth_hosts):
            raise BundleError(
                f"the registry {self._reference.registry} wants your credentials sent to {host}; "
                f"if that is right, say so with `--auth-host {host}`"
            )
        parts = urlsplit(realm)
        if known is not None and known.is_token:
            form = {**query, "grant_type": "refresh_token", "client_id": "tunewright", "refresh_token": known.secret}
            headers, body = {"content-type": "application/x-www-form-urlencoded"}, urlencode(form).encode()
            request = self._transfer.request("POST", realm, headers, body)
        else:
            address = parts._replace(query=urlencode([*parse_qsl(parts.query), *query.items()])).geturl()
            request = self._transfer.request("GET", address, {"authorization": known.basic} if known else {})
        with request as response:
            self._require(response, 200)
            answer: Any = self._transfer.read(response, _MAX_TOKEN_BYTES)
        try:
            found = msgspec.json.decode(answer, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise BundleError(f"{host} gives no token; log in again with `docker login`") from error
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise BundleError(f"{host} gives no token; log in again with `docker login`")
        return f"Bearer {token}"
