"""What another process wrote, compared with the expected types: nothing that has another type is judged by.

Two kinds of JSON are refused: an object that has a key twice (readers silently keep one of the values), and numbers
that are none (`NaN`, `Infinity`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_type_hints

T = TypeVar("T")

_LEAST, _MOST = -(2**63), 2**63 - 1  # offsets, versions and counts are 64 bits wide everywhere
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = (str, int, float, bool, datetime)


class TwiceError(ValueError):
    """A JSON object has a key twice."""


def loads(text: str | bytes, *, nan: bool = False) -> Any:
    """A JSON document; `nan` allows numbers that are none, as measured figures may be.

    Raises:
        TwiceError: an object in it has a key twice.
        ValueError: it is no JSON, or is nested too deep.
    """
    try:
        # What json.loads does, but for a new decoder at each call.
        document = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass")
        return (_WITH_NAN if nan else _STRICT).decode(document)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise TwiceError(f"has the key {twice[:80]!r} twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)
_WITH_NAN = json.JSONDecoder(object_pairs_hook=_object, parse_constant=float)


def whole(value: object, least: int = _LEAST, most: int = _MOST) -> int:
    """The value, if it is a whole number within bounds.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is out of bounds.
    """
    if type(value) is not int:
        raise TypeError(f"{_shown(value)} is no whole number")
    if not least <= value <= most:
        raise ValueError(f"{_shown(value)} is not within {least} and {most}")
    return value


def text(value: object) -> str:
    """The value, if it is a text; raises TypeError where it is not."""
    if type(value) is not str:
        raise TypeError(f"{_shown(value)} is no text")
    return value


def optional(of: Callable[[object], T], value: object) -> T | None:
    """None, or what `of` makes of another value."""
    return None if value is None else of(value)


def mapping(value: object) -> Mapping[str, Any]:
    """The value, if it is a JSON object; raises TypeError where it is not."""
    if not isinstance(value, dict):
        raise TypeError(f"{_shown(value)} is no object")
    return value


def instant(value: object) -> datetime:
    """The instant that an ISO 8601 text with a zone names; raises TypeError or ValueError where it is none."""
    at = datetime.fromisoformat(text(value))
    if at.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return at


def of_millis(millis: int) -> datetime | None:
    """The instant that is so many milliseconds after 1970 began, in UTC; None where no datetime can hold it.

    >>> of_millis(1_764_423_000_000), of_millis(1_764_423_000_000_000)
    (datetime.datetime(2025, 11, 29, 13, 30, tzinfo=datetime.timezone.utc), None)
    """
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        return None


def required_time(millis: object) -> datetime:
    """The instant of a whole number of milliseconds; raises TypeError or ValueError where it is none."""
    if (at := of_millis(whole(millis))) is None:
        raise ValueError(f"{millis} ms is no time")
    return at


def checked(instance: T) -> T:
    """A dataclass whose fields of plain types (`str`, `int | None`, …) hold such values.

    Raises:
        TypeError: a field holds a value of another type.
        ValueError: a number does not fit into 64 bits.
    """
    values = vars(instance)
    for name, types in _plain_fields(cast("Hashable", type(instance))):
        value = values[name]
        if type(value) not in types:
            raise TypeError(f"{name} is {_shown(value)}")
        if type(value) is int and not _LEAST <= value <= _MOST:
            raise ValueError(f"{name} is {_shown(value)}, which does not fit into 64 bits")
    return instance


@cache
def _plain_fields(cls: Any) -> Iterable[tuple[str, tuple[type, ...]]]:
    hints = get_type_hints(cls)
    types = {f.name: get_args(h) if isinstance(h := hints[f.name], UnionType) else (h,) for f in fields(cls)}
    plain = {*_PLAIN, type(None)}
    return [(name, of_field) for name, of_field in types.items() if plain.issuperset(of_field)]


def _shown(value: object) -> str:
    if type(value) is int and value.bit_length() > 128:
        return "a number of many digits"
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
