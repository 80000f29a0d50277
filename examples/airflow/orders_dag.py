"""A DAG: wait until the stream's data is proved complete, then build on it; audit everything and keep the report."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG, task
from recon_airflow import ReconAuditOperator, ReconCompleteSensor

PROJECT = os.environ.get("RECON_PROJECT_DIR", "/srv/shop")
RECON = (os.environ.get("RECON_COMMAND", "/srv/shop/.venv/bin/recon"),)

with DAG("orders", schedule="0 6 * * *", start_date=datetime(2026, 1, 1), catchup=False) as dag:
    arrived = ReconCompleteSensor(
        task_id="orders_arrived",
        project_dir=PROJECT,
        command=RECON,
        select=["pipeline:orders"],
        options=["--no-spark"],
        mode="reschedule",
        poke_interval=timedelta(minutes=5),
        timeout=timedelta(hours=2),
    )

    @task
    def build_revenue() -> None:
        """What needs yesterday's orders whole."""

    audit = ReconAuditOperator(task_id="audit", project_dir=PROJECT, command=RECON, retries=2)

    arrived >> build_revenue() >> audit
