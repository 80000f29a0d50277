"""The codes that docs/evidence_checks.md lists of each check: what a check reports is explained to users."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recon.model import CheckResult

PAGE = Path(__file__).parents[2] / "docs" / "evidence_checks.md"
# What any check may say of a finding that an earlier audit left open, or of its own trouble.
OF_ALL = {"REPAIRED", "ACCEPTED"}


@cache
def listed() -> dict[str, set[str]]:
    """By check, the codes in its section."""
    sections = re.split(r"\n## (\w+)\n", PAGE.read_text(encoding="utf-8"))[1:]
    texts = zip(sections[::2], sections[1::2], strict=True)
    return {check: set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE)) for check, text in texts}


def unlisted(results: Iterable[CheckResult]) -> set[tuple[str, str]]:
    """The (check, code) of findings whose code the check's section does not list."""
    found = {(r.check, str(f.code)) for r in results if r.kind == "evidence" for f in r.findings}
    return {(check, code) for check, code in found if code not in listed()[check] | OF_ALL}
