"""Tests that are taken over from dbt fail on the tables on which dbt's own macros fail.

tests/golden/dbt/recorded.json has what dbt-duckdb said with the packages' macros (`python -m scripts.record_dbt`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
import yaml

from recon.checks.binding import bind
from recon.checks.engine.context import ScanContext
from recon.checks.engine.runner import run_table
from recon.convert.dbt import read
from recon.project import load
from scripts.record_dbt import FOLDER, cases, schema, table_sql

pytestmark = pytest.mark.usefixtures("ansi", "interpreted")

CONTENT = cases()
USUAL = ("clean", "nulls", "outside")  # the others are run by `make soak`
RECORDED = json.loads((FOLDER / "recorded.json").read_text())["statuses"]


class Others:
    """The tables that tests compare with."""

    def __init__(self, spark) -> None:
        self.spark = spark

    def open(self, reference: str):
        assert reference == "ref('other')"
        return self.spark.sql(table_sql(CONTENT, "other")).coalesce(1)


@pytest.mark.parametrize(
    "table", [name if name in USUAL else pytest.param(name, marks=pytest.mark.long) for name in CONTENT["tables"]]
)
def test_each_test_fails_where_the_macro_does(spark, tmp_path, table) -> None:
    (tmp_path / "schema.yml").write_text(yaml.safe_dump(schema(CONTENT, table)))
    imported = read(tmp_path / "schema.yml")
    assert imported.left_out == () and imported.tests == len(CONTENT["cases"])
    (tmp_path / "recon.yml").write_text(imported.text)
    rows = spark.sql(table_sql(CONTENT, table)).coalesce(1)
    results = run_table(bind(load(tmp_path)), rows, table, lambda: datetime.now(UTC), ScanContext(tables=Others(spark)))
    statuses = {result.name.removesuffix(f"__{table}"): result.status for result in results}
    assert statuses.keys() == RECORDED.keys()
    for case, status in statuses.items():
        assert status in ("pass", "fail", "skipped"), (case, status)
    failed = {case for case, status in statuses.items() if status == "fail"}
    of_dbt = {case for case, by_table in RECORDED.items() if by_table[table] == "fail"}
    known = {case for case, by_table in RECORDED.items() if by_table[table] == "error"}
    otherwise = {case for case, content in CONTENT["cases"].items() if table in content.get("differs", ())}
    assert (failed ^ of_dbt) - known == otherwise
    named = "\n".join(imported.differs)
    tests = {next(iter(CONTENT["cases"][case]["test"])) for case in otherwise}
    assert [test for test in tests if f"{test}: " not in named] == []
