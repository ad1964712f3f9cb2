"""Plugins: find an implementation of a port by its entry-point name."""

from __future__ import annotations

from typing import Any

from tunewright.errors import PluginError


def load(port: str, name: str) -> Any:
    """The object registered as `name` under the entry-point group `tunewright.<port>`."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    found = entry_points(group=f"tunewright.{port}")
    if name not in found.names:
        raise PluginError(f"no {port} named {name!r}; installed: {', '.join(sorted(found.names)) or 'none'}")
    try:
        return found[name].load()
    except ImportError as error:
        raise missing(port, name, error) from error


def missing(port: str, name: str, error: ImportError) -> PluginError:
    """What to raise where the plugin `name` lacks a package it needs; for plugins that import it when they are made."""
    package = (error.name or str(error)).partition(".")[0]
    return PluginError(
        f"{name!r} ({port}) needs the package {package!r}, which is not installed; "
        f"try: pip install 'tunewright[{name}]'"
    )
