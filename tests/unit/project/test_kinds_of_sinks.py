"""What a kind of sink can do is said by its config class: nobody else asks of which class a sink is."""

from __future__ import annotations

import ast
from pathlib import Path

import recon

PACKAGE = Path(recon.__file__).parent
OF_THE_KINDS = ("write/sinks/", "project/sinks/")


def names(node: ast.AST) -> list[str]:
    """The names that stand in an expression, of `module.Name` the last."""
    parts = ast.walk(node)
    return [of.id if isinstance(of, ast.Name) else of.attr for of in parts if isinstance(of, (ast.Name, ast.Attribute))]


def test_no_other_room_asks_for_the_class_of_a_sink() -> None:
    asked = []
    for file in sorted(PACKAGE.rglob("*.py")):
        place = str(file.relative_to(PACKAGE))
        if place.startswith(OF_THE_KINDS):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            by_call = isinstance(node, ast.Call) and names(node.func)[-1:] in (["isinstance"], ["issubclass"])
            classes = node.args[1:] if isinstance(node, ast.Call) and by_call else []
            classes += [node.cls] if isinstance(node, ast.MatchClass) else []
            asked += [f"{place}:{of.lineno}" for of in classes if any(name.endswith("Sink") for name in names(of))]
    assert not asked, "give the config class a property that says it (recon/project/sinks/base.py)"
