"""Running: a service as a process: granian around the application, until it is told to end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server import Server

from tunewright.service import logs
from tunewright.service.app import application
from tunewright.service.serving import Serving

HEADERS_SECONDS = 10
"""How long a request may take to say what it wants."""


def run(serving: Serving) -> None:
    """Serve until SIGTERM or Ctrl-C; then take nothing new, and finish what was begun."""
    # What is wrong with the store, the signers or the traces is said here, not by a worker that cannot start.
    application(serving)
    certificate, key = (Path(name) if name else None for name in (serving.certificate, serving.private_key))
    server = Server(
        "tunewright",
        address=serving.address,
        port=serving.port,
        interface=Interfaces.ASGI,
        workers=serving.workers,
        websockets=False,
        http1_settings=HTTP1Settings(header_read_timeout=1000 * HEADERS_SECONDS),
        log_enabled=False,
        ssl_cert=certificate,
        ssl_key=key,
        respawn_failed_workers=True,
        workers_kill_timeout=max(1, round(serving.drain)),
    )
    server.serve(target_loader=partial(_loaded, serving), wrap_loader=False)


def _loaded(serving: Serving) -> Any:
    logs.begin()
    return application(serving)
