"""Ten checks of a table of 10 million rows: recon against a hand-written floor, and five other tools against theirs.

The table is clean, as on most days: every check passes, and nobody fetches failing rows. recon is run as a user's
script runs it: `recon.run_audit` of a recon.yml with these ten checks, without a ledger and with the session given.
Each peer runs in an environment and a process of its own, on the newest Spark it supports, and is compared with the
same floor taken in its own session.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import measure

WORK = Path(__file__).with_name(".work")
REPEATS = 5
PEER_REPEATS = 3


@dataclass(frozen=True)
class Peer:
    """A tool to compare with: its module in `bench.peers` and what pip installs for it."""

    module: str
    requirements: tuple[str, ...]


# Spark is the newest that the peer's own metadata allows, or that its documentation names, of those that have Delta.
# The newest Deequ that resolved when this was written is 2.0.7 for Spark 3.5, PyDeequ 1.4's.
PEERS = {
    "cuallee": Peer("cuallee", ("cuallee==0.15.4", "pyspark==4.0.1", "delta-spark==4.0.1")),
    "deequ": Peer("deequ", ("pydeequ==1.4.0", "pyspark==3.5.9", "delta-spark==3.3.3", "setuptools<81")),
    "dqx": Peer("dqx", ("databricks-labs-dqx==0.17.0", "pyspark==4.1.4", "delta-spark==4.1.0", "pandas<3", "pyarrow")),
    "gx": Peer("gx", ("great_expectations==1.24.1", "pyspark==4.1.4", "delta-spark==4.1.0")),
    "soda": Peer("soda", ("soda-core-spark-df==3.5.6", "pyspark==3.5.9", "delta-spark==3.3.3", "setuptools<81")),
}

RECON_YML = f"""\
name: check_suite
ledger: no_ledger
pipelines:
  - name: orders
    checkpoint: no_checkpoint
    source: {{topics: [orders]}}
    sinks:
      - name: orders
        target: TABLE
        data_tests:
          - row_count: {{arguments: {{min_value: {measure.ROWS}, max_value: {measure.ROWS}}}}}
        columns:
          - name: order_id
            data_tests: [not_null, unique]
          - name: customer_id
            data_tests: [not_null]
          - name: created_at
            data_tests: [not_null]
          - name: status
            data_tests:
              - accepted_values: {{arguments: {{values: [{", ".join(measure.STATUSES)}]}}}}
          - name: quantity
            data_tests:
              - accepted_range: {{arguments: {{min_value: {measure.QUANTITY[0]}, max_value: {measure.QUANTITY[1]}}}}}
          - name: email
            data_tests:
              - matches_regex: {{arguments: {{regex: "{measure.EMAIL}"}}}}
          - name: amount
            data_tests:
              - column_min: {{arguments: {{min_value: {measure.AMOUNT[0]}}}}}
              - column_max: {{arguments: {{max_value: {measure.AMOUNT[1]}}}}}
"""


def run() -> dict[str, Any]:
    """Medians in seconds, recon and floor in turn in one session; then each peer, as a ratio to its own floor."""
    from recon.local.spark import spark_session

    spark = spark_session("check_suite", conf=measure.CONF)
    try:
        table = orders(spark)
        taken = measure.alternate(
            {
                "ours": audit_of(spark, table, WORK / "check_suite"),
                "floor": lambda: measure.floor(spark.read.format("delta").load(str(table))),
            },
            REPEATS,
        )
    finally:
        spark.stop()
    return {
        "name": "check_suite",
        **taken,
        "ratio": taken["ours"] / taken["floor"],
        "unit": "s",
        "peers": {name: ratio for name in PEERS if (ratio := _peer(name, table)) is not None},
    }


def orders(spark: Any) -> Path:
    """The table of `measure.ROWS` orders, made once and kept under bench/.work."""
    path = WORK / "orders_10m"
    done = path.with_suffix(".done")
    if not done.exists():
        shutil.rmtree(path, ignore_errors=True)
        write_orders(spark, path, measure.ROWS)
        done.touch()
    return path


def write_orders(spark: Any, path: Path, rows: int) -> None:
    """Makes the Delta table of the first `rows` orders."""
    frame(spark, rows).write.format("delta").save(str(path))


def frame(spark: Any, rows: int, first: int = 0) -> Any:
    """Orders `first` … `first + rows - 1`; the same numbers give the same rows."""
    return spark.range(first, first + rows, 1, max(1, rows // 600_000)).selectExpr(
        "regexp_replace(md5(CAST(id AS STRING)), '(.{8})(.{4})(.{4})(.{4})(.{12})', '$1-$2-$3-$4-$5') AS order_id",
        "pmod(xxhash64(id, 'customer'), 1000000) AS customer_id",
        f"element_at(array{measure.STATUSES}, CAST(pmod(xxhash64(id, 'status'), 5) AS INT) + 1) AS status",
        "pmod(xxhash64(id, 'amount'), 1000000) / 100D AS amount",
        "concat('user', pmod(xxhash64(id, 'customer'), 1000000), '@example.com') AS email",
        "CAST(pmod(xxhash64(id, 'quantity'), 100) AS INT) + 1 AS quantity",
        "timestamp_seconds(1767225600 + id) AS created_at",
        "element_at(array('DE', 'FR', 'NL', 'PL', 'US'), CAST(pmod(xxhash64(id, 'country'), 5) AS INT) + 1) AS country",
    )


def audit_of(spark: Any, table: Path, folder: Path) -> Callable[[], None]:
    """One audit of the ten checks, from reading recon.yml to the results; all must pass."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recon.yml").write_text(RECON_YML.replace("TABLE", str(table)))
    return lambda: audit_once(spark, folder / "recon.yml", keep=False)


def audit_once(spark: Any, recon_yml: Path, keep: bool) -> None:
    """The audit; all ten checks must pass."""
    from recon.audits.run import run_audit
    from recon.project import load

    result = run_audit(load(recon_yml), exclude=["test_name:ledger_integrity"], spark=spark, keep=keep)
    outcomes = {check.name: (check.status, check.message) for check in result.results}
    assert len(outcomes) == 10 and all(status == "pass" for status, _ in outcomes.values()), outcomes


def _peer(name: str, table: Path) -> float | None:
    """A peer's median as a ratio to its own floor; None, and why, where it cannot be had here."""
    try:
        python = _environment(name)
        command = [str(python), "-m", f"bench.peers.{PEERS[name].module}", str(table), str(PEER_REPEATS)]
        environment = {**os.environ, "JAVA_HOME": _java(), "PYTHONPATH": ""}
        ended = subprocess.run(
            command,
            cwd=WORK.parent.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        seconds = json.loads(ended.stdout.strip().splitlines()[-1])
    except (subprocess.CalledProcessError, ValueError, IndexError) as error:
        print(f"check_suite: {name} was not measured: {error}", file=sys.stderr)
        return None
    print(f"check_suite: {name} {json.dumps(seconds)}", file=sys.stderr, flush=True)
    return float(seconds["ours"] / seconds["floor"])


def _environment(name: str) -> Path:
    """The Python of a peer's virtual environment, made and filled when it is not there or wants other packages."""
    folder, wanted = WORK / "peers" / name, PEERS[name].requirements
    stamp = folder / ".installed"
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"check_suite: installing {', '.join(wanted)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel"], check=True)
        subprocess.run([*pip, *wanted], check=True)
        stamp.write_text(digest)
    return python


def _java() -> str:
    from recon.local.java import java_home

    return str(java_home())
