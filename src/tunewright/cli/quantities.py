"""Option types for ages and sizes as people type them: 90d, 2G."""

from __future__ import annotations

import re
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
