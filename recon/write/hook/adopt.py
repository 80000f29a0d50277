"""Takes over a stream that was written without recon until now.

The query goes on with the checkpoint that it has. If the query was stopped between a write and the commit of the
micro-batch, Spark gives this micro-batch to the hook. Its rows are in the table and must not be written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from recon.base.errors import NewEpochError, SinkError
from recon.base.text import plural
from recon.model import LedgerEntry
from recon.project import Pipeline, Project, Sink
from recon.write.hook.epochs import Batch
from recon.write.ledger import Ledger
from recon.write.observer import look
from recon.write.sinks import BatchSink

log = logging.getLogger("recon")
T = TypeVar("T")


def take_over(
    project: Project,
    pipeline: Pipeline,
    sink: Sink,
    writer: BatchSink,
    ledger: Ledger,
    front: LedgerEntry | None,
    batch: Batch,
) -> tuple[int, bool]:
    """Enters as `observed` what Spark's own sink wrote of this query and the ledger lacks, where that has to be known.

    It has to be known where the table has this micro-batch already, and where the ledger has observed micro-batches,
    which go on until this one. Without an entry yet, what was before this micro-batch stays unknown. What a function
    for foreachBatch wrote does not name the query: then nobody may have added rows since this micro-batch was planned.

    Args:
        project: a loaded recon.yml.
        pipeline: one of its pipelines.
        sink: the sink that recon writes from now on.
        writer: its writer.
        ledger: the project's.
        front: the entry of the sink that got furthest.
        batch: the first micro-batch that the hook is given.

    Returns:
        The newest batch_id of the query that Spark's own sink wrote, -1 for none, and whether entries were made.

    Raises:
        NewEpochError: somebody else added rows to the table after this micro-batch's plan, and the ledger is empty or
            ends with what a function of the user's wrote.
        EvidenceError: the table's log or the checkpoint cannot be read.
    """
    newest = writer.newest_native(batch.query_id)
    entered = front is not None and (front.query_id, front.batch_id) == (batch.query_id, batch.batch_id)
    if front is None or (front.is_observed and newest is None and not entered):
        _require_nobody_wrote(f"pipeline {pipeline.name}, sink {sink.name}", sink, writer, batch)
    if newest is None:
        return -1, False
    if len(pipeline.sinks) > 1 or not (newest >= batch.batch_id or (front is not None and front.is_observed)):
        return newest, False
    found = look(project, pipeline, ledger, _ask, from_batch=batch.batch_id if front is None else 0)
    if found.entered:
        log.warning(
            "pipeline %s, sink %s: %s that Spark's own sink had written entered in the ledger as observed, up to "
            "micro-batch %d",
            pipeline.name,
            sink.name,
            plural(len(found.entered), "micro-batch"),
            found.entered[-1].batch_id,
        )
    elif found.waits:
        log.warning("pipeline %s, sink %s: %s", pipeline.name, sink.name, found.waits)
    return newest, bool(found.entered)


def require_not_written(name: str, target: str, batch: Batch, newest: int | None) -> None:
    """Requires that Spark's own sink has not written a micro-batch that the ledger does not have.

    Raises:
        SinkError: it has, and what it wrote could not be entered.
    """
    if newest is not None and newest >= batch.batch_id:
        raise SinkError(
            f"{name}: Spark's own sink wrote micro-batch {batch.batch_id} of query {batch.query_id} into {target} "
            f"before recon took over (its txn is at {newest}), and no entry of it could be made: its rows would be "
            "there twice; restart the query once the broker answers, or begin a fresh checkpoint behind it "
            "(startingOffsets); nothing was written"
        )


def _require_nobody_wrote(name: str, sink: Sink, writer: BatchSink, batch: Batch) -> None:
    """Between the plan of the first micro-batch that the hook is given and the hook, nobody else adds rows."""
    if batch.planned_at is None or sink.rewrites:
        return
    commit = writer.added_since(batch.planned_at, apart_from=batch.query_id)
    if commit is None:
        return
    message = (
        f"{name}: micro-batch {batch.batch_id} was planned at {batch.planned_at:%Y-%m-%d %H:%M:%S} UTC, and version "
        f"{commit.version} ({commit.operation}) added rows to the table after that, without recon: where this query "
        f"wrote them before it was stopped, they would be there twice; then take them out (RESTORE TABLE … TO VERSION "
        f"AS OF {commit.version - 1}) and restart the query; where another program wrote them, accept it with "
        "`on_new_epoch: warn`"
    )
    if sink.on_new_epoch == "stop":
        raise NewEpochError(message)
    log.warning("%s", message)


def _ask(conf: Mapping[str, str], question: Callable[[], T]) -> T:
    return question()
