"""Options of several commands of `tunewright bundle`: whom to trust, which release is expected, what a release is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tunewright.ports import plugins

if TYPE_CHECKING:
    from tunewright.stores.bundle.build import ReleaseInfo
    from tunewright.stores.bundle.freshness import Expectation

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(dir_okay=False, path_type=Path)


def trust_options(function: F) -> F:
    """Adds the options `--signers` and `--pin`."""
    signers = click.option("--signers", type=FILE, help="Who may sign: a public key and a name on each line.")
    pin = click.option("--pin", help="The digest that the bundle must have.")
    return signers(pin(function))


def expectation_options(function: F) -> F:
    """Adds the options `--channel`, `--audience` and `--allow`."""
    channel = click.option("--channel", help="The channel that the bundle must be of.")
    audience = click.option("--audience", help="The name of this machine or group, if bundles are not for everybody.")
    text = "Accept this version even if it is older than what was seen, or expired."
    allow = click.option("--allow", type=click.IntRange(min=0), metavar="VERSION", help=text)
    return channel(audience(allow(function)))


def release_options(function: F) -> F:
    """Adds the options that make a bundle a release: `--channel`, `--version`, `--expires` and `--audience`."""
    channel = click.option("--channel", help="The channel of this release, such as prod.")
    version = click.option("--version", type=click.IntRange(1, 2**53), help="Its version: higher than the last one's.")
    expires = click.option("--expires", help="From when on it is refused: 2027-06-30, or 90d from now.")
    audience = click.option("--audience", multiple=True, help="Whom it is for, if not for everybody (several times).")
    return channel(version(expires(audience(function))))


def make_release(options: dict[str, Any]) -> ReleaseInfo:
    """Returns the release that the options describe."""
    from tunewright.stores.bundle.build import ReleaseInfo  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle.expiry import expiry_after  # noqa: PLC0415 - as above

    channel, version, expires = options["channel"], options["version"], options["expires"]
    if not (channel or version or expires or options["audience"]):
        return ReleaseInfo()
    if not (channel and version and expires):
        raise click.UsageError("a release has a channel, a version and an expiry; give --channel, --version, --expires")
    return ReleaseInfo(channel, version, expiry_after(expires, time.time()), options["audience"])


def make_expectation(options: dict[str, Any]) -> Expectation:
    """Returns what the options of `expectation_options` expect."""
    from tunewright.stores.bundle.freshness import Expectation  # noqa: PLC0415 - for bundles alone

    return Expectation(options["channel"], options["audience"], options["allow"])


def open_bundle(path: Path, signers: Path | None, pin: str | None, expected: Expectation | None = None) -> Any:
    """Returns the bundle at `path` after its signer or digest was checked."""
    return plugins.load("stores", "bundle").open_trusted(path, signers, pin, expected)
