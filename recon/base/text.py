"""Parts of sentences that the messages of all rooms share."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

# Lines that recon itself prints for CI servers (recon.reports.forms.annotations).
_ANNOTATION = re.compile(
    r"^(?:##vso\[task\.logissue type=(?:error|warning)\]|::(?:error|warning) title=)", re.MULTILINE
)
# What Azure Pipelines (anywhere in a line) and GitHub (at its beginning) take for a command of theirs.
_AZURE_COMMAND = re.compile(r"##(?=vso\[|\[)")
_GITHUB_COMMAND = re.compile(r"^(\s*):(?=:)", re.MULTILINE)
# Control characters, those of another direction of text, and line separators.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_STYLE = re.compile("\x1b\\[(?:[0-9;]*m|2K|1?A|\\?25[lh])")  # what rich writes to a terminal
_ACTIVE = re.compile(f"{_AZURE_COMMAND.pattern}|{_GITHUB_COMMAND.pattern}|{_CONTROL.pattern}", re.MULTILINE)


def inert(text: str, styled: bool = False) -> str:
    r"""Text for a terminal or a CI server's log, in which nothing from data acts: no command, escape or reordering.

    `styled` keeps colours and the like, which a terminal gets.

    >>> inert("##vso[task.complete]done"), inert("::error::x"), inert("a\x1b]8;;http://evil\x07b")
    ('## vso[task.complete]done', ': :error::x', 'a\\x1b]8;;http://evil\\x07b')
    """
    if not _ACTIVE.search(text):
        return text
    kept = [found.span() for found in _ANNOTATION.finditer(text)]
    kept += [found.span() for found in _STYLE.finditer(text)] if styled else []
    parts, end = [], 0
    for start, stop in sorted(kept):
        parts += [_without_commands(text[end:start], text[:end]), text[start:stop]]
        end = stop
    return "".join([*parts, _without_commands(text[end:], text[:end])])


def inert_json(text: str) -> str:
    r"""JSON with the same values, in which nothing acts.

    >>> inert_json('["##[error]", "\u202e"]')
    '["\\u0023#[error]", "\\u202e"]'
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", _AZURE_COMMAND.sub(r"\\u0023#", text))


def _without_commands(text: str, before: str = "") -> str:
    """The text without active sequences; `before` is what stands before it."""
    text = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    text = _AZURE_COMMAND.sub("## ", text)
    first = not before or before.endswith("\n")
    return _GITHUB_COMMAND.sub(lambda found: f"{found[1]}: " if found.start() or first else found[0], text)


def command(name: str, pipeline: str, sink: str | None = None) -> str:
    """A command of recon for a pipeline, or one of its sinks, as a message prints it to be run.

    >>> command("recon offsets", "orders"), command("recon repair plan", "my orders", "lake")
    ('recon offsets --pipeline orders', "recon repair plan --pipeline 'my orders' --sink lake")
    """
    of_sink = f" --sink {shlex.quote(sink)}" if sink is not None else ""
    return f"{name} --pipeline {shlex.quote(pipeline)}{of_sink}"


_NAMES = 50  # of thousands of checks or columns, no more are listed


def did_you_mean(name: str, names: Iterable[str], listing: str = "there is") -> str:
    """The end of a sentence about an unknown name: the nearest known one, or the first of them after `listing`.

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
    return f"; {listing} {some(known, _NAMES)}" if listing and known else ""


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

    A longer one is cut between two words, as a part of a credential would not be recognised as one.

    >>> first_line(ValueError("  no such table  \n at …"))
    'no such table'
    """
    lines = (line.strip() for line in str(error).splitlines())
    return cut(next((line for line in lines if line), type(error).__name__), limit)


def cut(text: str, limit: int) -> str:
    """The first words of a text, at most `limit` characters of them.

    >>> cut("no such table", 9), cut("no", 9), cut("incomprehensibility", 9)
    ('no such', 'no', '')
    """
    return text if len(text) <= limit else " ".join(text[: limit + 1].split(" ")[:-1])


def complaint(error: Exception) -> str:
    """The first of pydantic's complaints, with the place of the value; any other error's first line."""
    errors = getattr(error, "errors", None)
    if not callable(errors) or not (details := errors()):
        return first_line(error)
    place = ".".join(str(part) for part in details[0]["loc"] if part != "__root__")  # a word of pydantic 1
    return f"{place}: {details[0]['msg']}" if place else str(details[0]["msg"])
