"""Times of expiry: as text in UTC, compared with a clock that may be slightly off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tunewright.errors import BundleError

CLOCK_TOLERANCE = 600.0
"""Seconds by which the clock of a machine may be wrong."""


def parse_time(text: str, what: str) -> float:
    """Returns the seconds since the epoch of a date or a time, in UTC unless it names a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BundleError(f"{what}: {text[:40]!r} is not a date; write one as 2027-06-30") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def expiry_after(text: str, now: float) -> str:
    """Returns a time of expiry from a date, or from a number of days such as `90d`."""
    if text.endswith("d") and text[:-1].isdecimal() and len(text) < 7:
        moment = datetime.fromtimestamp(now, UTC).replace(microsecond=0) + timedelta(days=int(text[:-1]))
    else:
        moment = datetime.fromtimestamp(parse_time(text, "the expiry"), UTC)
    return moment.isoformat()


def is_past(text: str, now: float) -> bool:
    """Returns whether a time of expiry is past by more than a clock may be wrong; an empty text never is."""
    return bool(text) and now > parse_time(text, "the expiry") + CLOCK_TOLERANCE
