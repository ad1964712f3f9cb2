"""`tunewright bundle sign` and `rotate`: signatures of several people, and lists of signers that replace each other."""

from __future__ import annotations

from pathlib import Path

import click

from tunewright.cli import output
from tunewright.cli.bundle_options import FILE
from tunewright.cli.targets import json_option
from tunewright.report import formatting


@click.command()
@click.argument("file", type=FILE)
@click.option("--sign", "key", type=FILE, required=True, help="The private key to sign with.")
def sign(file: Path, key: Path) -> None:
    """Add a signature to FILE.

    FILE is a bundle or a list of signers. Signatures that it has are kept.
    """
    from tunewright.stores.bundle import build, signers, signing  # noqa: PLC0415 - needs `cryptography`
    from tunewright.stores.bundle.layout import MAGIC  # noqa: PLC0415 - as above

    private = signing.load_private_key(key)
    try:
        with file.open("rb") as opened:
            is_bundle = opened.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from error
    if is_bundle:
        output.echo(f"{file} is signed; its digest is {build.add_signature(file, private)}")
    else:
        signers.sign_file(file, private)
        output.echo(f"{file} is signed; targets take it over with `tunewright bundle rotate`")


@click.command()
@click.argument("current", type=FILE)
@click.argument("new", type=FILE)
@json_option
def rotate(current: Path, new: Path, as_json: bool) -> None:
    """Replace the list of signers CURRENT by NEW.

    Signers of both lists must have signed NEW, as many as each list asks for, and its version must be higher.
    """
    from tunewright.stores.bundle import signers  # noqa: PLC0415 - needs `cryptography`

    listed = signers.rotate(current, new)
    if as_json:
        names, revoked = sorted(listed.names.values()), sorted(listed.revoked.values())
        output.print_json(
            {"version": listed.version, "threshold": listed.threshold, "signers": names, "revoked": revoked}
        )
        return
    count = formatting.counted(len(listed.names), "signer")
    output.echo(f"{current} is version {listed.version}: {count}, {listed.threshold} of them must sign")
