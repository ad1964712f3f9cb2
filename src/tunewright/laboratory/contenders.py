"""Contenders: strategies to be compared, by name, and which version of them it is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tunewright.errors import PluginError, TunewrightError
from tunewright.pools.loading import find
from tunewright.ports import plugins


@dataclass(frozen=True)
class Contender:
    """A strategy by its entry point's name, or as FILE.py:NAME or module:NAME; with settings, if it is to have any."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Its class."""
        if ":" not in self.name:
            return plugins.load("strategies", self.name)
        place, _, name = self.name.rpartition(":")
        if place.endswith(".py") and not Path(place).is_file():
            raise PluginError(f"there is no file {place}; a strategy is a plugin's name, FILE.py:NAME or module:NAME")
        try:
            return find(f"{Path(place).resolve() if place.endswith('.py') else place}:{name}")
        except TunewrightError:
            raise
        except Exception as error:
            raise PluginError(f"loading {self.name} raised {type(error).__name__}: {error}; mend it first") from error

    @property
    def version(self) -> str:
        """A short digest of its source and of the modules of its package that it imports.

        What it finds by name only when it runs is not seen: after a change of that, start afresh.
        """
        made, loaded = sha256(), self.load()
        try:
            own = inspect.getsourcefile(loaded)
        except TypeError:
            own = None
        if own is None:
            return "unknown"
        package = loaded.__module__.partition(".")[0]
        for source in sorted(_closure(Path(own), loaded.__module__, package).values()):
            made.update(source)
        return made.hexdigest()[:16]


def _closure(file: Path, module: str, package: str) -> dict[str, bytes]:
    """The source of a module and of all that it imports, directly or not, from its own package."""
    found: dict[str, bytes] = {}
    waiting = [(module, file)]
    while waiting:
        name, path = waiting.pop()
        found[name] = path.read_bytes()
        for other in _imported(ast.parse(found[name])):
            if other.partition(".")[0] == package and other not in found and (there := _file(other)) is not None:
                waiting.append((other, there))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names of modules in a module's imports; `from a import b` may mean the module `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
