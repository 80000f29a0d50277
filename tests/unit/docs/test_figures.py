"""The README's table is the one that the bench printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bench.__main__ import BENCHES, table

ROOT = Path(__file__).parents[3]


def test_the_readme_shows_the_kept_figures() -> None:
    shown = re.search(r"<!-- figures -->\n(.*?)\n<!-- /figures -->", (ROOT / "README.md").read_text(), re.DOTALL)
    kept = json.loads((ROOT / "bench/results.json").read_text())
    assert shown and shown[1].strip() == table(kept)


def test_every_figure_is_explained() -> None:
    page = (ROOT / "docs/figures.md").read_text()
    assert all(f"`{name}`" in page for name in BENCHES)


def test_a_kept_figure_has_its_fields_and_adds_up() -> None:
    for result in json.loads((ROOT / "bench/results.json").read_text()):
        assert set(result) == {"name", "ours", "floor", "ratio", "unit", "peers"}
        assert abs(result["ratio"] - result["ours"] / result["floor"]) < 1e-9
