"""iceberg_history: every ledger entry has its snapshot, and no other snapshot changed audited rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recon.checks.evidence.delta_history import DeltaHistory


@dataclass(frozen=True, kw_only=True)
class IcebergHistory(DeltaHistory):
    """Every ledger entry has its Iceberg snapshot, with the same ranges and rows, and no later one changed them.

    What `delta_history` is to Delta tables, by the same rules: a snapshot is a commit, and its sequence number the
    version. The history is the line of snapshots from the newest one of `main` back over their parents. It needs the
    ledger and the table's metadata (pyiceberg, no Spark). Rows are counted by the snapshots' summaries; a MERGE of
    recon's own by its stamp.

    Args:
        history: as for `delta_history`.
        deviations: as for `delta_history`.
        factor: as for `delta_history`.

    Codes:
        LEDGER_ORPHAN: an entry whose snapshot was never there, or carries another stamp, other ranges or other row
            counts.
        DUPLICATE: two snapshots of the line carry one (epoch, batch_id).
        TAMPERED: where the whole chain is audited, a snapshot follows an entry that the ledger does not hold.
        LEDGER_MISSING: a stamped snapshot without an entry, which is not that of the micro-batch the query is in
            (warns); the next start of the query or `recon ledger rebuild` restores it.
        MUTATED: a snapshot that an entry claims is no longer in the line (`rollback_to_snapshot`,
            `set_current_snapshot`, CREATE OR REPLACE TABLE); a DELETE, an UPDATE, a MERGE or an overwrite after an
            audited snapshot, or a rewrite (`replace`) that wrote fewer rows than it took away, in a table without
            delete files. With it GAP: the ranges of every micro-batch that was undone whole; for a DELETE of some
            rows one GAP without offsets that says how many rows. MUTATED and GAP, too: a data file that the metadata
            names and the store no longer has; a table that was dropped and made anew (another id than the last audit
            read); fewer rows than the ledger accounts for, where snapshots that may have taken them are expired.
        UNSTAMPED: a snapshot of somebody else added rows (warns).
        METRIC_UNRELIABLE: a snapshot has no row counts; or snapshots are expired, and the rows of the table cannot be
            compared with the ledger's (warns): source_rows then reads the rows.
        ATTESTED_ONLY: the snapshot was expired, so the ledger alone attests the micro-batch (warns).
        RETENTION_NEAR: snapshots are expired, and are kept for less time than lies between audits, or since the begin
            of the period (warns).
        UNUSUAL: a micro-batch has far more or fewer rows than the others (warns).
        INCONCLUSIVE: the table's data files could not be looked for. In a sink that merges: snapshots are expired that
            no audit had read, so that rows which others took away by them, or by a rollback, are not noticed.
        EMPTY: entries without offsets, rows and snapshot; they explain and do not fail.

    Compaction (`rewrite_data_files`, `rewrite_manifests`), `expire_snapshots`, changes of schema or properties, and
    branches and tags change no rows of the table and are no findings.
    """

    test: ClassVar[str] = "iceberg_history"
