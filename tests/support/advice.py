"""The steps that recon's messages name, and what a test takes of them: a step is followed as it was printed.

A step is a clause of a message in the code that tells the reader to do something. `…` stands for what the code puts in.
A test that follows steps is marked with them, `@pytest.mark.advice("put it back from a copy")`, and takes each from
what was printed, by `printed_step`; the mark of a step that the test did not take is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLANK = "…"  # what the code puts in

# Words with which a clause tells the reader to do something. `LOOKS` are those after which nothing is changed.
LOOKS = frozenset(["ask", "audit", "check", "choose", "compare", "list", "look", "say", "see"])
DOES = frozenset(
    [
        "accept",
        "add",
        "begin",
        "bring",
        "change",
        "copy",
        "correct",
        "create",
        "declare",
        "delete",
        "enter",
        "finish",
        "give",
        "grant",
        "install",
        "keep",
        "leave",
        "let",
        "make",
        "move",
        "name",
        "open",
        "pass",
        "point",
        "put",
        "raise",
        "read",
        "relax",
        "remove",
        "rename",
        "repair",
        "restart",
        "restore",
        "run",
        "set",
        "split",
        "start",
        "stop",
        "take",
        "tell",
        "turn",
        "use",
        "wait",
        "write",
    ]
)
_FIRST = re.compile(r"(?:and |or |then |else |but |please |first |also |either |so )*([A-Za-z]+)\b")
_CLAUSES = re.compile(r"(?<=[;:.?!]) |, (?=and |or |then |else )|(?<=\w) (?=(?:and|or|then|else) )|\n| \(")

_taken: set[str] = set()


@dataclass(frozen=True, order=True)
class Step:
    """A clause of a message that names a step; `file` is the module that prints it."""

    file: str
    text: str

    @property
    def looks_only(self) -> bool:
        """Whether following it changes nothing."""
        return _verb(self.text) in LOOKS and "`recon " not in self.text


@cache
def steps() -> tuple[Step, ...]:
    """Every step that recon's code prints, by module, each once."""
    found = dict.fromkeys(
        Step(str(path.relative_to(ROOT)), step)
        for path in sorted((ROOT / "recon").rglob("*.py"))
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        for step in steps_of(text)
    )
    return tuple(found)


def steps_of(text: str) -> Iterator[str]:
    """The clauses of a text that name a step.

    >>> list(steps_of("micro-batch … is not there; restore the file from a copy, else accept this"))
    ['restore the file from a copy', 'else accept this']
    """
    if len(text.split()) < 4:
        return
    for part in _CLAUSES.split(text):
        clause = part.strip(" ;,.:)\"'")
        if len(clause.split()) > 1 and (_verb(clause) in LOOKS | DOES or "`recon " in clause):
            yield clause


def printed_step(printed: str | Iterable[str], step: str) -> re.Match[str]:
    """A step as it was printed; its groups are what the code put in. AssertionError where it was not printed."""
    assert step in {known.text for known in steps()}, f"no message of recon names the step {step!r}"
    texts = [printed] if isinstance(printed, str) else list(printed)
    pattern = re.compile("(.+?)".join(map(re.escape, step.split(BLANK))) + r"(?=[;,.:) ]|$)", re.DOTALL)
    found = next((match for text in texts if (match := pattern.search(text))), None)
    assert found is not None, f"{step!r} is in none of: {texts}"
    _taken.add(step)
    return found


def require_taken(marked: Iterable[str]) -> None:
    """Requires that the test that ran took every step that it is marked with, and forgets them."""
    missing = sorted(set(marked) - _taken)
    _taken.clear()
    assert not missing, f"marked, and not taken from what was printed: {missing}"


def _verb(clause: str) -> str:
    first = _FIRST.match(clause)
    return first[1].lower() if first is not None else ""


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that may be printed: no docstring, and no help of a command's option."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg in ("help", "panel", "rich_help_panel"):
            left_out |= {id(inner) for inner in ast.walk(node.value)}
        elif isinstance(node, ast.JoinedStr) and id(node) not in left_out:
            left_out |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else BLANK for part in node.values)  # type: ignore[misc]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value
