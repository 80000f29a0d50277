"""A DAG: wait until what the stream reads is proved complete, then build on it; audit everything and keep the report.

In recon.yml, `kafka_end_offsets: {arguments: {warn_after: {count: 10, period: minute}}}`: with `--warn-error` the
sensor waits for a stream that lags, too.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG, task
from recon_airflow import ReconAuditOperator, ReconCompleteSensor

PROJECT = os.environ.get("RECON_PROJECT_DIR", "/srv/shop")
RECON = (os.environ.get("RECON_COMMAND", "/srv/shop/.venv/bin/recon"),)

with DAG("orders", schedule="0 6 * * *", start_date=datetime(2026, 1, 1), catchup=False) as dag:
    complete = ReconCompleteSensor(
        task_id="orders_complete",
        project_dir=PROJECT,
        command=RECON,
        select=["pipeline:orders"],
        options=["--no-spark", "--warn-error"],
        mode="reschedule",
        poke_interval=timedelta(minutes=5),
        timeout=timedelta(hours=2),
        execution_timeout=timedelta(minutes=30),
    )

    @task
    def build_revenue() -> None:
        """What needs the orders whole."""

    audit = ReconAuditOperator(task_id="audit", project_dir=PROJECT, command=RECON, retries=2)

    complete >> build_revenue() >> audit
