"""`tunewright bundle push` and `pull`: bundles to and from the registries and servers that a fleet already has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.bundle_options import FILE, F, expectation_options, make_expectation, trust_options
from tunewright.cli.targets import json_option
from tunewright.report import formatting
from tunewright.settings import Settings
from tunewright.shipping import artifact, receive
from tunewright.shipping.registry import Access, Reference
from tunewright.stores.bundle.transfer import MAX_BYTES, SECONDS


def access_options(function: F) -> F:
    """Adds the options `--ca`, `--auth-host` and `--seconds`."""
    ca = click.option("--ca", type=FILE, help="Certificates to trust instead of the system's.")
    text = "A host that may be shown the registry's credentials, because its tokens come from there (several times)."
    hosts = click.option("--auth-host", "auth_hosts", multiple=True, help=text)
    seconds = click.option(
        "--seconds", type=click.FloatRange(min=0, min_open=True), default=SECONDS, show_default=True,
        help="Give up if the whole transfer takes longer.",
    )  # fmt: skip
    return ca(hosts(seconds(function)))


def _access(options: dict[str, Any]) -> Access:
    return Access(Settings.read().docker_config, options["ca"] and str(options["ca"]), options["auth_hosts"])


@click.command()
@click.argument("file", type=FILE)
@click.argument("location")
@click.option("--signers", type=FILE, help="A signed list of signers that goes along, so that targets take it over.")
@click.option("--cosign-key", type=FILE, help="A P-256 private key (PEM): add a signature that cosign verifies.")
@access_options
@json_option
def push(file: Path, location: str, signers: Path | None, cosign_key: Path | None, **options: Any) -> None:
    """Upload FILE to a registry.

    LOCATION is oci://HOST/REPO:TAG. Credentials are those of `docker login`.
    """
    reference = Reference.parse(location)
    access = _access(options)
    digest = artifact.push(file, reference, access, signers=signers, cosign_key=cosign_key, seconds=options["seconds"])
    place = str(reference._replace(digest=digest))
    if options["as_json"]:
        output.print_json({"file": str(file), "location": place, "digest": digest})
        return
    output.echo(f"{file} is at {place}")


@click.command()
@click.argument("location")
@click.argument("file", type=FILE)
@trust_options
@expectation_options
@click.option("--cosign-key", type=FILE, help="A public key (cosign.pub) that must also have signed the manifest.")
@click.option("--max-bytes", type=click.IntRange(min=1), default=MAX_BYTES, show_default=True, help="Read no more.")
@access_options
@json_option
def pull(location: str, file: Path, signers: Path | None, pin: str | None, **options: Any) -> None:
    """Fetch a bundle and install it as FILE.

    LOCATION is oci://HOST/REPO:TAG, oci://HOST/REPO@sha256:DIGEST, or https://HOST/PATH. FILE is replaced only if
    the bundle is signed as --signers asks, not expired, and later than every version seen here.
    """
    wanted = receive.PullOptions(
        _access(options),
        signers,
        pin,
        make_expectation(options),
        options["cosign_key"],
        options["max_bytes"],
        options["seconds"],
    )
    pulled = receive.pull(location, file, wanted, Settings.read().cache_path)
    manifest = pulled.store.manifest
    if options["as_json"]:
        answer = {"file": str(file), "digest": pulled.store.digest, "manifest_digest": pulled.digest or None}
        release = {"channel": manifest.channel, "version": manifest.version, "expires": manifest.expires}
        output.print_json(
            {**answer, **release, "signer": pulled.store.signer, "bytes": pulled.received, "rotated": pulled.rotated}
        )
        return
    if pulled.rotated:
        output.echo(f"{signers} was replaced by the list that came along")
    release_text = f"version {manifest.version} of {manifest.channel}, " if manifest.channel else ""
    trusted = f"signed by {pulled.store.signer}" if pulled.store.signer else "as pinned"
    output.echo(f"{file}: {release_text}{trusted}, {formatting.counted(manifest.decisions, 'decision')}")
