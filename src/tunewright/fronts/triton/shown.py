"""Shown: the decisions of a process as Triton's autotuner shows them in `.cache`; what people put there counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Shown(dict[Any, Any]):
    """A dictionary that knows which of its entries came from outside, and says when it is changed from there."""

    def __init__(self, entries: Mapping[Any, Any], changed: Callable[[], None]) -> None:
        super().__init__(entries)
        self._changed, self._given = changed, set(entries)

    def note(self, key: Any, config: Any) -> None:
        """Show a decision."""
        super().__setitem__(key, config)

    def given(self, key: Any) -> Any:
        """The config that somebody put here for `key`; None if nobody did."""
        return self.get(key) if key in self._given else None

    def __setitem__(self, key: Any, config: Any) -> None:
        super().__setitem__(key, config)
        self._given.add(key)
        self._changed()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._given.discard(key)
        self._changed()

    def update(self, *others: Any, **more: Any) -> None:
        """Put configs here by hand."""
        for key, config in dict(*others, **more).items():
            self[key] = config

    def pop(self, key: Any, *default: Any) -> Any:
        """Take an entry out."""
        self._given.discard(key)
        found = super().pop(key, *default)
        self._changed()
        return found

    def clear(self) -> None:
        """Forget what this process decided; what is stored stays."""
        super().clear()
        self._given.clear()
        self._changed()
