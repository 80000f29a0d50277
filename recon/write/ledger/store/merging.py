"""Only one process at a time merges the small files of a table.

delta-rs does not refuse a merge of files that another process merged meanwhile, and then every row is there twice
(1.6.6: a remove without data change is no conflict). It does refuse a commit whose app id another commit had meanwhile.
So a process that wants to merge makes a commit with `MERGE_APP_ID` first, and another one when it is done.

The version of the txn is twice the second (Unix time) at which the claim was made, plus 1; plus 2 when it is done. The
claim of a process that died is void after an hour.

The files that merges replaced are removed later: a stream of 10 s micro-batches leaves 8,640 small ones and 85 merged
ones a day. A process that wants to remove them makes a commit with `VACUUM_APP_ID` first, so that no other one does on
the same day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from recon.base.clock import utc_now
from recon.model.wire.app_ids import MERGE_APP_ID, VACUUM_APP_ID
from recon.write.ledger.store.base import BeingMerged
from recon.write.ledger.store.contention import again, deadline, others_wrote

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

_VOID_AFTER_S = 3600
_VACUUM_EVERY_S = 24 * 3600
_HELD = 1  # version of the txn where nothing is to be removed any more


@contextmanager
def claimed(table: DeltaTable, name: str) -> Iterator[None]:
    """Keeps other processes from merging the table's files.

    Args:
        table: as it is now.
        name: the table in messages.

    Raises:
        BeingMerged: another process has a claim, or made one at the same moment.
        CommitFailedError: others wrote the table at the same moment.
    """
    from deltalake.exceptions import CommitFailedError

    known, now = table.transaction_version(MERGE_APP_ID) or 0, int(utc_now().timestamp())
    if known % 2 and abs(now - known // 2) < _VOID_AFTER_S:
        raise _being_merged(name)
    try:
        _commit(table, MERGE_APP_ID, 2 * now + 1)
    except CommitFailedError as error:
        if others_wrote(error):
            raise
        raise _being_merged(name) from error
    try:
        yield
    finally:
        # A claim that stays keeps others from merging for an hour.
        again(partial(_done, table, 2 * now + 2), CommitFailedError, deadline())


def _done(table: DeltaTable, version: int) -> None:
    table.update_incremental()
    _commit(table, MERGE_APP_ID, version)


def claims_vacuum(table: DeltaTable) -> bool:
    """Whether this process is to remove the files that merges replaced: none did so for a day, or does now.

    A clock that was ahead once does not keep the files for longer.

    Args:
        table: as it is now.
    """
    from deltalake.exceptions import CommitFailedError

    merged, last, now = (*map(table.transaction_version, (MERGE_APP_ID, VACUUM_APP_ID)), int(utc_now().timestamp()))
    if merged is None or last == _HELD or (last is not None and abs(now - last) < _VACUUM_EVERY_S):
        return False
    try:
        _commit(table, VACUUM_APP_ID, now)
    except CommitFailedError:
        return False
    return True


def hold_vacuum(table: DeltaTable) -> None:
    """Lets no process remove files of the table any more."""
    _commit(table, VACUUM_APP_ID, _HELD)


def _commit(table: DeltaTable, app_id: str, version: int) -> None:
    from deltalake import CommitProperties, Transaction

    mine = CommitProperties(app_transactions=[Transaction(app_id, version, None)])
    table.create_write_transaction(
        [], mode="append", schema=table.schema(), commit_properties=mine, post_commithook_properties=after_commit()
    )


def after_commit(*, clean: bool = False) -> PostCommitHookProperties:
    """What delta-rs does after a commit: without `clean` it does not look for expired log files.

    By default it does at every commit, by several listings of the log folder.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=clean)


def _being_merged(name: str) -> BeingMerged:
    return BeingMerged(
        f"small files of {name} are being merged by another process: run it again in a minute (a process that died "
        f"while it merged keeps others from it for {_VOID_AFTER_S // 60} minutes)"
    )
