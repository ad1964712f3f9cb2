"""Loads implementations of the ports by entry-point name."""

from __future__ import annotations

from typing import Any

from tunewright.errors import PluginError


def load(port: str, name: str) -> Any:
    """Returns the object registered as `name` in the entry-point group `tunewright.<port>`."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and a cached launch never needs it

    installed = entry_points(group=f"tunewright.{port}")
    if name not in installed.names:
        raise PluginError(f"no {port} named {name!r}; installed: {', '.join(sorted(installed.names)) or 'none'}")
    try:
        return installed[name].load()
    except ImportError as error:
        raise missing(port, name, error) from error


def missing(port: str, name: str, error: ImportError) -> PluginError:
    """Returns the error for a plugin whose package is not installed; also for plugins that import it lazily."""
    package = (error.name or str(error)).partition(".")[0]
    return PluginError(
        f"{name!r} ({port}) needs the package {package!r}, which is not installed; "
        f"try: pip install 'tunewright[{name}]'"
    )
