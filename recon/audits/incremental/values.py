"""Measured values as JSON that keeps their types, so that a value read back equals the one that was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    for kind, (types, content_of, _) in _KINDS.items():
        if isinstance(value, types):
            return {kind: content_of(value)}
    raise TypeError(f"a value of type {type(value).__name__} cannot be saved")


def unpacked(document: Any) -> Any:
    """The inverse of `packed`.

    Raises:
        ValueError: the document is of another form.
    """
    if document is None or isinstance(document, (bool, int, str)):
        return document
    try:
        ((kind, content),) = document.items()
        _, _, value_of = _KINDS[kind]
        return value_of(content)
    except (AttributeError, KeyError, ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{document!r} is no saved value") from error


# Kind → its types, its content in JSON, and the value of a content.
_KINDS: Mapping[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float": (float, repr, float),
    "decimal": (Decimal, str, Decimal),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),  # before date, which it is too
    "date": (date, date.isoformat, date.fromisoformat),
    "timedelta": (
        timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda content: timedelta(*content),
    ),
    "bytes": ((bytes, bytearray), lambda value: value.hex(), bytes.fromhex),
    # Spark's Row is a tuple.
    "list": (
        (list, tuple),
        lambda value: [packed(item) for item in value],
        lambda content: [unpacked(item) for item in content],
    ),
    "map": (
        Mapping,
        lambda value: [[packed(key), packed(item)] for key, item in value.items()],
        lambda content: {unpacked(key): unpacked(item) for key, item in content},
    ),
}
