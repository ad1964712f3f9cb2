"""The server process of a service: granian with the ASGI application."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server import Server

from tunewright.service import logs
from tunewright.service.app import create_app
from tunewright.service.config import ServiceConfig

HEADER_TIMEOUT_SECONDS = 10
"""How long the headers of a request may take to arrive."""


def run_server(config: ServiceConfig) -> None:
    """Serves until SIGTERM or Ctrl-C; then finishes the requests that have begun."""
    # Reports problems with the store, the signers or the traces here rather than in a worker that cannot start.
    create_app(config)
    certificate, key = (Path(name) if name else None for name in (config.certificate, config.private_key))
    server = Server(
        "tunewright",
        address=config.address,
        port=config.port,
        interface=Interfaces.ASGI,
        workers=config.workers,
        websockets=False,
        http1_settings=HTTP1Settings(header_read_timeout=1000 * HEADER_TIMEOUT_SECONDS),
        log_enabled=False,
        ssl_cert=certificate,
        ssl_key=key,
        respawn_failed_workers=True,
        workers_kill_timeout=max(1, round(config.drain)),
    )
    server.serve(target_loader=partial(_load_app, config), wrap_loader=False)


def _load_app(config: ServiceConfig) -> Any:
    logs.configure_logging()
    return create_app(config)
