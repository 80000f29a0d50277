"""Counts the rows of quarantine tables, waiting and released, by reason and by micro-batch; needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recon.base.errors import EvidenceError
from recon.base.lazy import pa
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.checks.samples import Samples
from recon.model.wire.columns import BATCH_ID, EPOCH, ERASED, QUARANTINED_AT, REASONS, RELEASE, SOURCE_COLUMNS
from recon.project import Project
from recon.witness import delta_log
from recon.write.ledger import quarantined


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One sink's quarantine: numbers of waiting (`pending`) and of released rows, by reason and by micro-batch.

    A row with two reasons counts for both of them. `samples` are waiting rows, newest first, as the sink's `samples`
    and `never_show` let them be shown.
    """

    pipeline: str
    sink: str
    location: str
    pending: int
    released: int
    reasons: Sequence[Mapping[str, Any]]
    batches: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]


def summaries(
    project: Project,
    pipeline: str | None = None,
    sink: str | None = None,
    *,
    reason: str | None = None,
    limit: int = 5,
) -> list[Summary]:
    """The quarantine of every sink (or of those named) that has one.

    Args:
        project: a loaded recon.yml.
        pipeline: only this pipeline.
        sink: only this sink.
        reason: only rows that fail this check.
        limit: at most so many samples, and so many micro-batches, the newest.

    Raises:
        EvidenceError: a quarantine table cannot be read.
    """
    result = []
    for pipe in project.pipelines:
        for out in pipe.sinks:
            place = quarantined.location(project, pipe.name, out)
            if pipeline not in (None, pipe.name) or sink not in (None, out.name) or place is None:
                continue
            storage = Storage(place, project.storage_options)
            if quarantined.exists(storage):
                summary = _summary(pipe.name, out.name, storage, reason, limit)
                visible = Samples.of(project, out).shown(summary.samples, project.defaults_of(pipe, out))
                result.append(replace(summary, samples=visible))
    return result


def _summary(pipeline: str, sink: str, storage: Storage, reason: str | None, limit: int) -> Summary:
    from deltalake import QueryBuilder

    try:
        table = delta_log.open_table(storage)
        query = QueryBuilder().register("q", table)

        def run(sql: str) -> list[dict[str, Any]]:
            return list(pa.table(query.execute(sql)).to_pylist())

        counts = f"count(*) - count({RELEASE}) AS pending, count({RELEASE}) AS released"
        rows = f"FROM q WHERE {_has(reason)}"
        (total,) = run(f"SELECT {counts} {rows}")
        reasons = run(
            f"SELECT reason, {counts} FROM (SELECT unnest({REASONS}) AS reason, {RELEASE} {rows}) "
            "GROUP BY reason ORDER BY reason"
        )
        batches = run(
            f"SELECT {EPOCH} AS epoch, {BATCH_ID} AS batch_id, {counts} {rows} "
            f"GROUP BY 1, 2 ORDER BY 1 DESC, 2 DESC LIMIT {limit}"
        )
        columns = {field.name for field in table.schema().fields}
        order = ", ".join([EPOCH, BATCH_ID, *(name for name in SOURCE_COLUMNS if name in columns)])
        samples = run(f"SELECT * {rows} AND {RELEASE} IS NULL ORDER BY {QUARANTINED_AT} DESC, {order} LIMIT {limit}")
    except Exception as error:  # delta-rs and DataFusion raise many kinds
        raise EvidenceError(f"the quarantine table {storage.uri} cannot be read: {first_line(error)}") from error
    return Summary(
        pipeline=pipeline,
        sink=sink,
        location=storage.uri,
        pending=total["pending"],
        released=total["released"],
        reasons=reasons,
        batches=batches,
        samples=[{name: _readable(value) for name, value in row.items()} for row in samples],
    )


def _has(reason: str | None) -> str:
    kept = f"NOT coalesce(array_has({REASONS}, '{ERASED}'), false)"
    if reason is None:
        return kept
    return "{} AND array_has({}, '{}')".format(kept, REASONS, reason.replace("'", "''"))


def _readable(value: Any) -> Any:
    """Bytes as text where they are text; everything else as it is."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
