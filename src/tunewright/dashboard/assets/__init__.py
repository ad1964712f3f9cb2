"""The style sheet and script of all pages, and the script of Plotly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent


class Asset(NamedTuple):
    """The content of a file and its media type."""

    body: bytes
    type: str


class Assets(Mapping[str, Asset]):
    """Files by name, read on first access; `plotly.js` exists if Plotly is installed."""

    def __getitem__(self, name: str) -> Asset:
        path = _paths()[name]
        return _read(path)

    def __iter__(self) -> Iterator[str]:
        return iter(_paths())

    def __len__(self) -> int:
        return len(_paths())


@cache
def _paths() -> dict[str, Path]:
    paths = {name: _HERE / name for name in ("dashboard.css", "dashboard.js")}
    # Only its script is needed, and importing the package takes a second.
    spec = find_spec("plotly")
    if spec is not None and spec.origin is not None:
        script = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        if script.is_file():
            paths["plotly.js"] = script
    return paths


@cache
def _read(path: Path) -> Asset:
    kind = "text/css" if path.suffix == ".css" else "text/javascript"
    return Asset(path.read_bytes(), f"{kind}; charset=utf-8")


STATIC = Assets()
"""The files that are served under `/static/`."""
