"""The package of docs/own_sinks.md, installed as pip leaves it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "own_sinks.md"


def blocks(language: str) -> list[str]:
    """The page's code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str) -> None:
    """The module of the page, with what a repair needs, and metadata with these entry points."""
    module, _, repairs, _ = blocks("python")
    (folder / "lake_sinks.py").write_text(f"{module}\n{repairs}")
    about = folder / "lake_sinks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lake-sinks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[recon.sinks]\n{entry_points}\n")
    monkeypatch.syspath_prepend(str(folder))
