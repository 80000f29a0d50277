"""The table of docs/figures.md is drawn from bench/results.json, and every figure is explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as bench
from scripts import figures

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_published_figures() -> None:
    assert figures.shown() == bench.table(bench.load(bench.PUBLISHED)), "run make figures"


def test_the_readme_shows_the_published_figures() -> None:
    text = figures.README.read_text()
    assert text == figures.readme(bench.load(bench.PUBLISHED)), "run make figures"
    assert len([name for name in bench.BENCHES if f"| `{name}` |" in text]) > 5


def test_large_figures_are_written_out() -> None:
    assert bench.cells({**_result("n", ours=21132.4), "unit": "events/s"}) == "21,132 events/s | 1 events/s | 21132.400"


def test_every_figure_is_explained() -> None:
    page = (ROOT / "docs/figures.md").read_text()
    assert [name for name in bench.BENCHES if page.count(f"`{name}`") < 2] == []


def test_a_published_figure_has_its_fields_and_adds_up() -> None:
    for result in bench.load(bench.PUBLISHED).values():
        assert set(result) == {"name", "ours", "floor", "ratio", "unit", "peers"}
        assert abs(result["ratio"] - result["ours"] / result["floor"]) < 1e-9


def test_what_is_measured_is_published_by_make_figures_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "figures.md"
    page.write_text("above\n<!-- figures -->\nold\n<!-- /figures -->\nbelow\n")
    measured, published = tmp_path / ".results.json", tmp_path / "results.json"
    readme = tmp_path / "README.md"
    readme.write_text(
        "<!-- figures -->\n| a, b | | | | `row_readback` |\n<!-- /figures -->\n| c | | | | `row_readback` |\n"
    )
    monkeypatch.setattr(bench, "measure", lambda name: _result(name, ours=1.0))
    bench.save({name: _result(name, ours=2.0) for name in ("hook_overhead", "row_readback")}, published)

    assert figures.publish(bench.load(measured), published, page, readme) == 2  # nothing was measured
    assert bench.main(["row_readback"], measured) == 0
    assert bench.load(published)["row_readback"]["ours"] == 2.0
    assert figures.publish(bench.load(measured), published, page, readme) == 0
    assert [r["ours"] for r in json.loads(published.read_text())] == [2.0, 1.0]
    assert figures.shown(page) == bench.table(bench.load(published))
    assert page.read_text().startswith("above\n") and page.read_text().endswith("\nbelow\n")
    assert readme.read_text().splitlines()[1] == "| a, b | 1 s | 1 s | 1.000 | `row_readback` |"
    assert readme.read_text().splitlines()[-1] == "| c | | | | `row_readback` |"
    assert bench.main(["row_readbak"], measured) == 2
    assert "row_readbak" in capsys.readouterr().err


def _result(name: str, ours: float) -> bench.Result:
    return {"name": name, "ours": ours, "floor": 1.0, "ratio": ours, "unit": "s", "peers": {}}
