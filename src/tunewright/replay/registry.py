"""Strategies to compare, by name, with a digest of their source."""

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
from tunewright.pools.kernel_loader import load_target
from tunewright.ports import plugins


@dataclass(frozen=True)
class ReplayedStrategy:
    """A strategy as entry point, FILE.py:NAME or module:NAME, with its settings."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Returns the strategy's class."""
        if ":" not in self.name:
            return plugins.load("strategies", self.name)
        location, _, name = self.name.rpartition(":")
        if location.endswith(".py") and not Path(location).is_file():
            raise PluginError(f"no file {location}; a strategy is the name of a plugin, FILE.py:NAME or module:NAME")
        try:
            return load_target(f"{Path(location).resolve() if location.endswith('.py') else location}:{name}")
        except TunewrightError:
            raise
        except Exception as error:
            raise PluginError(f"loading {self.name} raised {type(error).__name__}: {error}; fix it first") from error

    @property
    def version(self) -> str:
        """Short digest of the strategy's source and of the modules of its package that it imports.

        Modules loaded by name at run time are not included: after a change of one, use `--fresh`.
        """
        digest, loaded = sha256(), self.load()
        try:
            source_file = inspect.getsourcefile(loaded)
        except TypeError:
            source_file = None
        if source_file is None:
            return "unknown"
        package = loaded.__module__.partition(".")[0]
        for source in sorted(_collect_sources(Path(source_file), loaded.__module__, package).values()):
            digest.update(source)
        return digest.hexdigest()[:16]


def _collect_sources(file: Path, module: str, package: str) -> dict[str, bytes]:
    """Returns the source of a module and of all modules of its package that it imports, directly or not."""
    sources: dict[str, bytes] = {}
    pending = [(module, file)]
    while pending:
        name, path = pending.pop()
        sources[name] = path.read_bytes()
        for imported in _imported_modules(ast.parse(sources[name])):
            if imported.partition(".")[0] != package or imported in sources:
                continue
            if (imported_path := _module_path(imported)) is not None:
                pending.append((imported, imported_path))
    return sources


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yields the names of imported modules; `from a import b` may mean the module `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_path(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
