"""Runbooks: what to do about each code, a page in Markdown; how reports name them.

The pages are docs/runbooks, which the wheel has as data of this package: they can be read without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import NamedTuple

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.model import CheckResult, Code, Level, RunResult
from recon.model.result import RUNBOOK_URL

# A terminal follows no link to another page; the text of the link is the code or the page's name.
_LINK_TO_A_PAGE = re.compile(r"\[([^\]]+)\]\((?!\w+://)[^)]+\)")


def page_of(code: Code) -> str:
    """The page of a code, as Markdown that stands alone: links to other pages are their texts."""
    page = resources.files("recon.reports") / "runbooks" / f"{code}.md"
    return _LINK_TO_A_PAGE.sub(r"\1", page.read_text(encoding="utf-8"))


def code_named(name: str) -> Code:
    """The code with this name, in whatever case.

    Raises:
        ConfigError: there is none.
    """
    try:
        return Code(name.upper().replace("-", "_"))
    except ValueError:
        raise ConfigError(
            f"there is no code {name!r}{did_you_mean(name.upper(), [str(code) for code in Code])}"
        ) from None


class Runbook(NamedTuple):
    """Where the page of a code is: the command that prints it, and its address where recon.yml says one, else ""."""

    code: Code
    command: str
    url: str

    def __str__(self) -> str:
        return f"{self.command} ({self.url})" if self.url else self.command


def of_code(code: Code, run: RunResult) -> Runbook:
    """The runbook of a code, as the reports of a run name it."""
    # Results are read from a file, too, which somebody may have edited.
    address = run.runbook_url if RUNBOOK_URL.fullmatch(run.runbook_url) else ""
    return Runbook(code, f"recon runbook {code}", address.replace("{code}", code))


def of_result(result: CheckResult, run: RunResult) -> list[Runbook]:
    """The runbooks of a check that needs somebody, each once; none of one that passed: its findings explain."""
    if result.status not in ("fail", "error", "warn"):
        return []
    codes = {finding.code for finding in result.findings if finding.level is not Level.INFO}
    return [of_code(code, run) for code in worst_first(codes)]


def of_run(run: RunResult) -> list[Runbook]:
    """The runbooks of all checks that need somebody, each once."""
    codes = {each.code for result in run.results for each in of_result(result, run)}
    return [of_code(code, run) for code in worst_first(codes)]


def worst_first(codes: Iterable[Code]) -> list[Code]:
    """Each code once: failures, then what could not be proved, then warnings, then explanations."""
    known: Sequence[Code] = list(Code)
    return sorted(set(codes), key=lambda code: (code.level.rank, known.index(code)))


def as_html(code: Code) -> str:
    """The page as a part of a report: without its title and its example, for which the report has its own."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False})
    _, _, page = page_of(code).partition("## Example")[0].partition("\n\n")
    tokens = renderer.parse(page)
    for token in tokens:
        if token.tag == "h2":
            token.tag = "h4"
    return str(renderer.renderer.render(tokens, renderer.options, {}))
