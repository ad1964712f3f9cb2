"""Amounts: ages and sizes as people type them: 90d, 2G."""

from __future__ import annotations

import re
from typing import Any

import click

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Age(click.ParamType[Any]):
    """Seconds, from `90d`."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdwy])", str(value).strip())) is None:
            self.fail(f"{value!r} is no age; say 30d, 12h, 2w", param, ctx)
        return float(found[1]) * UNITS[found[2]]


class Size(click.ParamType[Any]):
    """Bytes, from `2G`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if (found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(value).strip().lower())) is None:
            self.fail(f"{value!r} is no size; say 500M, 2G", param, ctx)
        return int(float(found[1]) * _SIZES[found[2]])
