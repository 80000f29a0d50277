"""The examples for Airflow and Dagster, run by these tools, against a real broker, checkpoint and table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.project import load
from scripts import recipes
from tests.support.native_stream import NativeStream

ROOT = Path(__file__).parents[2]
RECON = Path(sys.executable).with_name("recon")
PROJECT = """
name: shop
ledger: lake/_recon
kafka: {{bootstrap.servers: "{{{{ env_var('KAFKA_BOOTSTRAP', '{kafka}') }}}}"}}
pipelines:
  - name: orders
    checkpoint: checkpoints/orders
    write: native
    source: {{topics: [{topic}]}}
    data_tests:
      - offset_continuity
      - checkpoint_commits
      - kafka_end_offsets: {{arguments: {{warn_after: {{count: 1, period: day}}}}}}
    sinks:
      - {{name: orders, target: lake/orders, data_tests: [ledger_integrity, delta_history, source_rows]}}
"""


@pytest.fixture
def shop(kafka: Any, topic: Callable[..., str], tmp_path: Path) -> Path:
    """A project whose stream has read 500 orders, all of which are in the table."""
    name = topic("orders")
    kafka.produce(name, [(f"k{i}", "{}", 0) for i in range(500)])
    stream = NativeStream(tmp_path / "checkpoints/orders", tmp_path / "lake/orders").start({name: {0: 0}})
    stream.batch({name: {0: 300}})
    stream.batch({name: {0: 500}})
    (tmp_path / "recon.yml").write_text(PROJECT.format(kafka=kafka.bootstrap_servers, topic=name))
    return tmp_path


def lose_rows(folder: Path) -> None:
    DeltaTable(str(folder / "lake/orders")).delete("kafka_offset < 10")


def topics(folder: Path) -> str:
    return str(load(folder).pipelines[0].source.topics[0])


def run(tool: str, script: str, cwd: Path, **env: str) -> Any:
    """What a script printed as its last line, as JSON."""
    python = recipes.python(tool)
    if not python.exists():
        pytest.skip(f"{tool} is not installed; `make recipes` installs it and runs this")
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW", "DAGSTER"))}
    done = subprocess.run(
        [str(python), "-c", script],
        cwd=cwd,
        env={**given, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


DAG = """
import json, sys
from datetime import timedelta
sys.path.insert(0, "dags")
import orders_dag
orders_dag.complete.poke_interval = 1
orders_dag.complete.timeout = 30
orders_dag.audit.retries = 0
done = orders_dag.dag.test()
found = {task.task_id: str(task.state).split(".")[-1].lower() for task in done.get_task_instances()}
audit = next(task for task in done.get_task_instances() if task.task_id == "audit")
print(json.dumps({"state": str(done.state).split(".")[-1].lower(), "tasks": found, "xcom": audit.xcom_pull("audit")}))
"""
MIGRATE = """
import subprocess, sys
print(subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], capture_output=True, check=True).returncode)
"""
POKE = """
import json, sys
sys.path.insert(0, "dags")
from recon_airflow import ReconAuditOperator, ReconCompleteSensor
given = dict(project_dir=".", command=[{recon!r}], options=["--no-spark", "--warn-error"])
said = []
for ask in (ReconCompleteSensor(task_id="s", **given).poke, ReconAuditOperator(task_id="o", **given).execute):
    try:
        said.append(ask(None))
    except Exception as error:
        said.append([type(error).__name__, str(error)])
print(json.dumps(said))
"""


@pytest.fixture
def airflow(shop: Path) -> dict[str, str]:
    """Airflow's environment variables; its database and the DAG are in the project's folder."""
    shutil.copytree(ROOT / "examples/airflow", shop / "dags")
    env = {
        "AIRFLOW_HOME": str(shop / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(shop / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "RECON_PROJECT_DIR": str(shop),
        "RECON_COMMAND": str(RECON),
    }
    run("airflow", MIGRATE, shop, **env)
    return env


@pytest.mark.timeout(600)
def test_a_dag_goes_on_when_the_data_is_proved_complete(shop: Path, airflow: dict[str, str]) -> None:
    done = run("airflow", DAG, shop, **airflow)
    assert done["state"] == "success"
    assert done["tasks"] == {"orders_complete": "success", "build_revenue": "success", "audit": "success"}
    assert done["xcom"]["answers"] == {"orders": "complete"} and done["xcom"]["failed"] == []
    assert Path(done["xcom"]["report"]).is_file()


@pytest.mark.timeout(600)
def test_a_dag_stops_where_rows_are_gone(shop: Path, airflow: dict[str, str]) -> None:
    lose_rows(shop)
    done = run("airflow", DAG, shop, **airflow)
    assert done["state"] == "failed"
    assert done["tasks"] == {
        "orders_complete": "failed",
        "build_revenue": "upstream_failed",
        "audit": "upstream_failed",
    }


def test_what_the_sensor_and_the_operator_say(kafka: Any, shop: Path, airflow: dict[str, str]) -> None:
    poke = POKE.format(recon=str(RECON))
    sensor, operator = run("airflow", poke, shop, **airflow)
    assert sensor is True and operator["answers"] == {"orders": "complete"}
    # A broker that does not answer: nothing is proved, and nothing refuted. Another try may do.
    sensor, operator = run("airflow", poke, shop, **airflow, KAFKA_BOOTSTRAP="localhost:1")
    assert sensor is False
    assert operator[0] == "AirflowException" and "checks: 0 failed, " in operator[1]
    assert "; orders: could not be proved; see " in operator[1]
    # A selector that matches nothing is not taken for what is complete.
    script = poke.replace("**given", "**{**given, 'select': ['pipeline:orders', 'pipeline:paymnets']}")
    sensor, _ = run("airflow", script, shop, **airflow)
    assert sensor[0] == "AirflowException" and "'pipeline:paymnets' matches no check" in sensor[1]
    # The stream stands still: what it has read is complete, and it has not read what is there.
    kafka.produce(topics(shop), [("k", "{}", 0, int((time.time() - 2 * 86_400) * 1000))])
    sensor, operator = run("airflow", poke, shop, **airflow)
    assert sensor is False
    assert operator[0] == "AirflowException" and "1 warned; orders: complete; see " in operator[1]
    lose_rows(shop)
    sensor, operator = run("airflow", poke, shop, **airflow)
    assert sensor[0] == "AirflowFailException" and "pipeline orders is not complete: " in sensor[1]
    assert operator[0] == "AirflowFailException"
    # recon cannot run: Airflow tries again.
    (shop / "recon.yml").write_text("pipelines: 7")
    for said in run("airflow", poke, shop, **airflow):
        assert said[0] == "AirflowException" and "recon audit ended with exit code 2: " in said[1]


CHECKS = """
import json, sys
import dagster as dg
sys.path.insert(0, {examples!r})
from recon_checks import audit_checks

@dg.asset
def orders():
    pass

job = dg.Definitions(assets=[orders], asset_checks=[audit_checks(".", {{"orders": "orders"}}, no_spark=True)])
done = job.resolve_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
print(json.dumps({{
    e.check_name: [e.passed, e.severity.value, e.description or "", sorted(e.metadata)]
    for e in done.get_asset_check_evaluations()
}}))
"""


def test_asset_checks(shop: Path) -> None:
    """One audit after the other: complete, in part, without a broker, with rows that are gone."""
    script = CHECKS.format(examples=str(ROOT / "examples/dagster"))
    env = {"DAGSTER_HOME": str(shop)}
    found = run("dagster", script, shop, **env)
    assert found["complete"][:2] == [True, "WARN"] and found["complete"][2].startswith("complete: ")
    assert found["checks"][0] is True and "source_rows_orders" in found["checks"][3]
    selected = run(
        "dagster", script.replace("no_spark=True", "no_spark=True, select=['test_name:offset_continuity']"), shop, **env
    )
    assert selected["complete"][:2] == [False, "WARN"] and selected["checks"][0] is True
    found = run("dagster", script, shop, **env, KAFKA_BOOTSTRAP="localhost:1")
    assert found["complete"][:2] == [False, "WARN"] and found["complete"][2].startswith("could not be proved: ")
    assert found["checks"][:2] == [False, "ERROR"]
    lose_rows(shop)
    found = run("dagster", script, shop, **env)
    assert found["complete"][:2] == [False, "ERROR"] and found["complete"][2].startswith("not complete: ")
    assert found["checks"][:2] == [False, "ERROR"] and "delta_history_orders" in found["checks"][2]
