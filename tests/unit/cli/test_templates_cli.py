"""Report templates of the user on the command line: where they come from, and what a fault costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recon.reports import run_results
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401

FOOTER = '{% extends "recon/report.html.j2" %}\n{% block footer %}<p>FOOT</p>{% endblock %}'


@pytest.fixture
def mine(project: Path) -> Path:  # noqa: F811
    """A folder of templates that recon.yml names."""
    folder = project / "mine"
    folder.mkdir()
    file = project / "recon.yml"
    file.write_text(file.read_text() + "\nreports: {templates: mine}\n")
    return folder


def write(folder: Path, footer: str, name: str = "report.html.j2") -> None:
    (folder / name).write_text(FOOTER.replace("FOOT", footer))


def test_the_templates_of_recon_yml_and_those_of_the_option(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    mine: Path,
) -> None:
    write(mine, "from recon.yml")
    other = project / "other"
    other.mkdir()
    write(other, "from the option")
    page = project / "target/report.html"
    assert recon("audit", "--no-spark").code == 1
    assert "<p>from recon.yml</p>" in page.read_text()
    assert recon("audit", "--no-spark", "--templates", str(other)).code == 1
    assert "<p>from the option</p>" in page.read_text()
    assert recon("report").code == 0
    assert "<p>from recon.yml</p>" in page.read_text()
    assert "<p>from the option</p>" in recon("report", "--templates", str(other), "--output", "-").out
    assert recon("retry", "--templates", str(other)).code == 1
    assert "<p>from the option</p>" in page.read_text()


def test_a_fault_is_found_before_the_audit_and_the_last_report_stays(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    mine: Path,
) -> None:
    write(mine, "{{ run.project }}")
    recon("audit", "--no-spark")
    before = {file: file.read_bytes() for file in (project / "target").iterdir()}
    write(mine, "{{ run.projct }}")
    ended = recon("audit", "--no-spark")
    assert ended.code == 2 and "report.html.j2:2: " in ended.err and " of " not in ended.out
    assert {file: file.read_bytes() for file in (project / "target").iterdir()} == before
    assert recon("report").code == 2
    assert {file: file.read_bytes() for file in (project / "target").iterdir()} == before


def test_a_fault_that_only_the_new_results_show_loses_no_report(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
    mine: Path,
) -> None:
    write(mine, "{% if run.results %}{{ run.projct }}{% endif %}")
    ended = recon("audit", "--no-spark")
    assert ended.code == 2
    assert "report.html.j2:2: " in ended.err and "recon's own templates" in ended.err
    assert "Done. PASS=" in ended.out
    assert "<footer>" in (project / "target/report.html").read_text()
    assert run_results.read(project / "target/run_results.json").results


def test_a_report_without_recon_yml_has_recons_own_templates(
    tmp_path: Path,
    recon: Callable[..., Ended],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run_results.write(sample_run(), tmp_path / "run_results.json")
    assert recon("report", "--target-path", str(tmp_path)).code == 0
    (tmp_path / "recon.yml").write_text("nonsense: true\n")
    ended = recon("report", "--target-path", str(tmp_path))
    assert ended.code == 0 and ended.err.startswith("Warning: recon.yml cannot be read, so its templates are not used")
