"""Logs of a service: one JSON object per line, without secrets."""

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
"""Queries that use POST because they are long; they change nothing."""


class JsonFormatter(logging.Formatter):
    """Formats a log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def configure_logging() -> None:
    """Writes the logs of this process to standard error, as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class RequestLog:
    """The log of requests: of all, of those that change something or fail, or of those that fail."""

    def __init__(self, level: str) -> None:
        self._level = level
        self._logger = logging.getLogger(_LOGGER)

    def request(self, scope: Scope, request_id: bytes, status: int, seconds: float, token: Token | None) -> None:
        """Logs a request that was answered: its path, but never headers, query or body."""
        method, path = scope.get("method", ""), scope["path"]
        changes = self._level == "changes" and method not in _SAFE and path not in _READS
        if self._level != "all" and status < 400 and seconds < _SLOW and not changes:
            return
        fields = {
            "request": request_id.decode(),
            "method": method,
            "path": path[:200],
            "status": status,
            "seconds": round(seconds, 6),
            "token": token.id if token is not None else "",
        }
        self._logger.log(logging.ERROR if status >= 500 else logging.INFO, "answered", extra={"fields": fields})

    def audit(self, fields: dict[str, Any]) -> None:
        """Logs a publication."""
        self._logger.info("published", extra={"fields": fields})

    def failed(self, request_id: str, error: BaseException) -> None:
        """Logs an internal error."""
        self._logger.error("a request failed", exc_info=error, extra={"fields": {"request": request_id}})
