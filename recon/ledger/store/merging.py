"""Only one process at a time merges the small files of a table.

delta-rs does not refuse a merge of files that another process merged meanwhile (1.6.6: a remove without data change is
no conflict), and then every row of them is there twice. It does refuse a commit whose app id another commit had
meanwhile: a process that wants to merge makes a commit with `MERGE_APP_ID` first, and another one when it is done.

The version of the txn is twice the second (Unix time) at which the claim was made, plus 1; plus 2 when it is done. The
claim of a process that died is void after an hour.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from recon.ledger.store.base import BeingMerged
from recon.model.wire.app_ids import MERGE_APP_ID

if TYPE_CHECKING:
    from deltalake import DeltaTable

VOID_AFTER_S = 3600


@contextmanager
def claimed(table: DeltaTable, name: str) -> Iterator[None]:
    """Keeps other processes from merging the table's files.

    Args:
        table: as it is now.
        name: the table in messages.

    Raises:
        BeingMerged: another process has a claim, or made one at the same moment.
    """
    from deltalake.exceptions import CommitFailedError

    known, now = table.transaction_version(MERGE_APP_ID) or 0, int(time.time())
    if known % 2 and abs(now - known // 2) < VOID_AFTER_S:
        raise _being_merged(name)
    try:
        _commit(table, 2 * now + 1)
    except CommitFailedError as error:
        raise _being_merged(name) from error
    try:
        yield
    finally:
        table.update_incremental()
        _commit(table, 2 * now + 2)


def _commit(table: DeltaTable, version: int) -> None:
    from deltalake import CommitProperties, Transaction

    mine = CommitProperties(app_transactions=[Transaction(MERGE_APP_ID, version, None)])
    table.create_write_transaction([], mode="append", schema=table.schema(), commit_properties=mine)


def _being_merged(name: str) -> BeingMerged:
    return BeingMerged(
        f"small files of {name} are being merged by another process: run it again in a minute (a process that died "
        f"while it merged keeps others from it for {VOID_AFTER_S // 60} minutes)"
    )
