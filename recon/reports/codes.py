"""What each finding's code means, in plain words: the legend of every report."""

from __future__ import annotations

from collections.abc import Mapping

from recon.model import Code

MEANINGS: Mapping[Code, str] = {
    Code.EMPTY: "A micro-batch that carried no rows: its ranges are empty, or hold only transaction markers.",
    Code.CLOSED: "A partition or topic was deleted after everything in it had been read.",
    Code.INFLIGHT: "Records that are not read or not finished yet: the next micro-batch is expected to take them.",
    Code.EXPLAINED: "Offsets without a row, every one of them explained: transaction markers, aborted "
    "transactions, compaction, a filter or quarantine.",
    Code.REPLAYED: "A micro-batch was tried again after an interruption and landed exactly once.",
    Code.NEW_EPOCH: "The checkpoint began a new life: batch ids started over, or the query has a new id.",
    Code.LEDGER_MISSING: "The sink holds a commit that the ledger has no entry for; the command "
    "recon ledger rebuild restores it from what the sink remembers.",
    Code.REBUILT: "A ledger entry that was restored from the sink's own record, such as the Delta log.",
    Code.METRIC_UNRELIABLE: "A commit's own metrics contradict the files it added; the files were believed.",
    Code.ATTESTED_ONLY: "The sink has no record of the write (cleaned up, or none was kept): the ledger attests it, "
    "and nothing independent does. Or the query keeps state: Spark's own counts alone say that every offset was read.",
    Code.UNSTAMPED: "A commit changed data and carries no mark of recon: somebody else wrote to the table.",
    Code.REPEATED: "Rows are in the sink more than once, as its guarantee (at-least-once) allows after a crash.",
    Code.UNUSUAL: "A figure far from the table's own history (median and median absolute deviation).",
    Code.LAG: "Unread records are older than the limit that was set.",
    Code.TOPIC_ID_UNKNOWN: "No broker answered when the micro-batch was written, so a re-created topic would "
    "not be noticed by its id.",
    Code.RETENTION_NEAR: "Evidence will be cleaned up before the next audit is due.",
    Code.GAP: "Offsets that no micro-batch delivered to the sink.",
    Code.LOSS: "Records are gone: the partition or topic was deleted before they were read.",
    Code.LOSS_RETENTION: "Kafka deleted records before they were read; they cannot be read any more.",
    Code.OVERLAP: "The same offsets were read by more than one micro-batch.",
    Code.DUPLICATE: "The same record or key is in the sink more than once.",
    Code.PARTIAL: "A micro-batch is in the sink in part only.",
    Code.PHANTOM_ROWS: "Rows in the sink come from transactions that Kafka aborted.",
    Code.RECREATED: "The topic was deleted and created again: the same offsets now mean other records.",
    Code.STALLED: "A micro-batch was planned long ago and has not been finished.",
    Code.LOSS_AHEAD: "Kafka will delete records that are not read yet, within the time that was set.",
    Code.LEDGER_ORPHAN: "The ledger claims a write that the sink has no commit for.",
    Code.SKIPPED: "Delta skipped a write in silence, because its transaction id had been used before.",
    Code.MUTATED: "Audited rows were changed afterwards: DELETE, UPDATE, RESTORE or an overwrite.",
    Code.TAMPERED: "A ledger entry was edited or removed: the chain of hashes does not hold.",
    Code.NONDETERMINISTIC: "A replay of the same offsets wrote other rows than the first attempt.",
    Code.VIOLATION: "Rows break a data test: a key occurs twice, a value is missing or not an accepted one.",
    Code.INCONCLUSIVE: "No witness could answer; this is neither a pass nor a fail.",
}
