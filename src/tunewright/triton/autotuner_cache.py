"""The `.cache` of Triton's autotuner: the decisions of this process, which users may edit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class AutotunerCache(dict[Any, Any]):
    """A dictionary that knows which entries users wrote, and calls `on_change` when they change it."""

    def __init__(self, entries: Mapping[Any, Any], on_change: Callable[[], None]) -> None:
        super().__init__(entries)
        self._on_change, self._user_keys = on_change, set(entries)

    def record(self, key: Any, config: Any) -> None:
        """Adds a decision."""
        super().__setitem__(key, config)

    def user_config(self, key: Any) -> Any:
        """Returns the config that a user wrote for `key`; None if there is none."""
        return self.get(key) if key in self._user_keys else None

    def __setitem__(self, key: Any, config: Any) -> None:
        super().__setitem__(key, config)
        self._user_keys.add(key)
        self._on_change()

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._user_keys.discard(key)
        self._on_change()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds configs of the user."""
        for key, config in dict(*args, **kwargs).items():
            self[key] = config

    def pop(self, key: Any, *default: Any) -> Any:
        """Removes an entry and returns it."""
        self._user_keys.discard(key)
        config = super().pop(key, *default)
        self._on_change()
        return config

    def clear(self) -> None:
        """Forgets the decisions of this process; the store keeps them."""
        super().clear()
        self._user_keys.clear()
        self._on_change()
