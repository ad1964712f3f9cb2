"""Logs: one JSON object a line, for machines; what is secret never gets this far."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar.types import Scope

from tunewright.service.tokens import Token

_LOGGER = "tunewright.service"
_SLOW = 1.0
_SAFE = ("GET", "HEAD", "OPTIONS")
_READS = frozenset(("/v1/decisions/lookup", "/v1/decisions/nearest", "/v1/decisions/relatives", "/v1/shelves/fetch"))
"""What is asked by POST, since it is long, and changes nothing."""


class Lines(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(said).decode()


def begin() -> None:
    """Write what this process logs as lines of JSON to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class Log:
    """What a service says of requests: of all, of those that change something or fail, or of those that fail."""

    def __init__(self, which: str) -> None:
        self._which = which
        self._logger = logging.getLogger(_LOGGER)

    def request(self, scope: Scope, number: bytes, status: int, seconds: float, token: Token | None) -> None:
        """A request was answered. Of what it said only the path is told, never headers, queries or bodies."""
        method, path = scope.get("method", ""), scope["path"]
        changes = self._which == "changes" and method not in _SAFE and path not in _READS
        if self._which != "all" and status < 400 and seconds < _SLOW and not changes:
            return
        fields = {
            "request": number.decode(),
            "method": method,
            "path": path[:200],
            "status": status,
            "seconds": round(seconds, 6),
            "token": token.id if token is not None else "",
        }
        self._logger.log(logging.ERROR if status >= 500 else logging.INFO, "answered", extra={"fields": fields})

    def audit(self, fields: dict[str, Any]) -> None:
        """Something was published."""
        self._logger.info("published", extra={"fields": fields})

    def failed(self, number: str, error: BaseException) -> None:
        """A request broke something of ours."""
        self._logger.error("a request failed", exc_info=error, extra={"fields": {"request": number}})
