"""What follows from a value is found once, and again only where it rests on something else."""

from __future__ import annotations

from dataclasses import dataclass, field

from recon.model.once import Derived, kept


@dataclass
class Value:
    derived: Derived = field(default_factory=dict)


def test_an_answer_is_found_again_only_for_other_arguments() -> None:
    asked: list[tuple[object, ...]] = []

    @kept
    def find(value: Value, *others: object) -> int:
        asked.append(others)
        return len(asked)

    value, log = Value(), [1]
    assert find(value, log) == find(value, log) == 1
    assert find(value, [1]) == 2  # equal, and another object
    assert find(value, (1, 2)) == find(value, (1, 2)) == 3  # tuples are compared by their values
    assert find(value) == 4 and find(value, None) == 5 and find(value) == 6
    assert find(Value()) == 7


def test_two_functions_keep_an_answer_each() -> None:
    first, second = kept(lambda value: object()), kept(lambda value: object())
    value = Value()
    assert first(value) is first(value) and second(value) is second(value)
    assert first(value) is not second(value)
