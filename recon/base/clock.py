"""The clock that recon reads: UTC, microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


def _system() -> datetime:
    return datetime.now(UTC)


_clocks: list[Callable[[], datetime]] = [_system]


def utc_now() -> datetime:
    """What time it is, in UTC."""
    return _clocks[-1]()


@contextmanager
def clock(now: Callable[[], datetime]) -> Iterator[None]:
    """Sets another clock for tests, for all of recon in this process."""
    _clocks.append(now)
    try:
        yield
    finally:
        _clocks.remove(now)
