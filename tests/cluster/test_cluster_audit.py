"""The hook by spark-submit and the audit by `spark:`, on a real standalone cluster: a master and two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recon.local.jars import pyspark_home
from recon.local.java import java_home
from recon.local.spark import local_conf
from tests.support.cluster import StandaloneCluster

ROOT = Path(__file__).parents[2]
CONF = {**local_conf(), "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(workers=2, cores=1) as running:
        yield running


@pytest.fixture
def project(cluster: StandaloneCluster, kafka: Any, topic: Callable[..., str], tmp_path: Path) -> Path:
    name = topic("orders", 2)
    kafka.produce(name, [(f"k{i}", f"v{i}", i % 2) for i in range(200)])
    conf = {k: v for k, v in CONF.items() if k != "spark.jars.packages"}
    packages = CONF["spark.jars.packages"].split(",")
    (tmp_path / "recon.yml").write_text(
        textwrap.dedent(
            f"""
            version: 2
            name: cluster
            ledger: lake/_recon
            kafka: {{bootstrap.servers: "{kafka.bootstrap_servers}"}}
            spark: {{master: "{cluster.master_url}", packages: {json.dumps(packages)}, conf: {json.dumps(conf)}}}
            pipelines:
              - name: orders
                checkpoint: checkpoint
                source: {{topics: [{name}]}}
                sinks:
                  - name: orders
                    target: lake/orders
                    data_tests:
                      [offset_continuity, kafka_end_offsets, checkpoint_commits, delta_history, source_rows]
                    columns: [{{name: key, data_tests: [unique, not_null]}}]
            """
        )
    )
    return tmp_path


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False)


def _submit(cluster: StandaloneCluster, script: str, *arguments: str) -> list[str]:
    settings = [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
    submit = str(pyspark_home() / "bin" / "spark-submit")
    return [submit, "--master", cluster.master_url, *settings, str(ROOT / "examples" / script), *arguments]


@pytest.mark.long
def test_hook_and_audit_on_a_cluster(cluster: StandaloneCluster, kafka: Any, project: Path) -> None:
    stream = _run(_submit(cluster, "stream.py", "recon.yml", "orders"), project)
    assert stream.returncode == 0, stream.stderr[-3000:]

    by_command = _run([sys.executable, "-m", "recon.cli", "audit"], project)
    assert by_command.returncode == 0, by_command.stdout + by_command.stderr[-3000:]
    results = json.loads((project / "target/run_results.json").read_text())["results"]
    assert {r["status"] for r in results} == {"pass"} and len(results) == 8

    by_submit = _run(_submit(cluster, "daily_audit.py", "recon.yml"), project)
    assert by_submit.returncode == 0, by_submit.stdout + by_submit.stderr[-3000:]
    assert "orders: complete" in by_submit.stdout
