"""Config: one value for every knob."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

Value = bool | int | float | str

_PLAIN = frozenset({bool, int, float, str})

VARIANT = "variant"
"""The config entry that names the variant."""


def plain(value: Any) -> Value:
    """Returns `value` as a plain Python value: a numpy scalar and an int make the same config; an enum is its name."""
    if type(value) in _PLAIN:
        plain_value: Value = value
        return plain_value
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "item"):
        try:
            return plain(value.item())
        except (ValueError, RuntimeError, RecursionError):  # an array with several elements
            pass
    for kind in (int, float, str):
        if isinstance(value, kind):  # a subclass, which a store would not keep
            return kind(value)
    raise TypeError(
        f"a knob's value is a bool, int, float or str, or of an enum, not {type(value).__name__}: {value!r}"
    )


class Config(Mapping[str, Value]):
    """An immutable, hashable mapping from knob name to value."""

    __slots__ = ("_hash", "_settings")

    def __init__(self, settings: Mapping[str, Any] = {}, /, **values: Any) -> None:
        items = sorted({**settings, **values}.items())
        if not _PLAIN.issuperset([value.__class__ for _, value in items]):
            items = [(name, plain(value)) for name, value in items]
        self._settings: dict[str, Value] = dict(items)
        self._hash = hash(tuple(items))

    def __getitem__(self, name: str) -> Value:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._settings == other._settings if isinstance(other, Config) else super().__eq__(other)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def __str__(self) -> str:
        first = [VARIANT] if VARIANT in self._settings else []
        return " ".join(f"{name}={self[name]}" for name in dict.fromkeys(first + list(self)))

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, Value]]]:
        return Config, (dict(self._settings),)

    def plain(self) -> dict[str, Value]:
        """Returns the settings as a dictionary, sorted by name."""
        return dict(self._settings)

    def with_value(self, name: str, value: Any) -> Config:
        """Returns this config with another value for one knob."""
        return Config({**self._settings, name: value})

    def turned(self, name: str, value: Any) -> Config:
        """Deprecated: use `with_value`."""
        import warnings  # noqa: PLC0415 - only for the old name

        warnings.warn("Config.turned is deprecated; use Config.with_value", DeprecationWarning, stacklevel=2)
        return self.with_value(name, value)
