"""Which values of a project must not be shown, and the mask that hides them wherever text leaves recon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel

from recon.base.credentials import HIDDEN, SECRET_NAME, in_text, in_url, spellings

# What a connection string holds: `AccountKey=…;`, `password="…"`. A quote in quotes is doubled, or behind a backslash.
_ASSIGNED = re.compile(
    r"(?<![\w.%/-])(?P<name>[\w.%-]+)\s*=\s*"
    r"(?:\"(?P<double>(?:\\.|\"\"|[^\"\\])*)\"|'(?P<single>(?:\\.|''|[^'\\])*)'|(?P<value>[^;&,\s]+))",
    re.DOTALL,
)
_NO_NAME = re.compile(r"[^\w .-]")
_A_URL = re.compile(r"\s*(jdbc:|[\w+.-]+://)", re.IGNORECASE)
_TOKEN = r"(?=[^.]*[A-Z0-9])[\w~+/=%-]{8,}"
T = TypeVar("T")


def secret_parts(name: str, value: str) -> Iterator[str]:
    """The parts of a setting's value that must not be shown: all of it where the name says so, else what it assigns.

    >>> sorted(set(secret_parts("url", "https://u:pa55@h/?sig=abcd&x=1")))
    ['abcd', 'pa55', 'u:pa55']
    """
    if SECRET_NAME.search(name):
        yield from spellings(value)
        # A message may quote one line of a key.
        yield from (line for line in value.splitlines() if line.strip() and not line.startswith("-----"))
    yield from in_location(value)
    if not _A_URL.match(value):
        yield from _assigned(value)


def _assigned(text: str) -> Iterator[str]:
    for found in _ASSIGNED.finditer(text):
        if SECRET_NAME.search(unquote(found["name"])):
            quoted = found["double"] or found["single"]
            yield from spellings(found["value"] or quoted or "")
            if quoted:
                yield from spellings(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
                yield from spellings(quoted.replace('""', '"').replace("''", "'"))
    for name, value in _in_semicolons(text):
        if SECRET_NAME.search(name):
            yield from spellings(value.strip().strip("\"'"))


def _in_semicolons(text: str) -> Iterator[tuple[str, str]]:
    """Names and values that semicolons separate; what no name begins belongs to the value before it."""
    pairs: list[tuple[str, list[str]]] = []
    for part in text.split(";"):
        name, assigned, value = part.partition("=")
        if assigned and name.strip() and not _NO_NAME.search(name):
            pairs.append((name.strip(), [value]))
        elif pairs:
            pairs[-1][1].append(part)
    return ((name, ";".join(parts).rstrip(";")) for name, parts in pairs)


def in_location(value: str) -> Iterator[str]:
    """The credentials in a value that may be a URL, a text with URLs in it, or a connection string.

    >>> "a,b" in set(in_location("Server=h;Pwd=a,b")), set(in_location("lake/token=abc/date=1"))
    (True, set())
    """
    yield from in_text(value)
    if _A_URL.match(value):
        yield from in_url(value.strip())  # as a whole, with its blanks and quotes
    elif _is_connection(value):
        yield from _assigned(value)


def _is_connection(text: str) -> bool:
    """Whether a text is nothing but settings: `Server=h;Pwd=p`, `host=h password=p`."""
    if len(list(_in_semicolons(text))) > 1:
        return True
    rest, count = _ASSIGNED.subn("", text)
    return count > 1 and not rest.strip()


def secret_url_parts(url: str) -> Iterator[str]:
    """The parts of a URL that may be credentials by themselves: its password, and tokens anywhere in it.

    >>> sorted(secret_url_parts("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdn?verify=yes&to=x"))
    ['A1BRTD4JD', 'T1JJ3T3L2', 'TIiajkdn', 'slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdn?verify=yes&to=x']
    """
    yield url
    yield from secret_parts("", url)
    _, _, rest = url.partition("://")
    path, _, query = rest.partition("?")
    # A word is none, nor is a host: they stand in other texts, too.
    for value in (*re.split("[/:@]", path), *re.split("[&=]", query)):
        yield from (part for part in {value, unquote(value)} if re.fullmatch(_TOKEN, part))


def secret_variables(variables: Any, name: str = "") -> Iterator[str]:
    """The values of variables whose names are those of credentials, at any depth."""
    if isinstance(variables, Mapping):
        for key, value in variables.items():
            yield from secret_variables(value, f"{name}.{key}")
    elif isinstance(variables, (list, tuple)):
        for value in variables:
            yield from secret_variables(value, name)
    elif isinstance(variables, str):
        yield from secret_parts(name, variables)


def in_locations(value: Any) -> Iterator[str]:
    """The credentials in the locations among the texts of a model, a mapping or a list, at any depth."""
    if isinstance(value, str):
        yield from in_location(value)
    elif isinstance(value, BaseModel):
        yield from in_locations(value.__dict__)
    elif isinstance(value, Mapping):
        yield from (secret for each in value.values() for secret in in_locations(each))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from (secret for each in value for secret in in_locations(each))


def mask(text: str, secrets: Iterable[str], shortest: int = 1) -> str:
    """The text with every secret of at least `shortest` characters masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= shortest:
            text = text.replace(secret, HIDDEN)
    return text


def masked(value: T, hide: Callable[[str], str]) -> T:
    """A value with every text in it masked: dataclasses, mappings with their keys, lists and tuples, at any depth."""
    return _masked(value, hide)  # type: ignore[no-any-return]


def _masked(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {_masked(key, hide): _masked(each, hide) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_masked(each, hide) for each in value))
    if isinstance(value, (list, tuple, frozenset, set)):
        return type(value)(_masked(each, hide) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in fields(value)
            if field.init and (new := _masked(old := getattr(value, field.name), hide)) is not old and new != old
        }
        return replace(value, **changed) if changed else value
    return value
