"""Names and methods that are imported when they are first used, and deprecated names that still work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], deprecated: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Returns a module `__getattr__` for `package`.

    `modules` maps each lazy name to the module that defines it, `deprecated` each old name to the new one.
    """

    def load(name: str) -> Any:
        if deprecated and name in deprecated:
            import warnings  # noqa: PLC0415 - only for old names

            message = f"{package}.{name} is deprecated; use {package}.{deprecated[name]}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[package], deprecated[name])
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # the next use does not come here
        return value

    return load


def lazy_method(module: str, name: str) -> Callable[[Any], str]:
    """Returns a method without arguments that a function of `module` implements, which is imported on the first call.

    For how values show themselves: `report`, which writes the text, is above the values in the floors.
    """

    def method(self: Any) -> str:
        text: str = getattr(import_module(module), name)(self)
        return text

    method.__name__ = name
    return method
