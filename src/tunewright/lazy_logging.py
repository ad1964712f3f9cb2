"""A logger that imports `logging` on first use, since that import takes longer than ours."""

from __future__ import annotations

from typing import Any


class LazyLogger:
    """Behaves like `logging.getLogger(name)`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        import logging  # noqa: PLC0415 - see above

        return getattr(logging.getLogger(self._name), level)
