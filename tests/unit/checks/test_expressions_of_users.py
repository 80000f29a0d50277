"""Spark parses a user's SQL in one place: `F.expr` itself takes a word behind an expression for an alias."""

from __future__ import annotations

import ast
from pathlib import Path

import recon

PACKAGE = Path(recon.__file__).parent


def test_only_sql_of_recons_own_is_given_to_expr() -> None:
    """It stands there as text; whatever comes from elsewhere goes through `recon.spark.columns.expression`."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            named = isinstance(call.func, ast.Attribute) and call.func.attr in ("expr", "selectExpr")
            if named and not all(isinstance(of, (ast.Constant, ast.JoinedStr)) for of in call.args):
                found.append(f"{file.relative_to(PACKAGE)}:{call.lineno}")
    assert {place.split(":")[0] for place in found} == {"checks/comparison/differences.py", "spark/columns.py"}, found
