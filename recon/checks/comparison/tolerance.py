"""How much two values may differ and still count as equal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from recon.base.errors import ConfigError

_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*%\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(microsecond|millisecond|second|minute|hour|day)s?\s*", re.IGNORECASE)
_FORMS = (
    "write a number, a share such as '0.1%' or {relative: 1e-6}, or for dates and times a duration such as '5 seconds'"
)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Values are equal when their difference is within any of the bounds; the bounds are included.

    `absolute` is a number in the column's unit. `relative` is a share of the greater of the two absolute values.
    `duration` is for dates and times. NULL equals NULL alone, NaN equals NaN alone, whatever the tolerance.
    """

    absolute: Decimal | None = None
    relative: float | None = None
    duration: timedelta | None = None

    @classmethod
    def of(cls, column: str, value: Any) -> Tolerance:
        """A tolerance as it is written: a number, a share, a duration, or a mapping with `absolute` and `relative`.

        Raises:
            ConfigError: it is none of these, negative or not finite.

        >>> Tolerance.of("amount", 0.01).absolute
        Decimal('0.01')
        >>> Tolerance.of("at", "1.5 minutes").duration
        datetime.timedelta(seconds=90)
        >>> Tolerance.of("amount", "0.1%").relative
        0.001
        """
        if isinstance(value, Tolerance):
            return value
        if isinstance(value, Mapping):
            unknown = sorted(str(k) for k in set(value) - {"absolute", "relative"})
            if unknown or not value:
                content = f"unknown {unknown[0]!r}" if unknown else "nothing"
                raise ConfigError(f"the tolerance of {column!r} holds {content}; {_FORMS}")
            bounds = {name: _number(column, bound) for name, bound in value.items()}
            relative = float(bounds["relative"]) if "relative" in bounds else None
            return cls(absolute=bounds.get("absolute"), relative=relative)
        if isinstance(value, timedelta):
            if value < timedelta(0):
                raise ConfigError(f"the tolerance of {column!r} is negative ({value}); {_FORMS}")
            return cls(duration=value)
        if isinstance(value, str) and (length := _DURATION.fullmatch(value)):
            return cls(duration=timedelta(**{f"{length[2].lower()}s": float(length[1])}))
        if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
            return cls(relative=float(share[1]) / 100)
        return cls(absolute=_number(column, value))


def _number(column: str, value: Any) -> Decimal:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
            raise ValueError
        number = Decimal(str(value).strip())
        if not math.isfinite(number) or number < 0:
            raise ValueError
    except (ValueError, ArithmeticError):
        raise ConfigError(f"the tolerance of {column!r} is {value!r}; {_FORMS}") from None
    return number
