"""Markup: HTML in which every text is escaped, unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from tunewright.sharing import wire

_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


NOTHING = Markup()


def put(inside: Any) -> Markup:
    """What stands between tags: markup as it is, anything else escaped; of several, one after the other."""
    if isinstance(inside, Markup):
        return inside
    if inside is None:
        return NOTHING
    if isinstance(inside, list | tuple | Iterator):
        return Markup("".join(map(put, inside)))
    return Markup(escape(str(inside)))


def el(name: str, /, *inside: Any, **attributes: Any) -> Markup:
    """An element; `class_` is its class, `data_path` its `data-path`; None and False leave an attribute out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{said}>" if name in _VOID else f"<{name}{said}>{put(inside)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    key = key.rstrip("_").replace("_", "-")
    if value is True or value is False:
        return f" {key}" if value else ""
    return f' {key}="{escape(str(value))}"'


def href(path: str, /, **query: Any) -> str:
    """The address of a page of ours; what is empty is left out."""
    asked = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{asked}" if asked else path


def link(text: Any, path: str, /, **query: Any) -> Markup:
    """A link to a page of ours."""
    return el("a", text, href=href(path, **query))


def table(caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: Sequence[int] = ()) -> Markup:
    """A table whose first column names its rows; `numbers` are the columns that hold some, aligned as such.

    A cell that is a `td` or `th` already stands as it is.
    """
    head = el("tr", (el("th", text, scope="col", class_="n" if i in numbers else None) for i, text in enumerate(heads)))
    body = [el("tr", (_cell(i, cell, i in numbers) for i, cell in enumerate(row))) for row in rows]
    inside = el("caption", caption), el("thead", head), el("tbody", body)
    # Wide ones scroll by themselves, with keys too.
    return el("div", el("table", inside), class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(number: int, cell: Any, is_number: bool) -> Markup:
    if isinstance(cell, Markup) and cell.startswith(("<td", "<th")):
        return cell
    kind = "n" if is_number else None
    return el("td", cell, class_=kind) if number else el("th", cell, scope="row", class_=kind)


def json_of(value: Any) -> str:
    """A value as JSON that may stand in a page: nothing in it ends a script or begins a comment."""
    text = wire.encode(value).decode()
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return text


def data(value: Any, **attributes: Any) -> Markup:
    """A value for the script of a page; it is data, which no browser runs."""
    return el("script", Markup(json_of(value)), type="application/json", **attributes)
