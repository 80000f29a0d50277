"""What the docs and the examples import is public: recon, recon.checks, recon.testing, recon.reports."""

from __future__ import annotations

import ast
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PUBLIC = ("recon", "recon.checks", "recon.testing", "recon.reports")
INSIDE = {"contributing.md"}  # for those who change recon itself

PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in INSIDE)
SOURCES = [ROOT / "README.md", *PAGES, *sorted((ROOT / "examples").rglob("*.py"))]


def code(source: Path) -> list[str]:
    """The Python of a page or an example."""
    text = source.read_text()
    if source.suffix == ".py":
        return [text]
    return [
        textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    ]


def imports(text: str) -> list[tuple[str, str | None]]:
    """The modules of recon that are imported, each with a name taken from it."""
    imports: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in imports if module.partition(".")[0] == "recon"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_only_public_names_are_imported(source):
    for block in code(source):
        for module, name in imports(block):
            assert module in PUBLIC, f"{source.name} imports {module}"
            if name is not None and module != "recon.reports":
                assert name in import_module(module).__all__, f"{source.name} imports {name} of {module}"


def test_the_pages_of_own_checks_import_recon():
    assert {"recon.checks", "recon.testing"} <= {
        m for block in code(ROOT / "docs" / "own_checks.md") for m, _ in imports(block)
    }


@pytest.mark.parametrize("module", PUBLIC[:3])
def test_every_public_name_exists_and_has_a_docstring(module):
    of = import_module(module)
    for name in of.__all__:
        if name != "__version__":
            assert getattr(of, name).__doc__
    with pytest.raises(AttributeError):
        _ = of.no_such_name
