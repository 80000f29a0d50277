"""The README and docs/contributing.md name only commands, options, targets, files and modules that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import recon
from recon.cli.app import app
from tests.support.pages import check_command, commands
from tests.unit.cli.test_cli import Ended  # noqa: F401
from tests.unit.cli.test_cli import recon as command  # noqa: F401

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
TARGETS = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _commands() -> Iterator[list[str]]:
    for block in _blocks(README, "console"):
        yield from commands(block)


def test_the_commands_and_their_options_exist() -> None:
    seen = set()
    for words in _commands():
        if words[0] == "make":
            assert words[1] in TARGETS
        elif words[0] == "recon":
            command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
            command = getattr(command, "commands", {}).get(words[2] if words[2:] else "", command)
            options = {option for p in command.params for option in p.opts}
            assert {word for word in words if word.startswith("--")} <= options
        else:
            check_command(words)
        seen.add(" ".join(words[:2]))
    assert {"recon init", "recon debug", "recon audit", "recon findings", "recon compliance"} <= seen


def test_it_begins_with_what_works_from_a_clone() -> None:
    """scripts/try_wheel.sh runs these lines in an empty folder, but for `make demo` and `make test`: tests/demo, CI."""
    first, second, *_ = (list(commands(block)) for block in _blocks(README, "console"))
    assert [words[:2] for words in first] == [
        ["git", "clone"],
        ["cd", "recon"],
        ["make", "try"],
        ["make", "demo"],
        ["make", "test"],
    ]
    assert second == [["pip", "install", "./recon"]]


TEXTS = [
    path
    for folder in ("docs", "examples", "recon", "scripts", "bench")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".md", ".py", ".sh", ".yml", ".txt", ".j2")
]


def test_nothing_says_that_an_index_has_recon() -> None:
    """No index has it: whoever follows such a line gets nothing, or what somebody else has put there."""
    said = re.compile(r"install\b[^\n;`]*\bspark-recon\b")
    found = [str(path) for path in [ROOT / "README.md", *TEXTS] if said.search(path.read_text(encoding="utf-8"))]
    assert len(TEXTS) > 500 and found == []


def test_the_first_commands_work_as_written(command, tmp_path: Path) -> None:  # noqa: F811
    (line,) = [words for words in _commands() if words[:2] == ["recon", "init"] and "--from" not in words]
    assert command(*line[1:]).code == 0
    checks = re.findall(r"^\d of (\d+) PASS (\w+) ", README, re.MULTILINE)
    names = re.findall(r"(\w+)$", "\n".join(n for _, n in checks), re.MULTILINE)
    listed = command("list").out
    assert [name for name in names if name not in listed] == []
    assert {int(total) for total, _ in checks} == {len(checks)} == {len(listed.splitlines()) - 1}


@pytest.mark.parametrize("snippet", _blocks(README, "python"))
def test_python_uses_what_is_public(snippet: str) -> None:
    for node in ast.walk(ast.parse(snippet)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "recon":
            assert node.attr in recon.__all__


def test_the_contents_name_the_headings() -> None:
    headings = {
        re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", README)) == headings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_make_targets_on_the_pages_exist() -> None:
    named = {(page.name, t) for page in PAGES for t in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert [(name, target) for name, target in named if target not in TARGETS] == []


def test_the_contributors_page_names_modules_that_exist() -> None:
    page = (ROOT / "docs/contributing.md").read_text()
    named = set(re.findall(r"`((?:recon|tests|scripts|bench)/[\w/.]*)`", page))
    assert len(named) > 15
    assert [path for path in named if not (path.endswith(".results.json") or (ROOT / path).exists())] == []
    rooms = {f"recon/{p.parent.name}/" for p in (ROOT / "recon").glob("*/__init__.py")}
    assert rooms - set(re.findall(r"`(recon/\w+/)`", page)) == set()
