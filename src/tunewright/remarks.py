"""Remarks: a logger that loads `logging` when there is something to say, since importing it costs more than we do."""

from __future__ import annotations

from typing import Any


class Remarks:
    """Stands for `logging.getLogger(name)`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        import logging  # noqa: PLC0415 - see above

        return getattr(logging.getLogger(self._name), level)
