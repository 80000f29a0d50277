"""Makes the ledger entry of one write of a sink: of a micro-batch, of a release, or of a commit that had no entry."""

from __future__ import annotations

from datetime import datetime

from recon._version import __version__
from recon.base.clock import utc_now
from recon.model import CountedRows, EntryStatus, LedgerEntry, ReconStamp
from recon.model.offsets import OffsetSpan
from recon.project import Sink


def new_entry(
    stamp: ReconStamp,
    sink: Sink,
    status: EntryStatus,
    *,
    target: str,
    offsets: tuple[OffsetSpan, ...],
    read: int | None,
    written: int | None,
    quarantined: int | None,
    filtered: int | None,
    version: int | None,
    started_at: datetime,
    attempt: int = 1,
    guarantee: str | None = None,
    spark_version: str | None = None,
    fingerprint: str | None = None,
    fingerprint_read: int | None = None,
    returned: CountedRows | None = None,
    given: CountedRows | None = None,
    removed: int | None = None,
    transform: str | None = None,
    isolation_level: str | None = None,
    kafka_state: str | None = None,
    sink_table_id: str | None = None,
) -> LedgerEntry:
    """The entry of a write, not chained yet; `committed_at` is now. The arguments are the fields of LedgerEntry.

    `read`, `written`, `quarantined`, `filtered` and `removed` are rows, None where unknown; `guarantee` is the sink's
    by default.
    `fingerprint_read`, `returned` and `given` are what was counted during the write; `isolation_level`, `kafka_state`
    and `sink_table_id` what Spark, the broker and the table said. None where they did not.
    """
    return LedgerEntry(
        pipeline=stamp.pipeline,
        sink=stamp.sink,
        sequence=0,
        sink_kind=sink.kind,
        target=target,
        guarantee=guarantee or sink.guarantee,
        query_id=stamp.query_id,
        run_id=stamp.run_id,
        epoch=stamp.epoch,
        batch_id=stamp.batch_id,
        attempt=attempt,
        status=status,
        offsets=offsets,
        rows_read=read,
        rows_written=written,
        rows_quarantined=quarantined,
        rows_filtered=filtered,
        rows_returned=None if returned is None else returned.rows,
        rows_given=None if given is None else given.rows,
        fingerprint_read=fingerprint_read,
        fingerprint_returned=None if returned is None else returned.fingerprint,
        fingerprint_given=None if given is None else given.fingerprint,
        rows_removed=removed,
        isolation_level=isolation_level,
        kafka_state=kafka_state,
        sink_table_id=sink_table_id,
        sink_version=version,
        started_at=started_at,
        committed_at=utc_now(),
        spark_version=spark_version,
        recon_version=__version__,
        checks_fingerprint=fingerprint,
        transform=transform,
        by=stamp.by,
        reason=stamp.reason,
        files_digest=stamp.files_digest,
        prev_hash="",
        entry_hash="",
    )
