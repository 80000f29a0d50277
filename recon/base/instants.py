"""Instants as people and programs give them: on the command line, and as arguments."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from recon.base.clock import utc_now
from recon.base.errors import ConfigError

_AGO = re.compile(r"(\d+)\s*([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def instant(name: str, value: object, *, ends: bool = False, now: datetime | None = None) -> datetime | None:
    """A datetime, a date, or a text like 2026-11-01, 2026-11-01T06:00, 24h or 7d, as a time in UTC; None stays None.

    Args:
        name: the option or argument, for messages.
        value: what was given. Without a time zone it is UTC.
        ends: whether it ends a period: a bare date then includes that day.
        now: what "ago" counts from; the present by default.

    Raises:
        ConfigError: it is none of these.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = _parsed(value.strip(), now or utc_now())
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC) + timedelta(days=1 if ends else 0)
    raise ConfigError(f"{name} {value!r} is not a time; give 2026-11-01, 2026-11-01T06:00, or how long ago: 24h, 7d")


def _parsed(text: str, now: datetime) -> datetime | date | str:
    """A text as a date where it is one, else as a time; the text itself where it is neither."""
    try:
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return date.fromisoformat(text) if len(text) <= len("2026-11-01") else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return text
