"""A table's history: whose its commits are, which still count, what they did to rows, and what is no longer known."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Self

from typing_extensions import override

from recon.base.lazy import np
from recon.base.text import plural
from recon.judge.history.declared_deletions import (
    Known,
    Offsets,
    Question,
    Stored,
    StoredDeletion,
    declared_for,
    judged,
    offsets_of,
    question_of,
    read_by,
    stored,
    united,
    without,
)
from recon.judge.history.sink_history import (
    Claim,
    Number,
    Repeated,
    SinkHistory,
    entry_may_follow,
    looked_at_all,
    number_of,
)
from recon.model import (
    AuditTime,
    CheckpointWitness,
    Code,
    DataFile,
    EntryHead,
    KnownTable,
    LedgerSlice,
    OtherWriter,
    PreviousAudit,
    ReconStamp,
    SinkCommit,
    TableCommit,
    TableLog,
    Unavailable,
    Unstamped,
    Witnesses,
    known,
)
from recon.model.deletion import DeclaredDeletion, Deletion
from recon.model.evidence import SeenDeletions
from recon.model.memory import SinkAudit, SinkMemory
from recon.model.offsets import Spans
from recon.model.once import kept
from recon.model.proof import OpenFinding, SinkProof, memory_of
from recon.model.wire.columns import SOURCE_OFFSET
from recon.model.wire.stamp import reads_any_of
from recon.model.wire.values import loads, mapping, text

# Predicates that say "every row", as Spark and delta-rs write them.
_EVERY_ROW = {"", "[]", '["true"]', '["(true)"]', "true"}
_NOTHING_READ = SeenDeletions()
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


@dataclass(frozen=True, kw_only=True)
class FormerEntries(SinkMemory):
    """The entries, by sequence, that an audit knew to be of a table which was there before this one.

    It told of them. Their rows may be in this table all the same, as a copy has them.
    """

    name: ClassVar[str] = "former_entries"
    table_id: str
    first: int
    last: int

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        table = audit.witnesses.table_log
        if table is None or table.table_id is None:
            return before
        told = [*_former(table, audit)]
        if before is not None and before.table_id == table.table_id:
            told += [before.first, before.last]
        return cls(table_id=table.table_id, first=min(told), last=max(told)) if told else None


def _former(table: TableLog, audit: SinkAudit) -> Iterator[int]:
    """The entries, by sequence, of a former table of which an audit told."""
    history = TableHistory(log=table, ledger=audit.ledger)
    if any(result.check == "delta_history" for result in audit.results):
        yield from (head.sequence for head in history.heads if not history.in_this_table(head))


@dataclass(frozen=True, kw_only=True)
class JudgedDeletions(SinkMemory):
    """The declared deletions of a table whose rows were read.

    `shown` are those that the log still had, so that a RESTORE may undo them. `offsets` are those that earlier ones
    deleted as declared, and `counts` their versions, each with its number of rows.
    """

    name: ClassVar[str] = "declared_deletions"
    table_id: str | None
    shown: tuple[StoredDeletion, ...] = ()
    offsets: Stored = ()
    counts: tuple[tuple[int, int], ...] = ()

    @override
    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        history = history_of(audit.witnesses, audit.ledger)
        if history is None or not (history.deletions or before):
            return before
        known = history.deletions_before
        settled, counts = ([known.settled], dict(known.counts)) if known is not None else ([], {})
        shown: list[StoredDeletion] = []
        for deletion in history.deletions.values():
            if deletion.unknown:
                continue  # it is asked for again
            if not history.is_cleaned_up(deletion.version):
                shown.append(StoredDeletion.of(deletion))
            elif deletion.is_lawful:
                settled.append(deletion.inside)
                counts[deletion.version] = deletion.rows or 0
        offsets = stored(united(settled))
        ends = tuple(sorted(counts.items()))
        return cls(table_id=history.log.table_id, shown=tuple(shown), offsets=offsets, counts=ends)

    @property
    def settled(self) -> Offsets:
        """`offsets`, as the judge has them."""
        return offsets_of(self.offsets)

    def between(self, since: int, before: int) -> tuple[int, int]:
        """How many of the commits between two versions, both excluded, were lawful, and how many rows they deleted."""
        lawful = {(of.version, of.rows or 0) for of in self.shown if of.deletion.is_lawful}
        rows = [rows for version, rows in lawful | {*self.counts} if since < version < before]
        return len(rows), sum(rows)


@dataclass(frozen=True, eq=False)
class TableHistory(SinkHistory):
    """What happened to a Delta or Iceberg table, as its log tells one who knows the ledger and the audit before.

    Attributes:
        log: the commits that the table still shows.
        pipeline: whose writes are recon's own, with `sink`.
        sink: the sink; its other writers are others.
        ledger: the entries that claim commits; none for one who asks the log alone.
        proof: the state that earlier audits left.
        previous: what the last audit recorded.
        declared: the deletions that recon.yml declares.
        looked_at: what was read of these.
        columns_named: whether recon.yml names the columns in which rows of an observed query have their source.
    """

    log: TableLog
    pipeline: str = ""
    sink: str | None = None
    ledger: LedgerSlice = field(default_factory=LedgerSlice.empty)
    proof: SinkProof | None = None
    previous: PreviousAudit | None = None
    columns_named: bool = False
    declared: tuple[DeclaredDeletion, ...] = ()
    looked_at: SeenDeletions = field(default_factory=SeenDeletions)

    # -- which commits still count -----------------------------------------------------------------------------------

    @cached_property
    def commits(self) -> Sequence[TableCommit]:
        """The commits of the log, by version."""
        return [commit for _, commit in sorted(self.log.commits.items())]

    @cached_property
    def _line(self) -> tuple[frozenset[int], int]:
        """The versions that the newest one descends from, of those read, and the last before them, up to which all do.

        The table's own word, or a walk back from the newest version that jumps over what each RESTORE undid.
        """
        log = self.log
        if log.line is not None:
            return log.line, min(log.line, default=0) - 1
        return self._line_of(max(log.commits, default=-1))

    def _line_of(self, version: int) -> tuple[frozenset[int], int]:
        """The same of a version, by a walk back from it."""
        at, lowest, versions = version, min(self.log.commits, default=0), set[int]()
        while at >= lowest:
            commit = self.log.commits.get(at)
            target = commit.restored_version if commit is not None else None
            versions.add(at)
            at = at - 1 if target is None or target >= at else target
        return frozenset(versions), at

    def stands(self, version: int) -> bool:
        """Whether a version still acts on the newest one: a RESTORE undoes all between its target and itself."""
        versions, floor = self._line
        return version <= floor or version in versions

    @cached_property
    def acting(self) -> Sequence[TableCommit]:
        """The commits that still count, by version."""
        return [commit for commit in self.commits if self.stands(commit.version)]

    @cached_property
    def first_shown(self) -> int | None:
        """The first version from which on every commit was read; None where none was."""
        version, log = self.log.last, self.log
        if version is None or version not in log.commits:
            return None
        if log.line is not None:
            return min(log.line)
        while version - 1 in log.commits:
            version -= 1
        return version

    def is_cleaned_up(self, version: int | None) -> bool:
        """Whether the log no longer has the commits of that time."""
        first = self.log.first_retained
        return version is not None and first is not None and version < first

    def is_beyond(self, version: int | None) -> bool:
        """Whether the log does not reach to a version, or there is none."""
        return version is None or self.log.last is None or version > self.log.last

    def is_undone(self, version: int) -> bool:
        """Whether a RESTORE or a rollback undid a version that was read, or that the table says it gave out."""
        return self.log.undone(version) or (version in self.log.commits and not self.stands(version))

    def restored_over(self, versions: Collection[int]) -> TableCommit | None:
        """The last RESTORE that it took to undo all of these versions; None where not all are known to be undone."""
        if self.log.line is not None:
            return None
        undid = [self._undid(version) for version in versions]
        return max((c for c in undid if c is not None), key=lambda c: c.version, default=None) if all(undid) else None

    def _undid(self, version: int) -> TableCommit | None:
        """The RESTORE that still acts and that undid a version."""
        reaching = ((commit, commit.restored_version) for commit in self.acting)
        return next((c for c, target in reaching if target is not None and target < version < c.version), None)

    @cached_property
    def restores(self) -> Sequence[int]:
        """The versions of the RESTOREs that still act, but for those that undid other pipelines' commits alone."""
        return [commit.version for commit in self.acting if commit.is_restore and self._may_undo_own(commit)]

    def _may_undo_own(self, restore: TableCommit) -> bool:
        target = restore.restored_version
        return target is None or not self._are_apart(range(target + 1, restore.version))

    # -- recon's own writes ------------------------------------------------------------------------------------------

    def is_own(self, commit: TableCommit) -> bool:
        """Whether recon made a commit for the sink."""
        return commit.stamp is not None and commit.stamp.is_of(self.pipeline, self.sink)

    def writer_of(self, commit: TableCommit) -> OtherWriter | None:
        """The other pipeline of recon.yml that made a commit, where recon does not know what was read into it."""
        return next((of for of in self.log.other_writers if commit.version in of.unstamped), None)

    def is_apart(self, commit: TableCommit) -> bool:
        """Whether another pipeline of recon's made a commit, and reads other topics: it has none of our offsets."""
        if commit.stamp is not None:
            return not self.is_own(commit) and not reads_any_of(commit.stamp.offsets_text, self._topics)
        writer = self.writer_of(commit)
        return writer is not None and writer.topics is not None and writer.topics.isdisjoint(self._topics)

    def commits_before(self, version: int) -> Sequence[TableCommit]:
        """The commits before a version, without those that are apart."""
        return [commit for commit in self.commits if commit.version < version and not self.is_apart(commit)]

    def shows_all_before(self, version: int) -> bool:
        """Whether the log still shows every commit before a version."""
        return sum(of < version for of in self.log.commits) >= version

    @cached_property
    def of_no_pipeline(self) -> Sequence[TableCommit]:
        """The commits of which neither recon nor a pipeline of recon.yml is known to be the writer."""
        return [commit for commit in self.commits if commit.stamp is None and self.writer_of(commit) is None]

    def _are_apart(self, versions: Iterable[int]) -> bool:
        shown = [self.log.commits.get(version) for version in versions]
        return all(commit is not None and self.is_apart(commit) for commit in shown)

    def spares_own(self, commit: TableCommit) -> bool:
        """Whether all rows of the files that a commit removed are known to be of pipelines that read other topics."""
        return bool(commit.removed_rows_of) and self._are_apart(commit.removed_rows_of or ())

    @property
    def files_gone(self) -> Sequence[DataFile] | Unavailable:
        """The data files that are gone, without those whose topic other pipelines of recon.yml alone read."""
        gone, earlier = self.log.files_gone, self.proof.coverage if self.proof is not None else ()
        if isinstance(gone, Unavailable):
            return gone
        theirs = {topic for of in self.log.other_writers for topic in of.topics or ()}
        theirs -= {*self._topics, *(covered.topic for covered in earlier)}
        return [file for file in gone if file.topic not in theirs]

    @cached_property
    def other_writers(self) -> Collection[str]:
        """The other pipelines of recon's that write the table, as recon.yml or the log says."""
        stamps = (commit.stamp for commit in self.commits if commit.stamp is not None and not self.is_own(commit))
        return {stamp.pipeline for stamp in stamps} | {of.pipeline for of in self.log.other_writers}

    @cached_property
    def own(self) -> Sequence[tuple[TableCommit, ReconStamp]]:
        """The commits that recon made for the sink, by version."""
        return [(commit, commit.stamp) for commit in self.commits if commit.stamp is not None and self.is_own(commit)]

    @cached_property
    @override
    def own_writes(self) -> Sequence[SinkCommit]:
        return [as_write(commit, stamp) for commit, stamp in self.own]

    @cached_property
    def standing(self) -> Mapping[tuple[int, int], Sequence[int]]:
        """The versions in which recon wrote rows that stand, by (epoch, batch_id)."""
        versions: dict[tuple[int, int], list[int]] = {}
        for commit, stamp in self.own:
            if commit.data_change and commit.rows_taken != 0 and self.stands(commit.version):
                versions.setdefault((stamp.epoch, stamp.batch_id), []).append(commit.version)
        return versions

    @cached_property
    def committed_again(self) -> Mapping[tuple[int, int], Sequence[int]]:
        """The same of each (epoch, batch_id) that several commits are of."""
        return {number: several for number, several in self.standing.items() if len(several) > 1}

    @cached_property
    def appends(self) -> Mapping[tuple[int | None, int, int], TableCommit]:
        """The commits of the sink that added all rows of their files, by (version, epoch, batch_id).

        The versions of a table that was made anew are those of other micro-batches.
        """
        return {(c.version, stamp.epoch, stamp.batch_id): c for c, stamp in self.own if not c.is_merge}

    def unseen(self, after: int = -1, before: int | None = None) -> Sequence[TableCommit]:
        """The micro-batches between two versions, both excluded, that Spark's own sink wrote and nobody saw in time.

        What they read is not known.
        """
        return [
            self.log.commits[version]
            for version, why in sorted(self.log.unstamped.items())
            if why is Unstamped.UNSEEN and version > after and (before is None or version < before)
        ]

    # -- what the entries claim --------------------------------------------------------------------------------------

    @override
    def shown(self, entry: int) -> Claim:
        head, log = self.heads[entry], self.log
        version, commit = head.sink_version, self.commit_of(head)
        if version is not None and log.undone(version):
            return Claim(Code.MUTATED)  # reported with what was rolled back
        if commit is not None:
            other = self._other_write(entry, commit)
            reason = other or _other_rows(head, commit)
            return Claim(Code.LEDGER_ORPHAN if reason else None, reason, is_there=not other)
        if head.rows_written == 0 and self.width[entry] == 0:
            return Claim(Code.EMPTY)
        if self.is_beyond(version):
            reason = f"the ledger claims version {version} of {log.location}, whose log ends at version {log.last}"
            return Claim(Code.LEDGER_ORPHAN, reason)
        # Versions that are missing in between are reported once for all.
        return Claim(Code.ATTESTED_ONLY if self.is_cleaned_up(version) else Code.INCONCLUSIVE)

    def _other_write(self, entry: int, commit: TableCommit) -> str:
        """Why the commit that an entry claims is another write's; "" where it is the entry's own."""
        head, stamp = self.heads[entry], commit.stamp
        claimed = f"version {commit.version}, which the ledger claims,"
        if stamp is None:
            return f"{claimed} has no stamp ({commit.operation})"
        if number_of(stamp) != number_of(head) or not stamp.is_of(self.pipeline, self.sink):
            return f"{claimed} is a write of {stamp.label}"
        return "" if self.has_ranges_of(entry, stamp) else f"{claimed} has other offset ranges"

    @override
    def repeated(self) -> Iterator[Repeated]:
        for number, write in self.newest.items():
            versions = {*self.standing.get(number, ())}
            # A version that entries claim counts, though its log is no longer read, or it has no rows; one that a
            # RESTORE undid does not.
            versions |= {version for version in self._claimed_by.get(number, ()) if versions and self.stands(version)}
            is_known = (write.version or 0) <= self.looked_up_to
            if len(versions) > 1 and not is_known and not self._is_cleaned(write.stamp, max(versions)):
                yield Repeated([write.stamp] * len(versions), sorted(versions))

    @cached_property
    def _claimed_by(self) -> Mapping[Number, set[int]]:
        """The versions of this table that entries claim, by (epoch, batch_id)."""
        claimed: dict[Number, set[int]] = {}
        heads = ((h.epoch, h.batch_id, h.sink_version) for h in self.heads if self.in_this_table(h))
        for epoch, batch_id, version in (*heads, *self.ledger.recorded):
            commit = self.log.commits.get(version) if version is not None else None
            stamp = commit.stamp if commit is not None else None
            if version is not None and (stamp is None or number_of(stamp) == (epoch, batch_id)):
                claimed.setdefault((epoch, batch_id), set()).add(version)
        return claimed

    def _is_cleaned(self, stamp: ReconStamp, version: int) -> bool:
        """Whether repairs looked at every offset of a write after a version, and removed the doubled rows."""
        removals = {i: head.sink_version or 0 for i, head in enumerate(self.heads) if head.is_removal}
        later = [i for i, removal in removals.items() if removal > version and self.stands(removal)]
        return looked_at_all([span for i in later for span in self.ledger.ranges.of(i)], stamp)

    @override
    def is_in_progress(self, write: SinkCommit, now: datetime, checkpoint: CheckpointWitness | None) -> bool:
        """Nor is it once a later commit took rows away: which of them were of this write must be judged at once."""
        later = (commit for commit in self.commits if commit.version > (write.version or 0))
        in_progress = super().is_in_progress(write, now, checkpoint)
        return in_progress and not any(c.is_restore or removes_rows(c) for c in later)

    @override
    def _is_asked(self, write: SinkCommit, time: AuditTime, checkpoint: CheckpointWitness | None) -> bool:
        version = write.version or 0
        if version <= self.looked_up_to or write.at > time.now:
            return False
        # The entry comes a moment after the commit.
        may_follow = version > self.last_entered and entry_may_follow(write, time)
        return not may_follow and not self.is_in_progress(write, time.now, checkpoint)

    def commit_of(self, head: EntryHead) -> TableCommit | None:
        """What the log has under the version that an entry claims."""
        return None if head.sink_version is None else self.log.commits.get(head.sink_version)

    def in_this_table(self, head: EntryHead) -> bool:
        """Whether an entry's commit is in the table that is there: versions begin anew in a table that is made anew.

        An entry that does not know its table's id, as a restored one, is taken for one of this table. REPLACE TABLE
        gives a table another id, and its log goes on.
        """
        if None in (head.sink_table_id, self.log.table_id) or head.sink_table_id == self.log.table_id:
            return True
        commit = self.commit_of(head)
        stamp = commit.stamp if commit is not None else None
        return stamp is not None and number_of(stamp) == number_of(head)

    @cached_property
    def has_former(self) -> bool:
        """Whether entries claim versions of a table that was there before."""
        return any(not self.in_this_table(head) for head in self.heads)

    @cached_property
    def claimed(self) -> Mapping[int, EntryHead]:
        """The versions of this table that entries claim, each with the newest entry that does."""
        return {h.sink_version: h for h in self.heads if h.sink_version is not None and self.in_this_table(h)}

    @cached_property
    def last_entered(self) -> int:
        """The highest version that an entry has, of whatever table; -1 where none has one."""
        return max((head.sink_version for head in self.heads if head.sink_version is not None), default=-1)

    @cached_property
    def first_claimed(self) -> int:
        """The lowest version of this table that entries claim; -1 where entries claim versions of a former one."""
        return -1 if self.has_former else min(self.claimed, default=self.log.last or 0)

    # -- what earlier audits know ------------------------------------------------------------------------------------

    @cached_property
    def known(self) -> KnownTable | None:
        """The table as its proof knows it; as an earlier audit read it, where nothing is proved yet.

        Where there is a proof, it alone is asked: an audit that did not advance it may have read another table since,
        or counted rows of which it proved nothing. Where there is none, that audit may be one of a part of the ledger.
        """
        judged, proof = memory_of(self.proof, TableVersion), self.proof
        if proof is None or judged is None or judged.table_id is None or judged.version is None:
            return None if self.previous is None else self.previous.tables.get(self.sink or "")
        return KnownTable(table_id=judged.table_id, version=judged.version, read_at=proof.at, position=proof.position)

    @property
    def is_another(self) -> bool:
        """Whether the table is not the one that an earlier audit read: it has another id."""
        return self.known is not None and self.log.table_id not in (None, self.known.table_id)

    @property
    def is_put_back(self) -> bool:
        """Whether the log ends before the version that an earlier audit read: an older copy is in its place."""
        return self.known is not None and self.log.last is not None and self.log.last < self.known.version

    @property
    def known_version(self) -> int:
        """The newest version of this table that an earlier audit read; -1 where none did."""
        return -1 if self.known is None or self.is_another else self.known.version

    @cached_property
    def looked_up_to(self) -> int:
        """The version up to which earlier audits looked; -1 when the slice begins at the chain's first entry.

        Entries before those that are judged may claim versions of a table that was there before this one, or that an
        older copy lacks which was put in its place: no audit looked further than the proof says.
        """
        if self.is_complete or self.is_another or self.is_put_back:
            return -1
        return self._claimed_before if self.known is None else min(self._claimed_before, self.known.version)

    @property
    def _claimed_before(self) -> int:
        """The newest version that a micro-batch before the period claims; the first of all where none does."""
        # A release or a repair may stand behind micro-batches that are still to be recorded.
        here = [h.sink_version for h in self.anchors if h.is_micro_batch and self.in_this_table(h)]
        if judged := [version for version in here if version is not None]:
            return max(judged)
        return min(self.claimed, default=-1) if all(map(self.in_this_table, self.anchors)) else -1

    @cached_property
    def told_gone(self) -> frozenset[int]:
        """The entries that an audit told of as gone with their commits.

        Findings that are open or accepted name all of their offsets, or they were of a former table.
        """
        open_ = self.proof.open if self.proof is not None else ()
        gone = [found for found in open_ if found.check == "delta_history" and found.is_loss and found.spans]
        named = _told_gone(self.ledger, gone) if gone else frozenset()
        return named | {i for i, head in enumerate(self.heads) if self._was_told(head)}

    def _was_told(self, head: EntryHead) -> bool:
        """Whether an audit told of an entry as of a table that was there before this one."""
        former = memory_of(self.proof, FormerEntries)
        if former is None or former.table_id != self.log.table_id:
            return False
        return former.first <= head.sequence <= former.last and not self.in_this_table(head)

    # -- deletions that recon.yml declares ----------------------------------------------------------------------------

    @cached_property
    def deletions(self) -> Mapping[int, Deletion]:
        """What is known of each declared deletion that still counts, by version."""
        of_sink = Known(self.ledger, self.proof) if self._named else None
        found = {of.version: of.deletion for of in self._judged_before}
        for version, (commit, declared) in self._named.items():
            if of_sink is not None:
                found[version] = judged(commit, declared, self.looked_at, of_sink)
        return dict(sorted(found.items()))

    @property
    def questions(self) -> Sequence[Question]:
        """What has to be read to judge those that no earlier audit judged."""
        return [question_of(commit, declared) for commit, declared in self._named.values()]

    @cached_property
    def _named(self) -> Mapping[int, tuple[TableCommit, DeclaredDeletion]]:
        """The commits that count, that a declaration names, and that no earlier audit judged."""
        before = {of.version for of in self._judged_before}
        commits = (commit for commit in self._perhaps_declared if commit.version not in before)
        found = ((commit, declared_for(commit, self.declared)) for commit in commits)
        return {commit.version: (commit, declared) for commit, declared in found if declared is not None}

    @property
    def _perhaps_declared(self) -> Sequence[TableCommit]:
        """The commits that this audit looks at; none where recon.yml declares no deletion."""
        first = self._first_of_others
        first = first if self.is_complete else min(first, self.looked_up_to)
        acting = self.acting if self.declared else ()
        return [commit for commit in acting if commit.version > first or commit.version in self._acting_again]

    @cached_property
    def deletions_before(self) -> JudgedDeletions | None:
        """What earlier audits know of declared deletions in this table."""
        memory = memory_of(self.proof, JudgedDeletions)
        return memory if memory is not None and memory.table_id == self.log.table_id else None

    @cached_property
    def _judged_before(self) -> Sequence[StoredDeletion]:
        """Those that earlier audits judged and no RESTORE undid since."""
        shown = self.deletions_before.shown if self.deletions_before is not None else ()
        commits = self.log.commits
        return [
            of
            for of in shown
            if self.stands(of.version) and (of.version not in commits or commits[of.version].timestamp == of.at)
        ]

    @property
    def judged_deletions(self) -> Sequence[Deletion]:
        """Those whose commits are among `judged`."""
        return [self.deletions[commit.version] for commit in self.judged if commit.version in self.deletions]

    def is_lawful(self, commit: TableCommit) -> bool:
        """Whether a commit deleted nothing but what recon.yml declares, so that it took no row that is missing."""
        deletion = self.deletions.get(commit.version)
        return deletion is not None and deletion.is_lawful

    @cached_property
    def as_declared(self) -> Offsets:
        """The offsets whose rows were deleted as declared, and that no entry wrote again since."""
        before = self.deletions_before
        found = [self._not_written_since(version, of.inside) for version, of in self.deletions.items()]
        if before is not None and before.counts:
            found.append(self._not_written_since(before.counts[-1][0], before.settled))
        return united(found)

    def outside_of(self, deletion: Deletion) -> tuple[Offsets, Offsets]:
        """The offsets of younger rows that a deletion took, and of rows of no known age; written again by no entry."""
        young, ageless = (self._not_written_since(deletion.version, of) for of in (deletion.young, deletion.ageless))
        return young, ageless

    def _not_written_since(self, version: int, offsets: Offsets) -> Offsets:
        later = np.array([(head.sink_version or 0) > version for head in self.heads] or [False], np.bool_)
        if not offsets or not later.any():
            return offsets
        ranges = self.ledger.ranges
        return without(offsets, read_by(ranges.take(later[ranges.entry]), offsets))

    # -- what others did, and what was taken away --------------------------------------------------------------------

    @cached_property
    def others(self) -> Sequence[TableCommit]:
        """The commits of the period that changed data, still count, and are not of this pipeline's sink.

        Another program made them, or another pipeline of recon's. Those of a pipeline that reads other topics are left
        out as long as they only append: they have no offset in common with ours. A ledger that is known from its first
        entry on may follow rows of others, and double them.
        """
        first = self._first_of_others
        return [c for c in self.acting if c.version > first and self._may_meet_own(c) and not self.is_lawful(c)]

    @property
    def _first_of_others(self) -> int:
        """The version behind which commits of others count."""
        observed = any(head.is_observed for head in self.heads[:1])
        return -1 if self.is_complete and (self._compares_earlier or not observed) else self.first_claimed

    @property
    def _compares_earlier(self) -> bool:
        """Whether this audit is the first to compare what was there before recon observed the query.

        It does where recon.yml names the columns that say which record a row is of.
        """
        return self.columns_named and not self.ledger.anchors and not (self.proof and self.proof.position)

    def _may_meet_own(self, commit: TableCommit) -> bool:
        """Whether a commit is of others, and may have rows of our offsets, or have taken some away."""
        if not commit.data_change or commit.is_restore or commit.version in self.log.unstamped or self.is_own(commit):
            return False
        if commit.files_removed and self.spares_own(commit):
            return commit.adds_rows and not self.is_apart(commit)
        return bool(commit.files_removed) or (commit.version >= self._offsets_since and not self.is_apart(commit))

    @cached_property
    def _topics(self) -> Collection[str]:
        return {name for _, name, _ in self.ledger.ranges.topics}

    @cached_property
    def _offsets_since(self) -> int:
        """The version that added the column with the source offset, as the hook does to a table that others wrote.

        Rows of earlier commits carry no offset that another row could double. -1 where the log shows no such commit.
        """
        return next((commit.version for commit in self.acting if SOURCE_OFFSET in _added_columns(commit)), -1)

    @cached_property
    def judged(self) -> Sequence[TableCommit]:
        """The commits that still count behind those that earlier audits judged, or behind the first claimed one.

        Those that count again are judged again.
        """
        first = self.first_claimed if self.is_complete else self.looked_up_to
        return [commit for commit in self.acting if commit.version > first or commit.version in self._acting_again]

    @cached_property
    def _acting_again(self) -> Collection[int]:
        """The versions that a RESTORE had undone when the audit before looked, and that a later one brought back."""
        if self.is_complete or self.log.line is not None:
            return ()
        acted, floor = self._line_of(self.looked_up_to)
        return {c.version for c in self.acting if floor < c.version <= self.looked_up_to} - acted

    @cached_property
    def removals(self) -> Sequence[TableCommit]:
        """Judged commits of others that took rows of the sink away, or put others in their place, or may have.

        What a declaration names is judged by it.
        """
        others = (commit for commit in self.judged if commit.version not in self.deletions)
        changing = (commit for commit in others if changes_rows(commit) or loses_rows(commit))
        return [commit for commit in changing if not self.spares_own(commit)]

    @cached_property
    def own_removals(self) -> Sequence[TableCommit]:
        """Those that took rows of this sink: all, unless other pipelines write the table and may have had the rows."""
        mine = {commit.version for commit, _ in self.own} | self.log.unstamped.keys()
        return [
            commit
            for commit in self.removals
            if not self.other_writers
            or wipes(commit)
            or (commit.removed_rows_of is not None and commit.removed_rows_of <= mine)
        ]

    @cached_property
    def doubtful_removals(self) -> Sequence[TableCommit]:
        """The others: the log does not tell whose rows they took. What was said of them by a proof is said."""
        certain = {commit.version for commit in self.own_removals}
        judged = self.known_version if self.proof is not None else -1
        return [
            c
            for c in self.removals
            if c.version not in certain and (c.version > judged or c.version in self._acting_again)
        ]

    @cached_property
    def written(self) -> Mapping[int, EntryHead | ReconStamp]:
        """The versions that wrote rows of the sink: those of the entries, and of earlier ones as the log shows them.

        A RESTORE may have undone all that the entries of this audit wrote, and some of what is older than these.
        """
        earlier = {} if self.is_complete else {commit.version: stamp for commit, stamp in self.own}
        return {**earlier, **self.claimed}

    @cached_property
    def oldest_standing(self) -> float:
        """The lowest version whose rows may stand: older than the entries, and than the log that was read, perhaps."""
        here = not self.is_another and not self.has_former
        if here and not self.is_complete and self._line[1] >= 0:
            return -1
        return min((version for version in self.written if self.stands(version)), default=math.inf)

    @property
    def rolled_back(self) -> Sequence[int]:
        """Claimed versions that the newest one does not descend from; a rollback makes no commit of its own."""
        return [version for version in sorted(self.claimed) if self.log.undone(version)]

    @property
    def gone(self) -> Collection[int]:
        """Claimed versions of which all rows are gone: undone, rolled back, or wiped by a later commit."""
        wiped_by = max((c.version for c in self.removals if wipes(c) and rows_lost(c) != 0), default=-1)
        shown = self.claimed.keys() & self.log.commits.keys()
        return {v for v in shown if v < wiped_by or not self.stands(v)} | {*self.rolled_back}

    @property
    def strangers(self) -> Sequence[TableCommit]:
        """Judged commits that only added rows, and that neither recon nor a pipeline of recon.yml made."""
        judged = {commit.version for commit in self.judged} - self.log.unstamped.keys()
        nobodys = (commit for commit in self.of_no_pipeline if commit.version in judged)
        return [c for c in nobodys if c.data_change and not (c.is_restore or changes_rows(c))]


def history_of(seen: Witnesses, ledger: LedgerSlice) -> TableHistory | None:
    """What happened to the judged sink's table, as these entries know it; None where it is none, or was not read."""
    if seen.table_log is None:
        return None
    sink = seen.sink or ""
    declared, looked_at = seen.deletes.get(sink, ()), seen.deletions.get(sink, _NOTHING_READ)
    return _of(ledger, seen.table_log, seen.proof, known(seen.previous), bool(seen.source_columns), declared, looked_at)


@kept
def _of(
    ledger: LedgerSlice,
    log: TableLog,
    proof: SinkProof | None,
    previous: PreviousAudit | None,
    columns_named: bool,
    declared: tuple[DeclaredDeletion, ...],
    looked_at: SeenDeletions,
) -> TableHistory:
    of_sink = (log, ledger.pipeline, ledger.sink, ledger, proof, previous, columns_named)
    return TableHistory(*of_sink, declared=declared, looked_at=looked_at)


def as_write(commit: TableCommit, stamp: ReconStamp) -> SinkCommit:
    """A commit as every sink's own record has its writes."""
    return SinkCommit(version=commit.version, stamp=stamp, rows=commit.rows_taken, at=commit.timestamp)


def _other_rows(head: EntryHead, commit: TableCommit) -> str:
    """How a commit has other rows than its entry; "" where it has the same, or does not say.

    Of a repair's removal of doubled rows those that it took away count as well.
    """
    if head.is_removal:
        counts = (commit.metric("numTargetRowsDeleted"), commit.metric("numTargetRowsInserted"))
        entered = (head.rows_removed, head.rows_written)
        if commit.is_merge and not commit.metric("numTargetRowsUpdated") and None not in counts and counts == entered:
            return ""
        return (
            f"the ledger claims {entered[0]} rows removed and {entered[1]} put back, and version {commit.version} "
            f"({commit.operation}) says {counts[0]} and {counts[1]}"
        )
    rows = commit.rows_taken
    if rows is None or head.rows_written in (None, rows, reported(commit)):
        return ""
    return f"the ledger claims {head.rows_written:,} rows and version {commit.version} holds {rows:,}"


def reported(commit: TableCommit) -> int | None:
    """The rows of a write by its metrics, which a retried stage may inflate."""
    return commit.metric("numOutputRows") if commit.operation.upper().startswith("WRITE") else None


def _added_columns(commit: TableCommit) -> Collection[str]:
    """The names of the columns that a commit added to the table (ALTER TABLE … ADD COLUMNS)."""
    if commit.operation.upper() != "ADD COLUMNS":
        return ()
    try:
        return {text(mapping(added)["column"]["name"]) for added in loads(text(commit.operation_parameters["columns"]))}
    except (KeyError, TypeError, ValueError):
        return ()  # of another form than Spark's: nothing is known of it


def changes_rows(commit: TableCommit) -> bool:
    """Whether a commit that is no write of recon's changed rows: DELETE, UPDATE, MERGE, overwrite and the like."""
    return commit.stamp is None and removes_rows(commit)


def removes_rows(commit: TableCommit) -> bool:
    """Whether a commit took rows out of the table, or put others in their place."""
    if not commit.data_change or commit.is_restore or not commit.files_removed:
        return False
    if commit.is_merge:
        counts = [commit.metric(name) for name in ("numTargetRowsDeleted", "numTargetRowsUpdated")]
        return any(count != 0 for count in counts)  # an unknown count is not taken for none
    return True


def loses_rows(commit: TableCommit) -> bool:
    """Whether a commit that says of itself that it only writes the same rows into other files wrote fewer of them."""
    added, removed = _rewrote(commit) or (None, None)
    return added is not None and removed is not None and added < removed


def other_count(commit: TableCommit) -> bool:
    """Whether such a commit wrote fewer rows, or more."""
    added, removed = _rewrote(commit) or (None, None)
    return added is not None and removed is not None and added != removed


def may_swap_rows(commit: TableCommit) -> bool:
    """Whether nothing shows that such a commit wrote the same rows: it is none of what is known to do so.

    Of an Iceberg table all are of one operation; where it has delete files, numbers of rows show nothing.
    """
    rewrote = _rewrote(commit)
    if rewrote is None:
        return False
    return None in rewrote if commit.operation == "REPLACE" else not commit.operation.upper().startswith(_REWRITES)


def _rewrote(commit: TableCommit) -> tuple[int | None, int | None] | None:
    return None if commit.stamp is not None or commit.is_restore else commit.rewrote


def wipes(commit: TableCommit) -> bool:
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


def rows_lost(commit: TableCommit) -> int | None:
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


def rows_in_all(counts: Iterable[int | None]) -> str:
    """How many rows these are together, in a sentence."""
    counts = list(counts)
    known_counts = [count for count in counts if count is not None]
    return plural(sum(known_counts), "row") if len(known_counts) == len(counts) else "an unknown number of rows"


def _text(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name)
    return "" if value is None else str(value).strip().lower()


def _told_gone(ledger: LedgerSlice, gone: Sequence[OpenFinding]) -> frozenset[int]:
    ranges = ledger.ranges
    empty = ranges.start >= ranges.end
    told = empty.copy()
    for place, (_, topic, topic_id) in enumerate(ranges.topics):
        named: dict[int, Spans] = {}
        for of in gone:
            partition = of.finding.partition or 0
            if of.is_in(topic, partition) and of.finding.topic_id in (None, topic_id):
                named[partition] = of.spans.union(named.get(partition, Spans()))
        for partition, spans in named.items():
            mine = (ranges.topic == place) & (ranges.partition == partition)
            for start, end in spans:
                told |= mine & (ranges.start >= start) & (ranges.end <= end)
    return frozenset(ranges.entry[~empty].tolist()) - frozenset(ranges.entry[~told].tolist())
