"""Parts of sentences that the messages of all rooms share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


def did_you_mean(name: str, names: Iterable[str], listing: str = "there is") -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them after `listing`.

    Args:
        name: the unknown name; upper and lower case are the same.
        names: the known names, in the order of the listing.
        listing: the words before the list; "" leaves the list out.

    >>> did_you_mean("not_nul", ["not_null", "unique"])
    "; did you mean 'not_null'?"
    >>> did_you_mean("x", ["not_null", "unique"], "known keys:")
    '; known keys: not_null, unique'
    """
    known = list(names)
    for near in nearest(name, known):
        return f"; did you mean {near!r}?"
    return f"; {listing} {', '.join(known)}" if listing and known else ""


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known name most like this one, in a list; an empty list where none is near."""
    by_lower = {known.lower(): known for known in reversed(list(names))}
    return [by_lower[near] for near in difflib.get_close_matches(name.lower(), by_lower, 1, cutoff)]


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "row"), plural(2000, "row"), plural(2, "micro-batch"), plural(2, "entry")
    ('1 row', '2,000 rows', '2 micro-batches', '2 entries')
    """
    if count != 1:
        noun = many or (
            f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
        )
    return f"{count:,} {noun}"


def some(items: Iterable[object], limit: int = 5) -> str:
    """The first few of a list in a sentence.

    >>> some(range(8), 3)
    '0, 1, 2 and 5 more'
    """
    listed = list(items)
    shown = ", ".join(str(item) for item in listed[:limit])
    return shown + (f" and {len(listed) - limit} more" if len(listed) > limit else "")


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it.

    >>> duration(5400), duration(59), duration(3 * 86400)
    ('1.5 hours', '59 s', '3.0 days')
    """
    for unit, unit_seconds in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * unit_seconds:
            return f"{seconds / unit_seconds:,.1f} {unit}"
    return f"{seconds:.0f} s"


def short_path(path: Path) -> str:
    """A path relative to the current folder where it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def first_line(error: BaseException, limit: int = 400) -> str:
    r"""An error's first line that is not empty, at most `limit` characters; its type's name where it has no text.

    >>> first_line(ValueError("  no such table  \n at …"))
    'no such table'
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:limit]


def complaint(error: Exception) -> str:
    """The first of pydantic's complaints, with the place of the value; any other error's first line."""
    errors = getattr(error, "errors", None)
    if not callable(errors) or not (details := errors()):
        return first_line(error)
    place = ".".join(str(part) for part in details[0]["loc"] if part != "__root__")  # a word of pydantic 1
    return f"{place}: {details[0]['msg']}" if place else str(details[0]["msg"])
