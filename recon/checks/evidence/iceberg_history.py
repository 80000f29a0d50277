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
    """

    test: ClassVar[str] = "iceberg_history"
