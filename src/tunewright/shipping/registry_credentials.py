"""Credentials of registries, as Docker and its relatives keep them, and whom they may be shown to."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunewright.errors import BundleError
from tunewright.stores import files

_MAX_BYTES = 1 << 20
_HELPER_SECONDS = 30.0
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")
_TOKEN_USER = "<token>"


class Credentials(NamedTuple):
    """A user and a password; `is_token` if the password is a token to be exchanged for others."""

    user: str
    secret: str
    is_token: bool = False

    @property
    def basic(self) -> str:
        """The value of the header `Authorization`."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, ...)"  # a secret must not reach a log


class _Entry(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _Entry] = {}
    credHelpers: dict[str, str] = {}  # noqa: N815 - as Docker writes it
    credsStore: str = ""  # noqa: N815 - as above


class _HelperAnswer(msgspec.Struct):
    Username: str = ""
    Secret: str = ""


def find_credentials(config: Path, registry: str) -> Credentials | None:
    """Returns the credentials for a registry, `HOST` or `HOST:PORT`; None if there are none."""
    try:
        known = msgspec.json.decode(files.read_bounded(config, _MAX_BYTES), type=_DockerConfig)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise BundleError(f"{config} cannot be read: {error}; log in again with `docker login`") from error
    names = _DOCKER_HUB if registry in _DOCKER_HUB else (registry,)
    for name, helper in known.credHelpers.items():
        if _host(name) in names:
            return _ask_helper(helper, name)
    for name, entry in known.auths.items():
        if _host(name) in names and (found := _from_entry(entry, config)) is not None:
            return found
    if known.credsStore:
        server = "https://index.docker.io/v1/" if registry in _DOCKER_HUB else registry
        return _ask_helper(known.credsStore, server)
    return None


def _host(name: str) -> str:
    """Returns the host of an entry, which may be written as an address."""
    return re.sub(r"^https?://", "", name).partition("/")[0]


def _from_entry(entry: _Entry, config: Path) -> Credentials | None:
    user, secret = entry.username, entry.password
    if entry.auth:
        try:
            user, _, secret = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except ValueError as error:
            message = f"{config} has credentials that cannot be read; log in again with `docker login`"
            raise BundleError(message) from error
    if entry.identitytoken:
        return Credentials(user or _TOKEN_USER, entry.identitytoken, is_token=True)
    return Credentials(user, secret.strip("\0")) if user else None


def _ask_helper(helper: str, server: str) -> Credentials | None:
    """Returns what the program of that name knows; raises BundleError if it fails."""
    if not _HELPER.fullmatch(helper):
        raise BundleError(f"{helper[:40]!r} is not the name of a credential helper; correct Docker's config.json")
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=server.encode(), capture_output=True, timeout=_HELPER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"{program} cannot be asked for credentials: {error}; log in again") from error
    if done.returncode:
        return None  # it knows none
    try:
        answer = msgspec.json.decode(done.stdout, type=_HelperAnswer)
    except msgspec.MsgspecError as error:
        raise BundleError(f"{program} did not answer as it should; log in again") from error
    if not answer.Secret:
        return None
    return Credentials(answer.Username, answer.Secret, is_token=answer.Username == _TOKEN_USER)


def may_be_asked(realm: str, registry: str, named: tuple[str, ...] = ()) -> bool:
    """Returns whether credentials of a registry may be shown to the host that it names as its token server.

    That may be the registry's own host, the domain above it (`gitlab.com` for `registry.gitlab.com`), Docker Hub's
    own, or one that a person named. Otherwise a registry could have them sent anywhere.
    """
    is_docker_hub = registry in _DOCKER_HUB and realm == "auth.docker.io"
    is_above = "." in realm and not realm[-1].isdecimal() and registry.endswith(f".{realm}")
    return realm == registry or is_above or is_docker_hub or realm in named
