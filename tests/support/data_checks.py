"""What the data check tests share: bound checks, a clock, and a count of Spark jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from recon.checks.bound import Bound
from recon.checks.engine.runner import run_table
from recon.checks.registry import build
from recon.model import CheckResult
from recon.project import CheckConfig, CheckSpec
from recon.spark.frames import local_frame


def bound(test: str, config: dict | None = None, **arguments) -> Bound:
    settings = CheckConfig(**{"samples": "full", **(config or {})})
    check = build(CheckSpec(test=test, arguments=arguments, config=settings), "here")
    return Bound(check=check, config=settings, unique_id=f"test.p.{test}", name=test, pipeline="p", sink="s")


def run(table, *bounds: Bound) -> list[CheckResult]:
    return list(run_table(bounds, table, "the_table", lambda: datetime.now(UTC)))


def one(table, test: str, config: dict | None = None, **arguments) -> CheckResult:
    (result,) = run(table, bound(test, config, **arguments))
    return result


def local_table(spark, rows: Sequence[tuple], ddl: str):
    """A small table in one partition."""
    return local_frame(spark, rows, ddl).coalesce(1)


@contextmanager
def counted_jobs(spark) -> Iterator[list[int]]:
    """Fills the list with the ids of the Spark jobs of the block.

    Adaptive execution is off inside: it runs each stage as a job of its own, and the number would be Spark's
    planning, not ours.
    """
    context, group, jobs = spark.sparkContext, uuid.uuid4().hex, []
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    context.setJobGroup(group, "counted")
    try:
        yield jobs
    finally:
        jobs.extend(context.statusTracker().getJobIdsForGroup(group))
        context.setLocalProperty("spark.jobGroup.id", None)
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
