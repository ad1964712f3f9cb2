"""Times, counts and sizes as text for people."""

from __future__ import annotations

from tunewright.model.decision import Gain
from tunewright.model.key import PRINTED_COST, Key


def seconds(value: float) -> str:
    """Returns a duration with three significant digits: `1.91 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def measured(value: float, key: Key) -> str:
    """Returns what was measured for a key: a duration, or the number that a command printed: `512 MB/s`."""
    best = key.mode.get("metric", "").partition(" ")[0]
    if best not in ("highest", "lowest"):
        return seconds(value)
    printed = PRINTED_COST / value if best == "highest" and value else value / PRINTED_COST
    return f"{printed:.4g} {key.mode.get('unit', '')}".rstrip()


def clock(value: float) -> str:
    """Returns a time to wait: `41 s`, `3 m 05 s`."""
    if value < 100:
        return f"{value:.0f} s"
    minutes, rest = divmod(int(value), 60)
    return f"{minutes} m {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"


def ratio(value: float) -> str:
    """Returns a factor: `3.4x`."""
    return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def gain(value: Gain | None, otherwise: float = 1.0) -> str:
    """Returns a speedup, with its interval if it is known: `3.42x (3.38 to 3.46)`."""
    if value is None or value.high > 1000 * value.ratio:
        return ratio(value.ratio if value else otherwise)
    return f"{ratio(value.ratio)} ({value.low:.3g} to {value.high:.3g})"


def spread(low: float, high: float, center: float) -> str:
    """Returns half an interval as a share of its center: `±0.6 %`."""
    return f"±{100 * (high - low) / 2 / center:.1f} %" if center else ""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Returns a count with its noun: `1 trial`, `2 trials`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(value: float) -> str:
    """Returns a number of bytes: `4.2 MB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def escape_control(text: str) -> str:
    """Returns text with control characters escaped: names and reasons may come from a file somebody else wrote."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def one_line(text: str, width: int = 160) -> str:
    """Returns text on one line without control characters, and without its end if it is longer than `width`."""
    flat = escape_control(" ".join(text[: 4 * width].split()))
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
