"""Measured values as JSON that keeps their types, so that a value read back equals the one that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any


def packed(value: Any) -> Any:
    """A value that JSON can hold: itself, or a mapping from the name of its type to its content.

    Raises:
        TypeError: values of this type cannot be saved.

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
    raise TypeError(f"a value of type {type(value).__name__} cannot be saved")


def unpacked(document: Any) -> Any:
    """The inverse of `packed`.

    Raises:
        ValueError: the document is of another form.
    """
    if document is None or isinstance(document, (bool, int, str)):
        return document
    if not isinstance(document, dict) or len(document) != 1:
        raise ValueError(f"{document!r} is no saved value")
    ((kind, content),) = document.items()
    if kind not in _FROM_CONTENT:
        raise ValueError(f"{document!r} is no saved value")
    try:
        return _FROM_CONTENT[kind](content)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{document!r} is no saved value") from error


_FROM_CONTENT: Mapping[str, Any] = {
    "float": float,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "bytes": bytes.fromhex,
    "list": lambda items: [unpacked(item) for item in items],
    "map": lambda pairs: {unpacked(key): unpacked(item) for key, item in pairs},
}
