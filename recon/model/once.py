"""What follows from a witness is found once, and kept with it for all checks that ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Derived = dict[Hashable, tuple[tuple[object, ...], Any]]


class Keeps(Protocol):
    """A witness that keeps what was found out of it."""

    @property
    def derived(self) -> Derived:
        """What was found, by what it is, with the other witnesses that it rests on."""


def once(witness: Keeps, what: Hashable, find: Callable[[], T], *rests_on: object) -> T:
    """What `find` returns; it is called again only where something that it rests on is another object.

    Args:
        witness: what keeps the answer.
        what: names it: the function that asks, with what else tells one answer of it from another.
        find: finds it out of the witness and of what it rests on, and out of nothing else.
        rests_on: the other witnesses.
    """
    known = witness.derived.get(what)
    if known is None or not all(map(is_, known[0], rests_on)):
        known = witness.derived[what] = (rests_on, find())
    found: T = known[1]
    return found
