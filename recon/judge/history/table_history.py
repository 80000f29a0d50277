"""A Delta table's history: what each commit did to rows, and which commits still count."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from typing_extensions import override

from recon.model import DeltaCommit, DeltaWitness, EntryHead, KnownTable, LedgerSlice, Unstamped, Witnesses, known
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Spans
from recon.model.once import once
from recon.model.proof import OpenFinding
from recon.model.wire.columns import SOURCE_OFFSET
from recon.model.wire.stamp import reads_any_of
from recon.model.wire.values import loads, mapping, text

# Predicates that say "every row", as Spark and delta-rs write them.
_EVERY_ROW = {"", "[]", '["true"]', '["(true)"]', "true"}
_REWRITES = ("OPTIMIZE", "REORG")  # what only writes rows into other files, by Delta's names


@dataclass(frozen=True, kw_only=True)
class TableVersion(SinkMemory):
    """The sink's Delta or Iceberg table, and the version up to which its commits were judged."""

    name: ClassVar[str] = "table_version"
    table_id: str | None
    version: int | None

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        table = audit.witnesses.table_log
        return cls(table_id=table.table_id, version=table.last) if table is not None else None


@dataclass(frozen=True)
class Alive:
    """Which versions still act on the newest one: a RESTORE undoes all between its target and itself.

    `versions` holds those among the commits read; every version up to `floor`, before them, counts as well.
    """

    versions: frozenset[int]
    floor: int

    def __contains__(self, version: int) -> bool:
        return version <= self.floor or version in self.versions


def alive(delta: DeltaWitness) -> Alive:
    """Which versions still act; found once for all checks that see this log."""
    return once(delta, alive, lambda: _alive(delta))


def _alive(delta: DeltaWitness) -> Alive:
    """The table's own word, or a walk back from the newest version that jumps over what each RESTORE undid."""
    if delta.line is not None:
        return Alive(delta.line, min(delta.line, default=0) - 1)
    lowest = min(delta.commits, default=0)
    at = max(delta.commits, default=-1)
    versions = set()
    while at >= lowest:
        commit = delta.commits.get(at)
        target = restored_version(commit) if commit is not None else None
        versions.add(at)
        at = at - 1 if target is None or target >= at else target
    return Alive(frozenset(versions), at)


def is_undone(delta: DeltaWitness, version: int) -> bool:
    """Whether a RESTORE or a rollback undid a version that was read, or that the table says it gave out."""
    return delta.undone(version) or (version in delta.commits and version not in alive(delta))


def is_restore(commit: DeltaCommit) -> bool:
    """Whether the commit put an older version in place of the newest."""
    return commit.is_restore


def restores(delta: DeltaWitness) -> Sequence[int]:
    """The versions of the RESTOREs that still act and undid rows; found once for all checks that see this log."""
    return once(delta, restores, lambda: [*_restores(delta)])


def _restores(delta: DeltaWitness) -> Iterator[int]:
    for version, commit in sorted(delta.commits.items()):
        if is_restore(commit) and version in alive(delta) and not _undid_no_rows(delta, commit):
            yield version


def _undid_no_rows(delta: DeltaWitness, restore: DeltaCommit) -> bool:
    """Whether a RESTORE undid nothing but other RESTOREs, and commits that changed no data."""
    target = restored_version(restore)
    if target is None:
        return False
    undone = [delta.commits.get(version) for version in range(target + 1, restore.version)]
    return all(one is not None and (is_restore(one) or not one.data_change) for one in undone)


def restored_version(commit: DeltaCommit) -> int | None:
    """The version a RESTORE went back to; None for another operation, or when only a timestamp was given."""
    return commit.restored_version


def others(delta: DeltaWitness, ledger: LedgerSlice) -> Sequence[DeltaCommit]:
    """The commits of the period that changed data, still count, and are not of this pipeline's sink.

    Another program made them, or another pipeline of recon's. Those of a pipeline that reads other topics are left
    out as long as they only append: they have no offset in common with ours. A ledger that is known from its first
    entry on may follow rows of others, and double them. They are looked for once for all checks.
    """
    return once(ledger, others, lambda: tuple(_others(delta, ledger)), delta)


def _others(delta: DeltaWitness, ledger: LedgerSlice) -> Iterator[DeltaCommit]:
    # What was in the table before recon observed its query, no verdict speaks of.
    whole = ledger.complete and not ledger.heads[0].is_observed
    first = -1 if whole else first_version(delta, ledger)
    topics = {name for _, name, _ in ledger.ranges.topics}
    still = alive(delta)
    offsets_since = _offsets_since(delta, still)
    for version, commit in sorted(delta.commits.items()):
        if version <= first or version not in still or not commit.data_change or is_restore(commit):
            continue
        if version < offsets_since and not commit.files_removed:
            continue
        stamp = commit.stamp
        if version in delta.unstamped or (stamp is not None and stamp.is_of(ledger.pipeline, ledger.sink)):
            continue
        apart = stamp is not None and not reads_any_of(stamp.offsets_text, topics)
        if not apart or commit.files_removed:
            yield commit


def _offsets_since(delta: DeltaWitness, still: Alive) -> int:
    """The version that added the column with the source offset, as the hook does to a table that was written before.

    Rows of earlier commits carry no offset that another row could double. -1 where the log shows no such commit.
    """
    added = (v for v, c in sorted(delta.commits.items()) if v in still and SOURCE_OFFSET in _added_columns(c))
    return next(added, -1)


def _added_columns(commit: DeltaCommit) -> Collection[str]:
    """The names of the columns that a commit added to the table (ALTER TABLE … ADD COLUMNS)."""
    if commit.operation.upper() != "ADD COLUMNS":
        return ()
    try:
        return {text(mapping(added)["column"]["name"]) for added in loads(text(commit.operation_parameters["columns"]))}
    except (KeyError, TypeError, ValueError):
        return ()  # of another form than Spark's: nothing is known of it


def unseen(delta: DeltaWitness, after: int = -1, before: int | None = None) -> Sequence[DeltaCommit]:
    """The micro-batches between two versions, both excluded, that Spark's own sink wrote and nobody saw in time.

    What they read is not known.
    """
    return [
        delta.commits[version]
        for version, why in sorted(delta.unstamped.items())
        if why is Unstamped.UNSEEN and version > after and (before is None or version < before)
    ]


def in_this_table(head: EntryHead, delta: DeltaWitness) -> bool:
    """Whether an entry's commit is in the table that is there: versions begin anew in a table that is made anew.

    An entry that does not know its table's id, as a restored one, is taken for one of this table. REPLACE TABLE gives
    a table another id, and its log goes on.
    """
    if None in (head.sink_table_id, delta.table_id) or head.sink_table_id == delta.table_id:
        return True
    commit = None if head.sink_version is None else delta.commits.get(head.sink_version)
    stamp = commit.stamp if commit is not None else None
    return stamp is not None and (stamp.epoch, stamp.batch_id) == (head.epoch, head.batch_id)


def claimed_in(delta: DeltaWitness, ledger: LedgerSlice) -> Mapping[int, EntryHead]:
    """The versions of this table that entries claim, each with the newest entry that does."""
    heads = ledger.heads
    return {h.sink_version: h for h in heads if h.sink_version is not None and in_this_table(h, delta)}


def first_version(delta: DeltaWitness, ledger: LedgerSlice) -> int:
    """The lowest version of this table that entries claim; -1 where entries claim versions of a former one."""
    if any(not in_this_table(head, delta) for head in ledger.heads):
        return -1
    return min(claimed_in(delta, ledger), default=delta.last or 0)


def changes_rows(commit: DeltaCommit) -> bool:
    """Whether a commit that is no write of recon's changed rows: DELETE, UPDATE, MERGE, overwrite and the like."""
    return commit.stamp is None and removes_rows(commit)


def removes_rows(commit: DeltaCommit) -> bool:
    """Whether a commit took rows out of the table, or put others in their place."""
    if not commit.data_change or is_restore(commit) or not commit.files_removed:
        return False
    if commit.is_merge:
        counts = [commit.metric(name) for name in ("numTargetRowsDeleted", "numTargetRowsUpdated")]
        return any(count != 0 for count in counts)  # an unknown count is not taken for none
    return True


def loses_rows(commit: DeltaCommit) -> bool:
    """Whether a commit that says of itself that it only writes the same rows into other files wrote fewer of them."""
    added, removed = _rewrote(commit) or (None, None)
    return added is not None and removed is not None and added < removed


def other_count(commit: DeltaCommit) -> bool:
    """Whether such a commit wrote fewer rows, or more."""
    added, removed = _rewrote(commit) or (None, None)
    return added is not None and removed is not None and added != removed


def may_swap_rows(commit: DeltaCommit) -> bool:
    """Whether nothing shows that such a commit wrote the same rows: it is none of what is known to do so.

    Of an Iceberg table all are of one operation; where it has delete files, numbers of rows show nothing.
    """
    rewrote = _rewrote(commit)
    if rewrote is None:
        return False
    return None in rewrote if commit.operation == "REPLACE" else not commit.operation.upper().startswith(_REWRITES)


def _rewrote(commit: DeltaCommit) -> tuple[int | None, int | None] | None:
    return None if commit.stamp is not None or is_restore(commit) else commit.rewrote


def wipes(commit: DeltaCommit) -> bool:
    """Whether the commit removed every row that was there, whatever it put in their place."""
    operation, parameters = commit.operation.upper(), commit.operation_parameters
    if not changes_rows(commit):
        return False
    if commit.left_nothing is not None:
        return commit.left_nothing
    if operation.startswith("TRUNCATE") or "REPLACE TABLE" in operation:
        return True
    every_row = _text(parameters, "predicate") in _EVERY_ROW
    if operation.startswith("DELETE"):
        return every_row
    dynamic = _text(parameters, "isDynamicPartitionOverwrite") == "true"
    return _text(parameters, "mode") == "overwrite" and every_row and not dynamic


def rows_lost(commit: DeltaCommit) -> int | None:
    """How many rows the commit took away on balance; None when neither metrics nor statistics say so."""
    operation = commit.operation.upper()
    if operation.startswith("UPDATE"):
        return 0
    named = {"DELETE": ("numDeletedRows", "num_deleted_rows"), "MERGE": ("numTargetRowsDeleted",)}
    for name in named.get(operation.split(" ")[0], ()):
        count = commit.metric(name)
        if count is not None:
            return count
    added, removed = commit.rewrote or (commit.rows_added, commit.rows_removed)
    return None if added is None or removed is None else max(removed - added, 0)


def _text(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name)
    return "" if value is None else str(value).strip().lower()


def known_table(witnesses: Witnesses) -> KnownTable | None:
    """The judged sink's table, as its proof knows it; as an earlier audit read it, where nothing is proved yet.

    Where there is a proof, it alone is asked: an audit that did not advance it may have read another table since, or
    counted rows of which it proved nothing. Where there is none, that audit may be one of a part of the ledger.
    """
    proof, judged, previous = witnesses.proof, witnesses.memory(TableVersion), known(witnesses.previous)
    if proof is None or judged is None or judged.table_id is None or judged.version is None:
        return None if previous is None else previous.tables.get(witnesses.sink or "")
    return KnownTable(table_id=judged.table_id, version=judged.version, read_at=proof.at, position=proof.position)


def is_another(delta: DeltaWitness, known: KnownTable | None) -> bool:
    """Whether the table is not the one that an earlier audit read: it has another id."""
    return known is not None and delta.table_id is not None and delta.table_id != known.table_id


def judged_since(witnesses: Witnesses, ledger: LedgerSlice, delta: DeltaWitness) -> int:
    """The version up to which earlier audits looked; -1 when the slice begins at the chain's first entry.

    Entries before those that are judged may claim versions of a table that was there before this one, or that an older
    copy lacks which was put in its place: no audit looked further than the proof says.
    """
    if ledger.complete:
        return -1
    # A release or a repair may stand behind micro-batches that are still to be recorded.
    anchors = [head for head in ledger.heads[: ledger.anchors] if head.is_micro_batch]
    judged = [h.sink_version for h in anchors if h.sink_version is not None and in_this_table(h, delta)]
    former = any(not in_this_table(head, delta) for head in ledger.heads[: ledger.anchors])
    since = max(judged) if judged else -1 if former else min(claimed_in(delta, ledger), default=-1)
    known = known_table(witnesses)
    if known is None:
        return since
    put_back = delta.last is not None and delta.last < known.version
    return -1 if put_back or is_another(delta, known) else min(since, known.version)


def told_gone(ledger: LedgerSlice, witnesses: Witnesses) -> frozenset[int]:
    """The entries of which findings that are open or accepted name all offsets as gone with their commits.

    They are looked for once for all checks.
    """
    proof = witnesses.proofs.of_sink.get(ledger.sink)
    return once(ledger, told_gone, lambda: _told_gone(ledger, proof.open if proof is not None else ()), proof)


def _told_gone(ledger: LedgerSlice, open_: Sequence[OpenFinding]) -> frozenset[int]:
    ranges, gone = ledger.ranges, [one for one in open_ if one.check == "delta_history" and one.is_loss and one.spans]
    if not gone:
        return frozenset()
    empty = ranges.start >= ranges.end
    told = empty.copy()
    for place, (_, topic, topic_id) in enumerate(ranges.topics):
        for partition in {one.finding.partition or 0 for one in gone}:
            mine = (one for one in gone if one.is_in(topic, partition) and one.finding.topic_id in (None, topic_id))
            for start, end in Spans.of(span for one in mine for span in one.spans):
                of_partition = (ranges.topic == place) & (ranges.partition == partition)
                told |= of_partition & (ranges.start >= start) & (ranges.end <= end)
    return frozenset(ranges.entry[~empty].tolist()) - frozenset(ranges.entry[~told].tolist())
