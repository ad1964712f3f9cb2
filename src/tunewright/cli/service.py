"""`tunewright service`: the HTTP service in front of a store, its tokens and its audit log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.quantities import Age, Size
from tunewright.cli.service_audit import audit, format_time
from tunewright.cli.targets import json_option, store_option
from tunewright.errors import StoreError
from tunewright.ports.plugins import missing
from tunewright.report import formatting
from tunewright.service.config import LOGS, PORT, ServiceConfig
from tunewright.service.storage import open_primary
from tunewright.service.tokens import MAX_BODY_BYTES, REQUESTS_PER_SECOND, Scope, Token, TokenStore
from tunewright.settings import Settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def service() -> None:
    """Run an HTTP service in front of a store, and manage who may use it."""


@service.command()
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; other than local needs TLS or a proxy.",
)
@click.option("--port", default=PORT, show_default=True, help="Port to listen on.")
@click.option("--open", "is_open", is_flag=True, help="Require no token; on this machine only.")
@click.option("--proxied", is_flag=True, help="A proxy in front of this service encrypts.")
@click.option("--tls-cert", type=_FILE, help="The certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, help="Its private key, PEM.")
@click.option("--signers", type=_FILE, help="Publish only what is signed by a key in FILE.")
@click.option("--workers", default=1, show_default=True, help="Processes; each has its own cache and metrics.")
@click.option("--threads", default=8, show_default=True, help="Concurrent calls of the store, in each.")
@click.option("--fresh", default=2.0, show_default=True, help="Seconds for which a look-up is cached.")
@click.option("--largest", type=Size(), default="64M", show_default=True, help="Largest body, unpacked.")
@click.option("--patience", default=20.0, show_default=True, help="Seconds for a body to arrive.")
@click.option("--drain", default=20.0, show_default=True, help="Seconds to finish requests in, on SIGTERM.")
@click.option("--logs", type=click.Choice(LOGS), default="changes", show_default=True, help="Which requests to log.")
@click.option("--traces", is_flag=True, help="Send traces by OpenTelemetry, as its own environment variables say.")
@store_option
def run(store: str | None, **options: Any) -> None:
    """Serve the store over HTTP, for a machine or a team. On SIGTERM, requests are finished first."""
    settings = Settings.read(store=store)
    config = ServiceConfig(
        store=settings.store_location,
        aliases=settings.aliases,
        open=options.pop("is_open"),
        certificate=str(options.pop("tls_cert") or ""),
        private_key=str(options.pop("tls_key") or ""),
        signers=str(options.pop("signers") or ""),
        **options,
    )
    try:
        from tunewright.service import server  # noqa: PLC0415 - needs the extra `service`
    except ImportError as error:
        raise missing("cli", "service", error) from error
    try:
        has_tokens = bool(TokenStore(open_primary(config.store)).all())
    except StoreError as error:
        if "://" not in config.store:
            raise
        output.echo(f"the store does not answer, and requests are refused until it does: {error}")
        has_tokens = True
    if not has_tokens and not config.open:
        remedy = (
            "make one with `tunewright service token add NAME --scope read`, or serve this machine only with --open"
        )
        output.echo(f"nobody has a token yet; {remedy}")
    kind = "https" if config.certificate else "http"
    output.echo(f"serving {settings.store_name} at {kind}://{config.address}:{config.port}")
    server.run_server(config)


@service.group()
def token() -> None:
    """Make, list, rotate and revoke tokens.

    They are stored as digests; running services notice changes within a second.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([str(scope) for scope in Scope]),
    multiple=True,
    required=True,
    help="What it allows.",
)
@click.option("--lasts", type=Age(), help="How long it is valid: 90d.")
@click.option(
    "--rate", type=float, default=REQUESTS_PER_SECOND, show_default=True, help="Requests a second; 0: no limit."
)
@click.option("--largest", type=Size(), default=MAX_BODY_BYTES, help="Bytes of a body, unpacked (default: 16M).")
@store_option
@json_option
def add(
    name: str, scopes: tuple[str, ...], lasts: float | None, store: str | None, as_json: bool, **limits: Any
) -> None:
    """Make a token for NAME, and print it once: only its digest is stored."""
    until = None if lasts is None else time.time() + lasts
    created, secret = _tokens(store).add(name, map(Scope, scopes), until=until, **limits)
    _print_new_token(created, secret, as_json)


@token.command()
@click.argument("token")
@click.option("--grace", type=Age(), default="1h", show_default=True, help="How long the former secret stays valid.")
@store_option
@json_option
def rotate(token: str, grace: float, store: str | None, as_json: bool) -> None:
    """Give TOKEN, an id or a name, a new secret, and print it once."""
    _print_new_token(*_tokens(store).rotate(token, grace), as_json)


@token.command()
@click.argument("token")
@store_option
def revoke(token: str, store: str | None) -> None:
    """Revoke TOKEN, an id or a name."""
    revoked = _tokens(store).revoke(token)
    output.echo(f"{revoked.name} ({revoked.id}) is revoked")


@token.command("list")
@store_option
@json_option
def list_tokens(store: str | None, as_json: bool) -> None:
    """List tokens, without secrets."""
    tokens = _tokens(store).all()
    if as_json:
        output.print_json([_without_secrets(entry) for entry in tokens])
        return
    output.print_table(
        ("id", "name", "scopes", "made", "until", "rate", "largest"),
        [
            (
                entry.id,
                entry.name,
                " ".join(entry.scopes),
                format_time(entry.made),
                format_time(entry.until),
                f"{entry.rate:g}/s",
                formatting.size(entry.largest),
            )
            for entry in tokens
        ],
    )


service.add_command(audit)


def _print_new_token(created: Token, secret: str, as_json: bool) -> None:
    if as_json:
        output.print_json(_without_secrets(created) | {"token": secret})
        return
    output.echo(secret)
    output.echo(
        f"for {created.name} ({created.id}): {' '.join(created.scopes)}. "
        "It is shown only once; set TUNEWRIGHT_TOKEN to it."
    )


def _without_secrets(token: Token) -> dict[str, Any]:
    """Returns a token as JSON, without what could be used."""
    plain: dict[str, Any] = msgspec.to_builtins(token)
    return {name: value for name, value in plain.items() if name not in ("digest", "former")}


def _tokens(store: str | None) -> TokenStore:
    return TokenStore(open_primary(Settings.read(store=store).store_location))
