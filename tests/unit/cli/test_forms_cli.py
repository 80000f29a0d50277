"""A run in other forms on the command line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

from junitparser import JUnitXml

from recon.reports import run_results
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401


def test_an_audit_in_other_forms(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    target = project / "target"
    forms = ("--write", "junit", "--write", "csv", "--write", "markdown", "--write", "parquet", "--annotate", "github")
    ended = recon("audit", "--no-spark", *forms)
    assert ended.code == 1 and "::error title=recon%3A " in ended.out
    names = {"run_results.json", "report.html", "junit.xml", "findings.csv", "report.md", "findings.parquet"}
    assert {file.name for file in target.iterdir()} == names
    suites = JUnitXml.fromstring((target / "junit.xml").read_bytes())
    assert suites.errors == ended.out.count("::error title=")
    # What the next audit does not write would pass for its own.
    recon("audit", "--no-spark", "--write", "csv")
    assert {file.name for file in target.iterdir()} == {"run_results.json", "report.html", "findings.csv"}


def test_the_last_audit_in_other_forms(
    project: Path,  # noqa: F811
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    run_results.write(sample_run(), project / "target/run_results.json")
    printed = recon("report", "--format", "csv", "--output", "-").out
    assert len(list(csv.reader(io.StringIO(printed)))) > 20
    assert recon("report", "--format", "junit").code == 0 and (project / "target/junit.xml").is_file()
    assert recon("report", "--output", "-").out.startswith("<!doctype html>")
    ended = recon("report", "--format", "parquet", "--output", "-")
    assert (ended.code, ended.err) == (2, "Error: parquet is no text: name a file to write it to\n")
