"""What recon's own source calls its variables: by what they are, never `one`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import recon

ROOT = Path(recon.__file__).parent


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of variables and parameters that a module binds, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_what_binds_a_name_is_found() -> None:
    source = "def f(a, *b, **c):\n    d = [e for e in a]\n    for g, h in b:\n        yield lambda k: (m := k)\n"
    assert {name for name, _ in bound(ast.parse(source))} == set("abcdeghkm")


def test_no_variable_is_called_one() -> None:
    """A reader sees from a name what it is: a finding, an entry, a partition."""
    called = [
        f"{path.relative_to(ROOT.parent)}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        for name, line in bound(ast.parse(path.read_text(encoding="utf-8")))
        if name == "one"
    ]
    assert called == []
