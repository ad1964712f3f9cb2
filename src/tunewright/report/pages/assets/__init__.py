"""Assets: the style sheet and the script of all pages, and Plotly's, as files to be served or to be put into a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent


class Asset(NamedTuple):
    """A file's content, and what kind of content it is."""

    body: bytes
    type: str


class Assets(Mapping[str, Asset]):
    """Files by name, each read when it is first asked for; Plotly's is there if its package is installed."""

    def __getitem__(self, name: str) -> Asset:
        path = _places()[name]
        return _read(path)

    def __iter__(self) -> Iterator[str]:
        return iter(_places())

    def __len__(self) -> int:
        return len(_places())


@cache
def _places() -> dict[str, Path]:
    places = {name: _HERE / name for name in ("dashboard.css", "dashboard.js")}
    # Found, not imported: the package takes a second to load, and its script is all that is needed.
    spec = find_spec("plotly")
    if spec is not None and spec.origin is not None:
        script = Path(spec.origin).parent / "package_data" / "plotly.min.js"
        if script.is_file():
            places["plotly.js"] = script
    return places


@cache
def _read(path: Path) -> Asset:
    kind = "text/css" if path.suffix == ".css" else "text/javascript"
    return Asset(path.read_bytes(), f"{kind}; charset=utf-8")


STATIC = Assets()
"""What is served under `/static/`."""
