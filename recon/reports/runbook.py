"""Runbooks: what to do about each code, a page in Markdown; how reports name them.

The pages are docs/runbooks, which the wheel has as data of this package: they can be read without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources

from recon.errors import ConfigError
from recon.model import Code, Level, RunResult
from recon.text import did_you_mean

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


def command(code: str) -> str:
    """The command that prints a code's page."""
    return f"recon runbook {code}"


def codes_of(run: RunResult) -> list[Code]:
    """The codes of findings that need somebody, each once: those of checks that passed explain, and are left out."""
    told = (f.code for r in run.results if r.status in ("fail", "error", "warn") for f in r.findings)
    return worst_first(code for code in told if code.level is not Level.INFO)


def worst_first(codes: Iterable[Code]) -> list[Code]:
    """Each code once: failures, then what could not be proved, then warnings, then explanations."""
    known: Sequence[Code] = list(Code)
    return sorted(set(codes), key=lambda code: (code.level.rank, known.index(code)))
