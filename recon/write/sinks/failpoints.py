"""Failpoints: the named moments of a micro-batch at which a test may end the process.

The hook and its sink call a function at each of these moments, with the moment's name and the micro-batch's stamp. By
default it does nothing; that of the crash tests and the demo kills the process.
"""

from __future__ import annotations

from collections.abc import Callable

from recon.model import ReconStamp

Failpoint = Callable[[str, ReconStamp], None]

# Every sink, in this order.
BEFORE_WRITE = "before_write"  # stamped and checked; nothing is written
AFTER_WRITE = "after_write"  # the sink has committed and recon has confirmed it; failing rows are not in quarantine yet
BEFORE_LEDGER = "before_ledger"  # failing rows are in quarantine, too; there is no ledger entry
AFTER_LEDGER = "after_ledger"  # the ledger entry is there

# Delta MERGE.
REDUCED = "reduced"  # one row per key; nothing is merged
TABLE_CREATED = "table_created"

# Iceberg.
BRANCH_CREATED = "branch_created"  # the branch of this attempt is there, without the micro-batch
BRANCH_WRITTEN = "branch_written"  # the branch holds the micro-batch, stamped
MERGED = "merged"  # of a MERGE: the branch holds the micro-batch, not its stamp
PUBLISHED = "published"  # the branch is the table

# Databases.
STAGE_CREATED = "stage_created"  # the staging table is there, and empty
STAGED = "staged"  # the staging table holds the micro-batch
TRANSACTION_OPEN = "transaction_open"  # recon_ledger has the uncommitted entry
BEFORE_COMMIT = "before_commit"
COMMITTED = "committed"

# Files.
FILES_WRITTEN = "files_written"
MANIFEST_WRITTEN = "manifest_written"

# Kafka.
PLANNED = "planned"  # the plan is in the marker topic
TASKS_COMMITTED = "tasks_committed"  # every task's transaction is committed
PRODUCED = "produced"  # of a repair: its records are in the topic, and its transaction is open
MARKED = "marked"  # the batch marker is in the marker topic


def no_failpoint(point: str, stamp: ReconStamp) -> None:
    """Does nothing: the default."""
