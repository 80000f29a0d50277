"""docs/limits.md is read by somebody in a hurry: short lines, by what the reader has, each with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "limits.md").read_text(encoding="utf-8")
LINES = [" ".join(line.split()) for line in re.split(r"\n(?=- |\n)", PAGE) if line.lstrip().startswith("- ")]


def test_they_are_grouped() -> None:
    groups = re.split(r"\n## .*\n", PAGE)
    assert len(groups) > 8
    assert "\n- " not in groups[0]


@pytest.mark.parametrize("line", LINES, ids=lambda line: re.sub(r"\W+", "-", line[:30]))
def test_each_is_one_limit_and_says_what_to_do(line: str) -> None:
    assert len(line.split()) <= 61  # the dash is one
    assert re.fullmatch(r"- .*\S \*Do:\* \S.*[.]", line), line
