"""Options for ages, sizes and shares as people type them: 90d, 2G, 5%."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import click

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Age(click.ParamType[Any]):
    """An age such as `90d`, converted to seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdwy])", str(value).strip())) is None:
            self.fail(f"{value!r} is not an age; write 30d, 12h, 2w", param, ctx)
        return float(match[1]) * UNITS[match[2]]


class Size(click.ParamType[Any]):
    """A size such as `2G`, converted to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(value).strip().lower())) is None:
            self.fail(f"{value!r} is not a size; write 500M, 2G", param, ctx)
        return int(float(match[1]) * _SIZES[match[2]])


def parse_share(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Returns a fraction that was typed as 1% or 0.01; None if none was."""
    if text is None:
        return None
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = inf
    if not 0 < share < 1:
        raise click.BadParameter(f"{text!r} is not a fraction between 0 and 1; write it as 1% or 0.01")
    return share
