"""Measured values as JSON text that keeps their types, so that what is read back is what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any


def packed(value: Any) -> Any:
    """A value in JSON's types: itself, or a mapping from the name of its type to what it is made from.

    Raises:
        TypeError: no such value can be kept.

    >>> packed(3), packed(0.1), packed(Decimal("1.50"))
    (3, {'float': '0.1'}, {'decimal': '1.50'})
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):  # before date, which it is too
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, timedelta):
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": value.hex()}
    if isinstance(value, (list, tuple)):  # Spark's Row is a tuple
        return {"list": [packed(item) for item in value]}
    if isinstance(value, Mapping):
        return {"map": [[packed(key), packed(item)] for key, item in value.items()]}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept")


def unpacked(found: Any) -> Any:
    """The value that `packed` made this of.

    Raises:
        ValueError: it did not.
    """
    if found is None or isinstance(found, (bool, int, str)):
        return found
    if not isinstance(found, dict) or len(found) != 1:
        raise ValueError(f"{found!r} is no kept value")
    ((kind, content),) = found.items()
    if kind not in _MADE:
        raise ValueError(f"{found!r} is no kept value")
    try:
        return _MADE[kind](content)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{found!r} is no kept value") from error


_MADE: Mapping[str, Any] = {
    "float": float,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "bytes": bytes.fromhex,
    "list": lambda items: [unpacked(item) for item in items],
    "map": lambda pairs: {unpacked(key): unpacked(item) for key, item in pairs},
}


__all__ = ["packed", "unpacked"]
