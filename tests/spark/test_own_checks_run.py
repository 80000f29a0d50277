"""A check of a user's own from its package to the audit's results; the code is that of docs/own_checks.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from recon.audits.run import run_audit
from recon.checks import registry as known_checks
from recon.project import load
from recon.spark.frames import local_frame
from recon.testing import only_built_in

PAGE = (Path(__file__).parents[2] / "docs" / "own_checks.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def nothing_is_left_known():
    with only_built_in():
        yield
    sys.modules.pop("lake_checks", None)


def test_the_audit_runs_a_check_of_an_installed_package(spark, lake, monkeypatch):
    (lake / "lake_checks.py").write_text(blocks("python")[0])
    about = lake / "lake_checks-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lake-checks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[recon.checks]\nwithin_credit = lake_checks:WithinCredit\n")
    monkeypatch.syspath_prepend(str(lake))
    (lake / "recon.yml").write_text(blocks("yaml")[0])
    rows = [(1, 10, 20), (2, 30, 20), (3, 26, 20), (4, None, 20), (5, 25, 20)]
    local_frame(spark, rows, "id int, amount int, credit int").write.format("delta").save(str(lake / "lake/orders"))

    outcome = run_audit(load(lake), select=["test_name:within_credit"], spark=spark, keep=False)
    (result,) = outcome.results
    assert (result.check, result.status, result.failures, result.severity) == ("within_credit", "warn", 2, "warn")
    assert result.message == "amount is beyond credit in 2 of 5 rows"
    assert sorted(s["amount"] for s in result.samples) == [26, 30]


def test_the_pages_own_test_passes(spark):
    about: dict = {"__name__": "page"}
    for block in blocks("python"):
        exec(compile(block, "own_checks.md", "exec", dont_inherit=True), about)
    assert known_checks.known("within_credit")  # by the page's register
    about["test_within_credit"](spark)
