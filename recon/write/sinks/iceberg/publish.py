"""Makes a staged branch the table: the one commit that decides whether a write took place.

Iceberg has no transaction identifier. In its place the table has a property with the number of the sink's newest write,
and the commit that publishes a write sets it. A catalog accepts such a commit only while `main` is the snapshot in
which the number was lower (Iceberg REST spec, "assert-ref-snapshot-id"). So of two drivers that have read the same
entries one publishes; the other finds its number taken, whatever happened to snapshots since.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING

from recon.base.errors import RefusedError, SinkError
from recon.model import ReconStamp
from recon.model.wire.iceberg import branch_name, branch_prefix, number_property
from recon.witness.iceberg import MAIN, IcebergTable, line, newest_number

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate, TableUpdate

_TRIES = 10  # commits that the catalog refuses though the table's rows are as they were
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Branch:
    """A branch for one attempt, and the snapshot of `main` that it begins with."""

    name: str
    base: int


def require_number(table: Table, stamp: ReconStamp) -> int:
    """The number of a write, which no write of the sink has taken.

    Raises:
        RefusedError: one has.
        SinkError: the write has no number.
    """
    if stamp.number is None:
        raise SinkError(f"{stamp.label} has no number, by which writes of this sink are told apart")
    newest = newest_number(table, stamp.pipeline, stamp.sink)
    if newest >= stamp.number:
        raise RefusedError(
            f"{stamp.label} was refused: {'.'.join(table.name())} already holds write {newest} of this sink, and this "
            f"driver had read it up to write {stamp.number - 1}; another driver wrote since, and nothing of this one's "
            "is in the table: stop one of them, then restart the other, which reads what was written",
            stamp.number,
        )
    return stamp.number


def new_branch(table: Table, stamp: ReconStamp) -> Branch:
    """Makes a branch that begins with the table's newest snapshot, and a first snapshot where it has none.

    Raises:
        RefusedError: the number of the write is taken.
    """
    from pyiceberg.exceptions import CommitFailedException

    name = branch_name(stamp.pipeline, stamp.sink, require_number(table, stamp))
    for _ in range(_TRIES):
        try:
            if table.current_snapshot() is None:
                with table.transaction() as transaction:
                    transaction.update_snapshot().fast_append().commit()
            newest = table.current_snapshot()
            assert newest is not None
            table.catalog.commit_table(table, (_is_at(name, None),), (_set_branch(name, newest.snapshot_id),))
        except CommitFailedException:  # another commit at the same moment
            sleep(_PAUSE_S)
            table.refresh()
            continue
        return Branch(name, newest.snapshot_id)
    raise _contention(table, stamp)


def staged(source: IcebergTable, branch: Branch, stamp: ReconStamp) -> Snapshot:
    """The snapshot that Spark has written to a branch.

    Raises:
        SinkError: pyiceberg does not find what Spark wrote.
    """
    table = source.find()
    newest = None if table is None else table.snapshot_by_name(branch.name)
    if newest is None or newest.snapshot_id == branch.base:
        raise SinkError(
            f"{stamp.label}: Spark wrote to a branch of {source.name}, and pyiceberg does not find it in the catalog "
            "that recon.yml names: let `catalog` of the sink and spark.sql.catalog."
            f"{source.catalog_name} of the session name one catalog; nothing of it was published"
        )
    return newest


def published(source: IcebergTable, branch: Branch, newest: Snapshot, stamp: ReconStamp) -> bool:
    """Makes the branch the table. False where others have committed to the table since: then it must be written anew.

    The same commit removes the branches that other attempts of the sink left behind.

    Raises:
        RefusedError: another driver has published this number.
        SinkError: the catalog goes on refusing the commit.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import (
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
    )

    for _ in range(_TRIES):
        table = source.find()
        if table is None:
            raise SinkError(f"{stamp.label}: {source.name} was dropped during the write; nothing of it was published")
        if any(snapshot.snapshot_id == newest.snapshot_id for snapshot in line(table)):
            return True  # an answer that got lost
        number = require_number(table, stamp)
        main = table.metadata.refs.get(MAIN)
        if main is None or main.snapshot_id != branch.base or branch.name not in table.metadata.refs:
            return False
        leftover = [name for name in table.metadata.refs if name.startswith(branch_prefix(stamp.pipeline, stamp.sink))]
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            _is_at(MAIN, branch.base),
            _is_at(branch.name, newest.snapshot_id),
        )
        updates: tuple[TableUpdate, ...] = (
            _set_branch(MAIN, newest.snapshot_id, main),
            SetPropertiesUpdate(updates={number_property(stamp.pipeline, stamp.sink): str(number)}),
            *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in leftover),
        )
        try:
            table.catalog.commit_table(table, requirements, updates)
        except CommitFailedException:
            sleep(_PAUSE_S)
            continue
        return True
    raise _contention(source.find(), stamp)


def _is_at(ref: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """The requirement that a branch is at a snapshot; None: that there is no such branch."""
    from pyiceberg.table.update import AssertRefSnapshotId

    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def _set_branch(ref: str, snapshot_id: int, before: SnapshotRef | None = None) -> SetSnapshotRefUpdate:
    """The update that puts a branch at a snapshot; what it said `before` about retention stays."""
    from pyiceberg.table.update import SetSnapshotRefUpdate

    kept = {} if before is None else before.model_dump(by_alias=True, exclude_none=True)
    return SetSnapshotRefUpdate.model_validate({**kept, "ref-name": ref, "type": "branch", "snapshot-id": snapshot_id})


def _contention(table: Table | None, stamp: ReconStamp) -> SinkError:
    name = "the table" if table is None else ".".join(table.name())
    return SinkError(
        f"{stamp.label}: the catalog refused {_TRIES} commits to {name} one after the other, because others came "
        "first each time; nothing of it was published: let fewer programs write to the table, then restart the query"
    )
