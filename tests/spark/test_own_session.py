"""The session that an audit builds has settings for one machine, and the user's own go before them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.marks import long

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CONFIG = """\
name: lake
ledger: lake/_recon
spark: {master: "local[2]", conf: {spark.sql.sources.parallelPartitionDiscovery.parallelism: "9"}}
pipelines: [{name: orders, checkpoint: cp, sinks: [{name: orders, target: lake/orders}]}]
"""
SCRIPT = """\
from pathlib import Path
from recon.project import load
from recon.spark.session import session
spark = session(load(Path("."), {}))
for name in ("databricks.delta.snapshotPartitions", "sql.sources.parallelPartitionDiscovery.parallelism"):
    print("found", spark.conf.get(f"spark.{name}"))
"""


@pytest.mark.parametrize(("defaults", "found"), [("snapshotPartitions 7", ["7", "9"]), *long(("", ["4", "9"]))])
def test_the_users_settings_go_first(tmp_path: Path, defaults: str, found: list[str]) -> None:
    (tmp_path / "recon.yml").write_text(CONFIG)
    (tmp_path / "spark-defaults.conf").write_text(f"spark.databricks.delta.{defaults}\n" if defaults else "")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("found")] == found, ended.stderr
