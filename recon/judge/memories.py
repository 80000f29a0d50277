"""All that is remembered of a sink from audit to audit, besides how far it was judged and what is open."""

from __future__ import annotations

from collections.abc import Mapping

from recon.judge.history.quarantine_log import QuarantineJudged
from recon.judge.history.record_history import OtherRows, TableJudged
from recon.judge.history.row_balance import CountedRows
from recon.judge.history.table_history import FormerEntries, JudgedDeletions, TableVersion
from recon.judge.kafka.clusters import KafkaClusters
from recon.judge.kafka.judged_logs import KafkaLogs
from recon.judge.row_counts import Filtered
from recon.judge.rows.foreign_rows import ForeignRows
from recon.judge.rows.surplus_rows import EarlierBatches
from recon.judge.source import WithoutRecord
from recon.model.memory import SinkAudit, SinkMemory

MEMORIES: tuple[type[SinkMemory], ...] = (
    EarlierBatches,
    Filtered,
    TableVersion,
    CountedRows,
    OtherRows,
    TableJudged,
    QuarantineJudged,
    ForeignRows,
    WithoutRecord,
    KafkaLogs,
    KafkaClusters,
    FormerEntries,
    JudgedDeletions,
)


def remembered(audit: SinkAudit, *, whole: bool) -> Mapping[type, SinkMemory]:
    """What is remembered after an audit, by its type; `whole` is whether every check was evaluated."""
    before = audit.before.memories if audit.before is not None else {}
    made = {kind: kind.after(before.get(kind), audit) for kind in MEMORIES if whole or kind.of_any_audit}
    return {kind: memory for kind, memory in {**before, **made}.items() if memory is not None}
