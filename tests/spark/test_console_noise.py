"""What Spark's JVM prints does not stand between the lines of an audit: it is in a file of the target folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CONFIG = """\
name: lake
ledger: lake/_recon
spark: {master: "local[1]", conf: {spark.sql.codegen.wholeStage: "false", spark.sql.codegen.factoryMode: NO_CODEGEN}}
pipelines:
  - name: orders
    checkpoint: cp
    sinks:
      - name: orders
        target: lake/orders
        data_tests:
          - unique_combination_of_columns: {arguments: {combination_of_columns: [id, lien]}}
          - expression_is_true: {arguments: {expression: idd > 0}}
        columns:
          - name: id
            data_tests:
              - not_null
              - accepted_values: {arguments: {values: [1]}}
              - not_null: {config: {where: idd > 0, alias: misspelt}}
"""


def test_an_audit_that_starts_a_jvm_prints_its_own_lines_only(tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(CONFIG)
    write_deltalake(tmp_path / "lake" / "orders", pa.table({"id": [1, 2]}))
    command = [sys.executable, "-m", "recon.cli", "audit", "--select", "test_type:data"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "PASS not_null_orders_id" in ended.stdout
    assert "has no column 'lien'" in ended.stdout
    assert "where 'idd > 0' is no condition on " in ended.stdout
    assert ended.stderr == ""  # no log of PySpark's, no warning of Python's
    lines = ended.stdout.splitlines()
    assert not [line for line in lines if "WARN " in line or line.startswith("::") or "Ivy" in line]
    assert (tmp_path / "target" / "spark.log").stat().st_mode & 0o777 == 0o600
    assert "log4j" in (tmp_path / "target" / "spark.log").read_text(encoding="utf-8")
