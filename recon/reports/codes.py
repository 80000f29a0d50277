"""What each code means, in one sentence: the legend of every report."""

from __future__ import annotations

from collections.abc import Mapping

from recon.model import Code

MEANINGS: Mapping[Code, str] = {
    Code.EMPTY: "A micro-batch without rows: its offset ranges are empty or hold only transaction markers.",
    Code.CLOSED: "A partition or topic was deleted after everything in it had been read.",
    Code.INFLIGHT: "Records that are unread, or belong to an open transaction: a later micro-batch should read them.",
    Code.EXPLAINED: "Offsets without a row, each with a reason: a transaction marker, an aborted transaction, "
    "compaction, a filter of the transform, or quarantine.",
    Code.REPLAYED: "A micro-batch was given to the hook again, as after an interruption, and is in the sink once.",
    Code.NEW_EPOCH: "The checkpoint was replaced: batch ids started over, or the query has a new id.",
    Code.REPAIRED: "An earlier audit refuted this, and now it is in order: the range was read after all, or the "
    "rows are there again.",
    Code.ACCEPTED: "A refutation, or an open question, that somebody accepted.",
    Code.ERASED: "Rows of a person were removed from quarantine, stored failures or samples on somebody's request.",
    Code.DELETED: "Rows of the sink were deleted by a commit that recon.yml names (deletes), and were old enough.",
    Code.UNWITNESSED: "Micro-batches ran before the ledger's first entry: no verdict speaks of them.",
    Code.STALE_CHECKPOINT: "The checkpoint is an older copy: it ends before the ledger does, and the next start reads "
    "offsets again.",
    Code.LEDGER_MISSING: "The sink has a commit that the ledger has no entry for; the command "
    "recon ledger rebuild restores the entry from the sink's own record.",
    Code.REBUILT: "A ledger entry that was restored from the sink's own record, such as the Delta log.",
    Code.METRIC_UNRELIABLE: "A commit's metrics contradict the files it added; recon used the files.",
    Code.ATTESTED_ONLY: "Only the ledger attests the write: the sink's own record was cleaned up or never kept. "
    "Or the query is stateful: only Spark's own counts attest that every offset was read.",
    Code.UNSTAMPED: "A commit without recon's stamp changed data: another program wrote to the table.",
    Code.REPEATED: "Rows are in the sink more than once, as its guarantee (at-least-once) allows after a crash.",
    Code.UNUSUAL: "A figure far from the table's history (by median and median absolute deviation).",
    Code.LAG: "Unread records are older than the configured limit.",
    Code.TOPIC_ID_UNKNOWN: "No broker answered while the micro-batch was written: recon could not record the "
    "topic's id, and would not notice a re-created topic by it.",
    Code.RETENTION_NEAR: "Evidence will be deleted before the next audit is due.",
    Code.VIOLATION_WARN: "Rows violate a data test, as far as recon.yml only wants a warning.",
    Code.GAP: "Offsets that no micro-batch delivered to the sink.",
    Code.LOSS: "Records are lost: their partition or topic was deleted before they were read.",
    Code.LOSS_RETENTION: "Kafka deleted records before they were read; they cannot be read any more.",
    Code.OVERLAP: "The same offsets were read by more than one micro-batch.",
    Code.DUPLICATE: "The same record or key is in the sink more than once.",
    Code.PARTIAL: "Only a part of a micro-batch is in the sink.",
    Code.PHANTOM_ROWS: "Rows in the sink come from transactions that Kafka aborted.",
    Code.RECREATED: "The topic was deleted and created again, or is another cluster's: offsets name other records.",
    Code.STALLED: "A planned micro-batch, or unread records, have waited longer than the configured limit.",
    Code.LOSS_AHEAD: "Kafka will delete unread records within the configured time.",
    Code.LEDGER_ORPHAN: "The ledger has an entry for a write that the sink has no commit for.",
    Code.SKIPPED: "Delta skipped a write without an error, because its transaction id had been used before.",
    Code.MUTATED: "DELETE, UPDATE, RESTORE, an overwrite or a removed file changed rows after recon had audited them.",
    Code.TAMPERED: "A ledger entry was edited or removed: the hash chain is broken, or contradicts a signed head.",
    Code.NONDETERMINISTIC: "A replay of the same offsets produced other rows than the first attempt.",
    Code.VIOLATION: "Rows violate a data test: a key occurs twice, or a value is missing or not accepted.",
    Code.INCONCLUSIVE: "No witness could answer: this is neither a pass nor a failure.",
}
