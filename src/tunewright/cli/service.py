"""Service: run one in front of a store, and look after who may use it."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.amounts import Age, Size
from tunewright.cli.targets import json_option, store_option
from tunewright.errors import StoreError
from tunewright.ports.plugins import missing
from tunewright.report import words
from tunewright.service.auditing import AUDIT, read
from tunewright.service.serving import LOGS, PORT, Serving
from tunewright.service.tokens import LARGEST, RATE, Scope, Token, Tokens
from tunewright.settings import Settings
from tunewright.sharing.offers import Shelves
from tunewright.stores import places

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen; others need TLS or a proxy.")
@click.option("--port", default=PORT, show_default=True, help="Which port to listen at.")
@click.option("--open", "is_open", is_flag=True, help="Ask for no token; on this machine alone.")
@click.option("--proxied", is_flag=True, help="A proxy before this service encrypts.")
@click.option("--tls-cert", type=_FILE, help="The certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, help="Its private key, PEM.")
@click.option("--signers", type=_FILE, help="Publish only what is signed by a key in FILE.")
@click.option("--workers", default=1, show_default=True, help="Processes; each has its own warm records and figures.")
@click.option("--threads", default=8, show_default=True, help="Calls of the store at once, in each.")
@click.option("--fresh", default=2.0, show_default=True, help="Seconds for which what was looked up stays warm.")
@click.option("--largest", type=Size(), default="64M", show_default=True, help="Of any body, unpacked.")
@click.option("--patience", default=20.0, show_default=True, help="Seconds for a body to arrive.")
@click.option("--drain", default=20.0, show_default=True, help="Seconds to finish in, when told to end.")
@click.option("--logs", type=click.Choice(LOGS), default="changes", show_default=True, help="Which requests to log.")
@click.option("--traces", is_flag=True, help="Send traces by OpenTelemetry, as its own environment variables say.")
@store_option
def serve(store: str | None, **given: Any) -> None:
    """Serve the store over HTTP, for a machine or a team. SIGTERM ends it when all that was begun is done."""
    settings = Settings.read(store=store)
    serving = Serving(
        store=settings.store_location,
        aliases=settings.aliases,
        open=given.pop("is_open"),
        certificate=str(given.pop("tls_cert") or ""),
        private_key=str(given.pop("tls_key") or ""),
        signers=str(given.pop("signers") or ""),
        **given,
    )
    try:
        from tunewright.service import running  # noqa: PLC0415 - optional; said with the extra to install
    except ImportError as error:
        raise missing("cli", "service", error) from error
    try:
        has_tokens = bool(Tokens(_shelves(serving.store)).all())
    except StoreError as error:
        if "://" not in serving.store:
            raise
        output.say(f"the store is away, and requests are turned away until it is back: {error}")
        has_tokens = True
    if not has_tokens and not serving.open:
        said = "make one with `tunewright service token add NAME --scope read`, or serve this machine alone with --open"
        output.say(f"nobody has a token yet; {said}")
    kind = "https" if serving.certificate else "http"
    output.say(f"serving {settings.store_name} at {kind}://{serving.address}:{serving.port}")
    running.run(serving)


@click.group()
def service() -> None:
    """Look after a service: who may use it, and who published what."""


@service.group()
def token() -> None:
    """Make, list, rotate and revoke tokens. They lie in the store, as digests; running services know in a second."""


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
@click.option("--lasts", type=Age(), help="It ends after that long: 90d.")
@click.option("--rate", type=float, default=RATE, show_default=True, help="Requests a second; 0: no bound.")
@click.option("--largest", type=Size(), default=LARGEST, help="Bytes of a body, unpacked (default: 16M).")
@store_option
@json_option
def add(
    name: str, scopes: tuple[str, ...], lasts: float | None, store: str | None, as_json: bool, **limits: Any
) -> None:
    """Make a token for NAME, and print it once: it is kept nowhere."""
    until = None if lasts is None else time.time() + lasts
    made, text = _tokens(store).add(name, map(Scope, scopes), until=until, **limits)
    _handed_over(made, text, as_json)


@token.command()
@click.argument("token")
@click.option("--grace", type=Age(), default="1h", show_default=True, help="How long the former one is good.")
@store_option
@json_option
def rotate(token: str, grace: float, store: str | None, as_json: bool) -> None:
    """Give TOKEN, an id or a name, a new secret, and print it once."""
    _handed_over(*_tokens(store).rotate(token, grace), as_json)


@token.command()
@click.argument("token")
@store_option
def revoke(token: str, store: str | None) -> None:
    """Let TOKEN, an id or a name, open nothing from now on."""
    gone = _tokens(store).revoke(token)
    output.say(f"{gone.name} ({gone.id}) opens nothing any more")


@token.command("list")
@store_option
@json_option
def listed(store: str | None, as_json: bool) -> None:
    """List tokens, without what would open anything."""
    found = _tokens(store).all()
    if as_json:
        output.as_json([_harmless(one) for one in found])
        return
    output.table(
        ("id", "name", "scopes", "made", "until", "rate", "largest"),
        [
            (t.id, t.name, " ".join(t.scopes), _when(t.made), _when(t.until), f"{t.rate:g}/s", words.size(t.largest))
            for t in found
        ],
    )


@service.command()
@click.option("--kernel", help="Of this kernel alone.")
@click.option("--most", default=50, show_default=True, help="The youngest so many.")
@store_option
@json_option
def audit(kernel: str | None, most: int, store: str | None, as_json: bool) -> None:
    """List who published what, and in the place of what."""
    every = map(read, (body for _, body in _shelves(_location(store)).entries(AUDIT)))
    found = [one for one in every if one is not None and kernel in (None, one.kernel)][-most:]
    if as_json:
        output.as_json(found)
        return
    output.table(
        ("when", "kernel", "key", "token", "before", "after", "stands"),
        [
            (
                _when(n.at),
                n.kernel,
                n.digest[:10],
                n.token,
                _said(n.before),
                _said(n.after),
                "yes" if n.stands else "no",
            )
            for n in found
        ],
    )


def _said(config: dict[str, Any] | None) -> str:
    return "-" if config is None else ", ".join(f"{name}={value}" for name, value in config.items())


def _handed_over(made: Token, text: str, as_json: bool) -> None:
    if as_json:
        output.as_json(_harmless(made) | {"token": text})
        return
    output.say(text)
    output.say(
        f"for {made.name} ({made.id}): {' '.join(made.scopes)}. It is shown this once; set TUNEWRIGHT_TOKEN to it."
    )


def _harmless(token: Token) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(token)
    return {name: value for name, value in plain.items() if name not in ("digest", "former")}


def _location(store: str | None) -> str:
    return Settings.read(store=store).store_location


def _tokens(store: str | None) -> Tokens:
    return Tokens(_shelves(_location(store)))


def _shelves(location: str) -> Shelves:
    kept = places.truth(location)
    if not isinstance(kept, Shelves):
        raise StoreError("this store has no shelves, where a service keeps its tokens; use SQLite, PostgreSQL or Redis")
    return kept


def _when(at: float | None) -> str:
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
