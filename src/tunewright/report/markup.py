"""HTML builder that escapes every text unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from tunewright.stores import serialization

_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


EMPTY = Markup()


def join_markup(inside: Any) -> Markup:
    """Returns markup unchanged, anything else escaped, and the items of a list, tuple or iterator joined."""
    if isinstance(inside, Markup):
        return inside
    if inside is None:
        return EMPTY
    if isinstance(inside, list | tuple | Iterator):
        return Markup("".join(map(join_markup, inside)))
    return Markup(escape(str(inside)))


def el(name: str, /, *inside: Any, **attributes: Any) -> Markup:
    """Returns an element; `class_` sets `class`, `data_path` sets `data-path`; None and False omit an attribute."""
    rendered = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{rendered}>" if name in _VOID else f"<{name}{rendered}>{join_markup(inside)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    key = key.rstrip("_").replace("_", "-")
    if value is True or value is False:
        return f" {key}" if value else ""
    return f' {key}="{escape(str(value))}"'


def href(path: str, /, **query: Any) -> str:
    """Returns the address of a page; empty parameters are omitted."""
    encoded = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{encoded}" if encoded else path


def link(text: Any, path: str, /, **query: Any) -> Markup:
    """Returns a link to a page."""
    return el("a", text, href=href(path, **query))


def table(caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]], *, numbers: Sequence[int] = ()) -> Markup:
    """Returns a table whose first column names the rows; the columns in `numbers` are aligned as numbers.

    A cell that already is a `td` or `th` is used unchanged.
    """
    head = el("tr", (el("th", text, scope="col", class_="n" if i in numbers else None) for i, text in enumerate(heads)))
    body = [el("tr", (_cell(i, cell, i in numbers) for i, cell in enumerate(row))) for row in rows]
    inside = el("caption", caption), el("thead", head), el("tbody", body)
    # A wide table scrolls on its own, also with the keyboard.
    return el("div", el("table", inside), class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(number: int, cell: Any, is_number: bool) -> Markup:
    if isinstance(cell, Markup) and cell.startswith(("<td", "<th")):
        return cell
    kind = "n" if is_number else None
    return el("td", cell, class_=kind) if number else el("th", cell, scope="row", class_=kind)


def json_text(value: Any) -> str:
    """Returns a value as JSON that is safe inside a script element."""
    text = serialization.encode(value).decode()
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return text


def script_data(value: Any, **attributes: Any) -> Markup:
    """Returns a script element with a value as JSON, which browsers do not run."""
    return el("script", Markup(json_text(value)), type="application/json", **attributes)
