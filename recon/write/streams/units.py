"""Sizes and round numbers, as advice shows them."""

from __future__ import annotations

import math

_INTERVALS = (0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)


def next_interval(seconds: float) -> float:
    """The shortest customary trigger interval that is not shorter.

    >>> next_interval(7.2), next_interval(4000)
    (10.0, 7200.0)
    """
    customary = (float(step) for step in _INTERVALS if step >= seconds * 0.999)
    return next(customary, float(math.ceil(seconds / 3600) * 3600))


def rounded_down(value: float) -> int:
    """Two significant digits, never more than the value.

    >>> rounded_down(123456), rounded_down(7.9)
    (120000, 7)
    """
    if value < 10:
        return max(1, int(value))
    unit = int(10 ** (int(math.log10(value)) - 1))
    return int(value // unit) * unit


def size(count: float) -> str:
    """A number of bytes in the largest unit that fits.

    >>> size(1 << 30), size(700)
    ('1.0 GiB', '700 B')
    """
    for unit, unit_bytes in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:,.1f} {unit}"
    return f"{count:.0f} B"
