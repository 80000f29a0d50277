"""What follows from a slice of the ledger is found once, and kept with it for all checks that ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Derived = dict[Callable[..., Any], tuple[tuple[object, ...], Any]]


class Keeps(Protocol):
    """A value that keeps what was found out of it."""

    @property
    def derived(self) -> Derived:
        """The newest answer of each function, with the other arguments that it rests on."""


K = TypeVar("K", bound=Keeps)
P = ParamSpec("P")
T = TypeVar("T")


def kept(find: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """A pure function whose newest answer is kept with its first argument, for all who ask with the same others.

    The same are one object, or tuples that are equal. An answer rests on nothing but the arguments.
    """

    def found(keeper: K, /, *rests_on: P.args, **named: P.kwargs) -> T:
        known = keeper.derived.get(find)
        if known is None or len(known[0]) != len(rests_on) or not all(map(_same, known[0], rests_on)):
            known = keeper.derived[find] = (rests_on, find(keeper, *rests_on, **named))
        answer: T = known[1]
        return answer

    return update_wrapper(found, find)


def _same(before: object, now: object) -> bool:
    return before is now or (isinstance(before, tuple) and before == now)
