"""The process of the repair tests: it makes faults, or repairs them and is killed in the middle of it.

    python -m tests.crash.repairs faults|kill|finish PLAN.json

There are several pipelines. Repairs run one after another; each stops at the point that the plan names for it, and
stands still there while the others run. When all stand, the process group gets SIGKILL.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

import recon
from recon.model import REMOVALS, ReconStamp
from recon.project import Project, load
from recon.recovery.repair.run import Repaired, repair
from recon.reports import run_results
from recon.write.sinks.failpoints import AFTER_LEDGER, AFTER_WRITE, BEFORE_LEDGER, BEFORE_WRITE
from tests.crash.child import Stops, _say, _session, held_up, kill_all
from tests.crash.plan import Plan
from tests.crash.sinks import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A repair's moments in their order: it reads offsets again, then it removes doubled rows.
_REMOVAL = "removal_"
REPAIR_POINTS = (
    BEFORE_WRITE,
    "during",
    AFTER_WRITE,
    BEFORE_LEDGER,
    AFTER_LEDGER,
    *(f"{_REMOVAL}{point}" for point in (BEFORE_WRITE, AFTER_WRITE, BEFORE_LEDGER)),
)
SWALLOWED = 1  # the micro-batch that no sink gets


class _Enough(Exception):
    """Ends the first query."""


def faults(plan: Plan) -> None:
    """Makes the faults, lets the test read what they left, and then kills the repairs.

    Each pipeline loses a micro-batch, and doubles its first one where the plan says so; an audit tells.

    For the latter a query writes the first micro-batch before another one, on a fresh checkpoint, reads from the start.
    One of its micro-batches does not reach the hook.
    """
    spark = _session(plan)

    def once(hook: Callable[[DataFrame, int], None], frame: DataFrame, batch_id: int) -> None:
        if batch_id:
            raise _Enough
        hook(frame, batch_id)

    def swallowing(hook: Callable[[DataFrame, int], None], frame: DataFrame, batch_id: int) -> None:
        if batch_id != SWALLOWED:
            hook(frame, batch_id)

    _run(spark, plan, once, plan.doubled)
    shutil.rmtree(Path(plan.project) / plan.checkpoints)
    _run(spark, plan, swallowing)
    _audit(spark, plan)
    goes_on(plan).touch()
    while goes_on(plan).exists():
        time.sleep(0.05)
    kill(plan)


def kill(plan: Plan) -> None:
    """Repairs every pipeline that has a point until each stands at its own, and ends by SIGKILL."""
    spark, stops = _session(plan), Stops(plan)
    for name in plan.stop_at:
        stops.batch[name] = 0
        thread = threading.Thread(target=_repair, args=(spark, plan, stops, name), daemon=True)
        thread.start()
        deadline = time.monotonic() + plan.within
        while not stops.all_stand() and name in stops.missing() and thread.is_alive():
            assert time.monotonic() < deadline, f"{name} does not reach {plan.stop_at[name]}"
            time.sleep(0.05)
        assert thread.is_alive(), f"the repair of {name} ended before {plan.stop_at[name]}"
    kill_all(spark, stops)


def finish(plan: Plan) -> None:
    """The queries of every second pipeline go on; all are repaired, all go on; then the audit."""
    spark, stops = _session(plan), Stops(plan)
    _run(spark, plan, names=plan.pipelines[::2])
    for name in plan.pipelines:
        for done in _repair(spark, plan, stops, name):
            assert not done.incomplete, done.incomplete
        again = _repair(spark, plan, stops, name)
        assert not any(done.entries for done in again), "a second repair found something to do"
    _run(spark, plan)
    _audit(spark, plan)


def _repair(spark: SparkSession, plan: Plan, stops: Stops, name: str) -> list[Repaired]:
    """Repairs the sinks of a pipeline one after another; the points are those of the last one."""
    project = _project(plan.project)
    sinks = [sink.name for sink in project.find_pipeline(name).sinks]

    def failpoint(point: str, stamp: ReconStamp) -> None:
        if stamp.sink == sinks[-1]:
            stops.reached(name, f"{_REMOVAL}{point}" if stamp.epoch == REMOVALS else point)

    def held(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return parsed(frame.filter(F.udf(held_up(str(stops.mark(name))), "boolean")("_source_partition")))

    holds = plan.stop_at.get(name) == "during"
    repaired = []
    for sink in sinks:
        done = repair(
            project,
            name,
            sink,
            transform=held if holds else parsed,
            other_transform=holds,
            spark=spark,
            failpoint=failpoint,
        )
        _say(f"{sink}: finished {done.finished}, offsets {done.offsets}, rows {done.rows}, removed {done.removed}")
        repaired.append(done)
    return repaired


def _run(
    spark: SparkSession,
    plan: Plan,
    around: Callable[[Callable[[DataFrame, int], None], DataFrame, int], None] = lambda hook, *batch: hook(*batch),
    names: Sequence[str] | None = None,
) -> None:
    """Reads the topic to its end with the query of each pipeline; `around` calls the hook, or does not."""
    queries = [_query(spark, plan, name, around) for name in (plan.pipelines if names is None else names)]
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if _Enough.__name__ not in str(error):
                raise
    _say(f"{len(queries)} queries ended")


def _query(
    spark: SparkSession,
    plan: Plan,
    name: str,
    around: Callable[[Callable[[DataFrame, int], None], DataFrame, int], None],
) -> StreamingQuery:
    project = _project(plan.project)
    hook = recon.foreach_batch(project, pipeline=name, transform=parsed)
    return (
        recon.read_kafka(spark, project, name, startingOffsets="earliest", maxOffsetsPerTrigger=plan.per_trigger)
        .writeStream.queryName(name)
        .foreachBatch(lambda frame, batch_id: around(hook, frame, batch_id))
        .option("checkpointLocation", str(Path(plan.project) / plan.checkpoints / name))
        .trigger(availableNow=True)
        .start()
    )


@lru_cache
def _project(folder: str) -> Project:
    return load(folder)


def _audit(spark: SparkSession, plan: Plan) -> None:
    """An audit of the project, in this process, for the test to read."""
    run_results.write(recon.run_audit(_project(plan.project), spark=spark), audit_of(plan))
    _say("audited")


def audit_of(plan: Plan) -> Path:
    """The results of the audit of a start."""
    return Path(plan.project) / f"audit-{plan.start}.json"


def goes_on(plan: Plan) -> Path:
    """The file that a start makes when its faults are there; it goes on when the test has removed it."""
    return Path(f"{plan.hits}.{plan.start}.faults")


if __name__ == "__main__":
    {"faults": faults, "kill": kill, "finish": finish}[sys.argv[1]](Plan.read(Path(sys.argv[2])))
    sys.stdout.flush()
