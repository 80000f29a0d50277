"""checkpoint_commits: what Spark planned and finished, against what the ledger and the sink hold."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.coverage import (
    Coverage,
    Key,
    Ranges,
    TopicIncarnation,
    coverage,
    missed,
    partition_of,
    ranges_of,
)
from recon.checks.evidence.findings import Findings, Period, ledger_of, named, no_entries, offsets
from recon.checks.evidence.row_accounting import ReadStretches
from recon.checks.evidence.table_history import judged_since
from recon.model import (
    CheckpointBatch,
    CheckpointWitness,
    Code,
    DeltaCommit,
    DeltaWitness,
    LedgerSlice,
    ReconStamp,
    Unavailable,
    Verdict,
    Witnesses,
    parse_offsets,
)
from recon.model.offsets import Span, Spans
from recon.model.wire.app_ids import parse_app_id
from recon.text import plural, some

_HOUR = Period(1, "hour")


@dataclass(frozen=True, kw_only=True)
class CheckpointCommits(EvidenceCheck):
    """Every micro-batch that Spark finished is in the ledger and in the sink.

    Compares the micro-batches the checkpoint still holds (planned: offsets/N, finished: commits/N) with the ledger's
    entries and the stamped commits of the Delta log (of a sink that is no Delta table: its own record), by query_id,
    batch_id and offset ranges. It needs all three; Kafka, where it can be asked, tells what can still be read.
    Micro-batches planned before the ledger's first entry (recon came to a running query, or they belong to earlier
    audits) are not judged, and the message says so.

    Args:
        stalled_after: how long a micro-batch may stay planned and not finished, as `{count: 1, period: hour}`.

    Codes:
        GAP: Spark finished a micro-batch that read offsets, and neither ledger nor sink has it: the write was
            swallowed. Also the offsets between the ledger's end and the start of a checkpoint that started a new epoch.
        LOSS_RETENTION: the same, and Kafka has deleted the records meanwhile; or a micro-batch that is not finished
            wants records that are deleted already.
        SKIPPED: the sink's txn app id already has this batch_id from other offsets, so Delta drops the write unseen.
        STALLED: planned longer ago than `stalled_after` and not finished.
        OVERLAP: a checkpoint that started a new epoch begins below what the ledger holds.
        LEDGER_MISSING: the sink has the commit, the ledger has no entry (warns); the query's next start repairs it.
        INCONCLUSIVE: the checkpoint's offsets were deleted, or do not tell where a micro-batch began.
        INFLIGHT, REPLAYED, NEW_EPOCH, EMPTY: a micro-batch that is not finished yet, one that was tried again and
            landed once, a checkpoint that started a new epoch, micro-batches that read nothing. They explain only.
    """

    test: ClassVar[str] = "checkpoint_commits"
    needs: ClassVar[Sequence[str]] = ("ledgers", "checkpoint")
    uses: ClassVar[Sequence[str]] = ("kafka", "delta", "sink_logs")
    scope: ClassVar[str] = "sink"

    stalled_after: Period = _HOUR

    def judge(self, witnesses: Witnesses) -> Verdict:
        """Lost, skipped and stalled micro-batches fail."""
        checkpoint, log = witnesses.checkpoint, _log_of(witnesses)
        if isinstance(checkpoint, Unavailable):
            return Verdict(unproved=checkpoint.reason)
        if isinstance(log, Unavailable):
            return Verdict(unproved=log.reason)
        trial = _Evaluation(witnesses, checkpoint, log, ledger_of(witnesses), self.stalled_after)
        if trial.ledger is None and not trial.stamped:
            return no_entries(witnesses)
        return trial.verdict()


def _log_of(witnesses: Witnesses) -> DeltaWitness | Unavailable:
    """The sink's Delta log; of another kind of sink its own record, read as a log whose writes are numbered."""
    sink, logs, others = witnesses.sink or "", witnesses.delta, witnesses.sink_logs
    if not isinstance(logs, Unavailable) and sink in logs:
        return logs[sink]
    if isinstance(others, Unavailable) or sink not in others:
        if isinstance(logs, Unavailable):
            return logs
        return others if isinstance(others, Unavailable) else Unavailable("delta", f"sink {sink} was not read")
    commits = {
        number: DeltaCommit(
            version=number,
            timestamp=commit.at,
            operation="",
            operation_parameters={},
            operation_metrics={},
            txn={},
            user_metadata=None,
            stamp=commit.stamp,
            files_added=0,
            files_removed=0,
            rows_added=commit.rows,
            rows_removed=0,
            data_change=True,
        )
        for number, commit in enumerate(others[sink].commits)
    }
    location, last = others[sink].location, len(commits) - 1
    return DeltaWitness(location=location, exists=others[sink].exists, first_retained=0, last=last, commits=commits)


class _Planned(NamedTuple):
    """A micro-batch's ranges by topic partition; `start` is None for a partition that is new in it."""

    start: int | None
    end: int

    @property
    def span(self) -> Span:
        """The range; a new partition is taken from 0 on, so that whatever is missing shows."""
        return Span(min(self.start or 0, self.end), self.end)


class _Readings(NamedTuple):
    """When each offset of a topic partition was read first: parts ascend, and so does `lowest` by place.

    A place is an entry's in reading order. `lowest` has the lowest offset that was read up to each place.
    """

    parts: list[tuple[Span, int]]
    lowest: list[tuple[int, int]]

    @classmethod
    def of(cls, covered: Coverage, key: Key) -> _Readings:
        """The readings of a topic partition, whatever its topic ids."""
        stretches = ReadStretches(
            covered, [(key, s) for incarnation in covered.incarnations.get(key, ()) for s in incarnation.stretches]
        )
        every = Spans.of((s.start, s.end) for _, s in stretches.stretches if s.end > s.start)
        places = sorted((covered.place(piece.entry), piece.start, piece.end) for piece in stretches.pieces(every))
        lowest = accumulate(((place, start) for place, start, _ in places), lambda a, b: (b[0], min(a[1], b[1])))
        return cls(sorted((Span(start, end), place) for place, start, end in places), list(lowest))

    def held_before(self, place: int, wanted: Spans, complete: bool) -> bool:
        """Whether all of `wanted` was read before a place, or lies below what an incomplete ledger begins with."""
        known = bisect_left(self.lowest, place, key=lambda reading: reading[0])
        if not complete and known:
            wanted = wanted.minus(Spans.of([(0, self.lowest[known - 1][1])]))
        for start, end in wanted:
            at = start
            for i in range(bisect_right(self.parts, start, key=lambda part: part[0].end), len(self.parts)):
                span, read_at = self.parts[i]
                if at >= end or span.start > at or read_at >= place:
                    break
                at = span.end
            if at < end:
                return False
        return True


class _Transactions(NamedTuple):
    """The transaction numbers that a table has: all (app id, version), and the newest version of each app id."""

    taken: frozenset[tuple[str, int]]
    newest: Mapping[str, int]

    @classmethod
    def of(cls, delta: DeltaWitness) -> _Transactions:
        """Those of the commits that were read, and those of the table's newest snapshot."""
        taken = frozenset(txn for commit in delta.commits.values() for txn in commit.txn.items())
        newest = dict(delta.txns)
        for app, version in taken:
            newest[app] = max(version, newest.get(app, -1))
        return cls(taken, newest)


@dataclass
class _Evaluation:
    """One checkpoint against one sink."""

    witnesses: Witnesses
    checkpoint: CheckpointWitness
    delta: DeltaWitness
    ledger: LedgerSlice | None
    stalled_after: Period
    findings: Findings = field(init=False)
    empty: list[CheckpointBatch] = field(default_factory=list)
    _readings: dict[Key, _Readings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.findings = Findings.of(self.witnesses)

    def verdict(self) -> Verdict:
        batches = self.checkpoint.batches
        if not batches:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"checkpoint {self.checkpoint.location} holds no micro-batch any more, though the ledger does: its "
                "offsets were deleted, and the query's next start begins a new epoch",
            )
            return self.findings.verdict("")
        recorded = landed = 0
        older: list[CheckpointBatch] = []
        open_: list[CheckpointBatch] = []
        new: list[tuple[CheckpointBatch, DeltaCommit | None]] = []
        for batch in batches:
            entry = self._entry(batch)
            if entry is not None:
                recorded += 1
                self._judge_recorded(batch, entry)
                continue
            commit = self._commit(batch)
            if commit is not None and not self._too_late(commit.timestamp):
                landed += 1
                new.append((batch, commit))
            elif self._too_old(batch):
                older.append(batch)
            elif commit is None and not self._too_late(batch.planned_at):
                open_.append(batch)
                new.append((batch, None))
        new_epoch = self._judge_new_epoch(new)
        for batch, commit in new:
            if commit is not None:
                self._tell_missing_entry(batch, commit)
        for batch in open_:
            self._judge_open(batch, new_epoch=new_epoch)
        if self.empty:
            self.findings.add(
                Code.EMPTY,
                f"{plural(len(self.empty), 'micro-batch')} read no offsets and wrote nothing: batch_id "
                f"{some(batch.batch_id for batch in self.empty)}",
                batch_id=self.empty[0].batch_id if len(self.empty) == 1 else None,
            )
        message = f"{plural(recorded, 'micro-batch')} of the checkpoint agree with the ledger"
        if older:
            ids = f"{older[0].batch_id} to {older[-1].batch_id}" if len(older) > 1 else str(older[0].batch_id)
            message += f"; batch_id {ids} were planned before the entries looked at and were not judged"
        return self.findings.verdict(
            message, query_id=self.checkpoint.query_id, batches=len(batches), recorded=recorded, not_judged=len(older)
        )

    # -- which write belongs to which plan -----------------------------------------------------------------------

    @cached_property
    def covered(self) -> Coverage | None:
        return coverage(self.ledger) if self.ledger is not None else None

    @cached_property
    def stamped(self) -> Mapping[tuple[str, int], Sequence[tuple[DeltaCommit, ReconStamp]]]:
        """This sink's commits by (query_id, batch_id), newest last."""
        found: dict[tuple[str, int], list[tuple[DeltaCommit, ReconStamp]]] = {}
        for version in sorted(self.delta.commits):
            commit = self.delta.commits[version]
            stamp = commit.stamp
            if stamp is not None and (stamp.pipeline, stamp.sink) == (self.witnesses.pipeline, self.witnesses.sink):
                found.setdefault((stamp.query_id, stamp.batch_id), []).append((commit, stamp))
        return found

    @cached_property
    def entries(self) -> Mapping[int, Sequence[int]]:
        """This query's ledger entries by batch_id, in reading order, replays left out."""
        found: dict[int, list[int]] = {}
        if self.ledger is not None and self.covered is not None:
            for entry in self.covered.order:
                head = self.ledger.heads[entry]
                if head.query_id == self.checkpoint.query_id:
                    found.setdefault(head.batch_id, []).append(entry)
        return found

    @cached_property
    def recorded(self) -> set[tuple[int, int]]:
        """The (epoch, batch_id) of every entry."""
        return {(head.epoch, head.batch_id) for head in self.ledger.heads} if self.ledger is not None else set()

    @cached_property
    def ranges(self) -> Mapping[int, Ranges]:
        """Ranges of the entries that carry a batch_id of the checkpoint."""
        assert self.ledger is not None
        wanted = [entry for batch in self.checkpoint.batches for entry in self.entries.get(batch.batch_id, ())]
        return {entry: ranges_of(self.ledger, entry) for entry in wanted}

    def _entry(self, batch: CheckpointBatch) -> int | None:
        """The newest entry that accounts for this plan: same query, same number, same ranges.

        An entry may hold less than the plan where trimming dropped what earlier entries held.
        """
        exact = tuple(sorted((s.source, s.topic, s.partition, *s.span) for s in batch.ranges))
        for entry in reversed(self.entries.get(batch.batch_id, ())):
            if exact == self.ranges[entry] and batch.starts_known and not batch.new_partitions:
                return entry  # as almost always; what follows is twenty times as slow
            plan, held = _plan(batch), _by_key(self.ranges[entry])
            if _fits(plan, held, batch) and all(self._held_before(entry, key, rest) for key, rest in _rest(plan, held)):
                return entry
        return None

    def _commit(self, batch: CheckpointBatch) -> DeltaCommit | None:
        plan = _plan(batch)
        for commit, stamp in reversed(self.stamped.get((self.checkpoint.query_id, batch.batch_id), ())):
            if (stamp.epoch, stamp.batch_id) in self.recorded:
                continue  # it belongs to an entry, which is not this plan's
            if commit.version <= self._looked_up_to:
                continue  # earlier audits looked at it
            held = _held_by(stamp)
            rest = _rest(plan, held)
            if _fits(plan, held, batch) and all(not left.minus(self._held(key)) for key, left in rest):
                return commit
        return None

    def _held_before(self, entry: int, key: Key, rest: Spans) -> bool:
        """Whether entries read before this one hold the offsets that it left out."""
        assert self.ledger is not None and self.covered is not None
        if key not in self._readings:
            self._readings[key] = _Readings.of(self.covered, key)
        return self._readings[key].held_before(self.covered.place(entry), rest, self.ledger.complete)

    @cached_property
    def _looked_up_to(self) -> int:
        """The version of the sink up to which earlier audits looked."""
        return -1 if self.ledger is None else judged_since(self.ledger)

    def _held(self, key: Key) -> Spans:
        """Everything the ledger covers of a topic partition's present incarnation."""
        incarnation = self._incarnation(key)
        return incarnation.walked.covered if incarnation is not None else Spans()

    def _incarnation(self, key: Key) -> TopicIncarnation | None:
        incarnations = self.covered.incarnations.get(key) if self.covered is not None else None
        return incarnations[-1] if incarnations else None

    # -- which plans are judged ------------------------------------------------------------------------------------

    @cached_property
    def known_since(self) -> datetime | None:
        heads = self.ledger.heads if self.ledger is not None else ()
        # What lies before the newest anchor of this query was judged by earlier audits.
        anchors = heads[: self.ledger.anchors] if self.ledger is not None else ()
        own = [head.started_at for head in anchors if head.query_id == self.checkpoint.query_id]
        times = [max(own)] if own else [head.started_at for head in heads if not head.is_release]
        if not times:
            times = [commit.timestamp for commits in self.stamped.values() for commit, _ in commits]
        return min(times, default=None)

    def _too_old(self, batch: CheckpointBatch) -> bool:
        return batch.planned_at is not None and self.known_since is not None and batch.planned_at < self.known_since

    def _too_late(self, at: datetime | None) -> bool:
        """After this audit's slice of the ledger: the next audit's business."""
        if at is None:
            return False
        if at > self.witnesses.now:
            return True
        if self.witnesses.period_to >= self.witnesses.now:
            return False
        return at >= self.witnesses.period_to or self._last_start is None or at > self._last_start

    @cached_property
    def _last_start(self) -> datetime | None:
        heads = self.ledger.heads if self.ledger is not None else ()
        return max((head.started_at for head in heads if not head.is_release), default=None)

    @cached_property
    def _tried_again(self) -> set[int]:
        """Entries that a micro-batch of the period repeats."""
        covered = self.covered
        return (
            set() if covered is None else {first for replay, first in covered.replays.items() if covered.judged(replay)}
        )

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def _judge_recorded(self, batch: CheckpointBatch, entry: int) -> None:
        assert self.ledger is not None and self.covered is not None
        head = self.ledger.heads[entry]
        if not batch.committed and batch is self.checkpoint.last:
            self.findings.add(
                Code.INFLIGHT,
                f"{named(head)} is in the sink and in the ledger, and Spark has not finished it (no "
                f"commits/{batch.batch_id}): its next start tries it again, and recon recognises it",
                head=head,
            )
        elif entry in self._tried_again:
            self.findings.add(Code.REPLAYED, f"{named(head)} was tried again and landed once", head=head)

    def _tell_missing_entry(self, batch: CheckpointBatch, commit: DeltaCommit) -> None:
        stamp = commit.stamp
        done = "finished by Spark" if batch.committed else "not finished by Spark"
        version = f" as version {commit.version}" if commit.operation else ""  # others have no versions
        self.findings.add(
            Code.LEDGER_MISSING,
            f"micro-batch {batch.batch_id} is in the sink{version}, {done}, and has no ledger entry; the query's "
            "next start, or `recon ledger rebuild`, restores it",
            batch_id=batch.batch_id,
            epoch=stamp.epoch if stamp is not None else None,
        )

    def _judge_new_epoch(self, new: Sequence[tuple[CheckpointBatch, DeltaCommit | None]]) -> bool:
        """Whether the checkpoint started an epoch that the ledger does not know, and where it begins."""
        if self.ledger is None or self.covered is None or not self.covered.order:
            return False
        newest = self.ledger.heads[self.covered.order[-1]]
        other_query = newest.query_id != self.checkpoint.query_id
        contradicts = [(batch, commit) for batch, commit in new if self.entries.get(batch.batch_id)]
        if not contradicts and not (other_query and new):
            if other_query:
                self.findings.add(
                    Code.NEW_EPOCH,
                    f"checkpoint {self.checkpoint.location} belongs to query {self.checkpoint.query_id}, the ledger's "
                    f"newest epoch {newest.epoch} to query {newest.query_id}: its next micro-batch begins a new epoch",
                )
            return False
        batch, commit = (contradicts or new)[0]
        why = f"batch ids of query {self.checkpoint.query_id} started over"
        if other_query:
            why = f"its query is {self.checkpoint.query_id}, the ledger's newest {newest.query_id}"
        stamp = commit.stamp if commit is not None else None
        self.findings.add(
            Code.NEW_EPOCH,
            f"checkpoint {self.checkpoint.location} starts a new epoch with micro-batch {batch.batch_id}: {why}",
            batch_id=batch.batch_id,
            epoch=stamp.epoch if stamp is not None else newest.epoch + 1,
        )
        self._judge_start(batch, stamp)
        return True

    def _judge_start(self, batch: CheckpointBatch, stamp: ReconStamp | None) -> None:
        """Where a new epoch begins, against where the ledger ends.

        What was written counts, or what is about to be: a write that was skipped or swallowed doubles nothing.
        """
        skipped = self._skipping_app(batch, new_epoch=True) is not None
        nothing = stamp is None and (batch.committed or skipped)
        written = _held_by(stamp) if stamp is not None else None
        for key, planned in _plan(batch).items():
            incarnation = self._incarnation(key)
            if incarnation is None or planned.start is None:
                continue
            walked = incarnation.walked
            if planned.start > walked.frontier:
                said = f"the new checkpoint starts at {planned.start}, the ledger ends at {walked.frontier}"
                self._tell_missed(batch, key, incarnation.topic_id, walked.frontier, planned.start, said)
            elif not nothing:
                reads = Spans.of([planned.span]) if written is None else written.get(key, Spans())
                self._tell_overlaps(batch, key, reads.intersect(walked.covered))

    def _tell_overlaps(self, batch: CheckpointBatch, key: Key, twice: Spans) -> None:
        for start, end in twice:
            self._add(
                Code.OVERLAP,
                f"{key}: the new checkpoint's micro-batch {batch.batch_id} reads {offsets(start, end)} again, which "
                "the ledger already holds; start it with the offsets that `recon offsets` prints",
                batch,
                key,
                start,
                end,
            )

    def _judge_open(self, batch: CheckpointBatch, *, new_epoch: bool) -> None:
        """A plan that neither the ledger nor the sink has."""
        plan = _plan(batch)
        if not any(planned.span.size for planned in plan.values()) and batch.starts_known:
            if batch.committed:
                self.empty.append(batch)
            else:
                self._judge_unfinished(batch, plan)
            return
        app = self._skipping_app(batch, new_epoch=new_epoch)
        if app is not None:
            for key, planned in plan.items():
                if planned.span.size:
                    version = self._transactions.newest.get(app, -1)
                    self._add(
                        Code.SKIPPED,
                        f"{key}: {offsets(*planned.span)} of micro-batch {batch.batch_id} are not in the sink: app id "
                        f"{app} already has txn version {version} from other offsets, so Delta drops the write "
                        "without a word; remove txn_app_id from the sink and read the range again",
                        batch,
                        key,
                        *planned.span,
                    )
        elif not batch.committed and batch is self.checkpoint.last:
            self._judge_unfinished(batch, plan)
        elif not batch.starts_known:
            self.findings.add(
                Code.INCONCLUSIVE,
                f"micro-batch {batch.batch_id} was finished by Spark, has no entry and no commit, and the checkpoint "
                "no longer tells where it began",
                batch_id=batch.batch_id,
            )
        else:
            self._judge_swallowed(batch, plan)

    def _judge_swallowed(self, batch: CheckpointBatch, plan: Mapping[Key, _Planned]) -> None:
        for key, planned in plan.items():
            incarnation = self._incarnation(key)
            for start, end in Spans.of([planned.span]).minus(self._held(key)):
                said = f"Spark finished micro-batch {batch.batch_id}, and neither the sink nor the ledger has it"
                self._tell_missed(
                    batch, key, incarnation.topic_id if incarnation is not None else None, start, end, said
                )

    def _judge_unfinished(self, batch: CheckpointBatch, plan: Mapping[Key, _Planned]) -> None:
        for key, planned in plan.items():
            incarnation = self._incarnation(key)
            log_start, _ = partition_of(
                self.witnesses.kafka, key, incarnation.topic_id if incarnation is not None else None
            )
            start, end = planned.span
            if planned.start is not None and log_start is not None and start < log_start and start < end:
                self._add(
                    Code.LOSS_RETENTION,
                    f"{key}: micro-batch {batch.batch_id} is planned from {start} on and not finished, and Kafka's log "
                    f"now starts at {log_start}: {offsets(start, min(log_start, end))} cannot be read any more",
                    batch,
                    key,
                    start,
                    min(log_start, end),
                )
        if batch.planned_at is None:
            code, since = Code.INCONCLUSIVE, "at a time the checkpoint does not tell"
        else:
            age = self.witnesses.now - batch.planned_at
            code = Code.STALLED if age > self.stalled_after.length else Code.INFLIGHT
            since = f"at {batch.planned_at:%Y-%m-%d %H:%M:%S}Z"
        step = {
            Code.STALLED: f", longer ago than {self.stalled_after}; look at the query's log, it does not get on",
            Code.INFLIGHT: "; it is being written, or the query stopped in it",
        }.get(code, "")
        self.findings.add(
            code,
            f"micro-batch {batch.batch_id} was planned {since} and is not finished{step}",
            batch_id=batch.batch_id,
        )

    # -- transactions --------------------------------------------------------------------------------------------------

    @cached_property
    def _transactions(self) -> _Transactions:
        return _Transactions.of(self.delta)

    @cached_property
    def _used(self) -> Sequence[DeltaCommit]:
        """The commits that carry a stamp of this sink."""
        return [commit for commits in self.stamped.values() for commit, _ in commits]

    @cached_property
    def _newest_apps(self) -> Sequence[str]:
        return list(max(self._used, key=lambda commit: commit.version).txn) if self._used else []

    @cached_property
    def _fixed_apps(self) -> Sequence[str]:
        return list(dict.fromkeys(app for commit in self._used for app in commit.txn if not self._is_own(app)))

    def _skipping_app(self, batch: CheckpointBatch, *, new_epoch: bool) -> str | None:
        """The app id under which Delta takes this write for one it has already.

        A new epoch has a new app id, unless the sink was given a fixed one. Within an epoch, another write
        must have used the number (settings leaked into another write's session).
        """
        newest = self._transactions.newest
        if new_epoch:
            return next((app for app in self._fixed_apps if newest.get(app, -1) >= batch.batch_id), None)
        for app in self._newest_apps:
            taken = (app, batch.batch_id) in self._transactions.taken
            if taken or (batch.batch_id > self._last_recorded and newest.get(app, -1) >= batch.batch_id):
                return app
        return None

    @cached_property
    def _last_recorded(self) -> int:
        return max(self.entries, default=-1)

    def _is_own(self, app: str) -> bool:
        """Whether recon made the app id of this sink, one per epoch."""
        parsed = parse_app_id(app)
        return parsed is not None and (parsed.pipeline, parsed.sink) == (self.witnesses.pipeline, self.witnesses.sink)

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell_missed(
        self, batch: CheckpointBatch, key: Key, topic_id: str | None, start: int, end: int, said: str
    ) -> None:
        for code, low, high, next_step in missed(self.witnesses.kafka, key, topic_id, start, end):
            self._add(code, f"{key}: {offsets(low, high)} are missing: {said}; {next_step}", batch, key, low, high)

    def _add(self, code: Code, message: str, batch: CheckpointBatch, key: Key, start: int, end: int) -> None:
        self.findings.add(
            code,
            message,
            batch_id=batch.batch_id,
            topic=key.topic,
            partition=key.partition,
            start_offset=start,
            end_offset=end,
        )


def _plan(batch: CheckpointBatch) -> dict[Key, _Planned]:
    plan = {Key(s.source, s.topic, s.partition): _Planned(s.start_offset, s.end_offset) for s in batch.ranges}
    for source, topic, partition, end in batch.new_partitions:
        plan[Key(source, topic, partition)] = _Planned(None, end)
    return plan


def _by_key(ranges: Iterable[tuple[Any, ...]]) -> dict[Key, Spans]:
    """Ranges per topic partition; one that runs backward reads nothing."""
    found: dict[Key, list[tuple[int, int]]] = {}
    for source, topic, partition, start, end in ranges:
        found.setdefault(Key(source, topic, partition), []).append((start, max(start, end)))
    return {key: Spans.of(spans) for key, spans in found.items()}


def _held_by(stamp: ReconStamp) -> dict[Key, Spans]:
    """The ranges a commit carries."""
    return _by_key((s.source, s.topic, s.partition, *s[3:5]) for s in parse_offsets(stamp.offsets_text))


def _fits(plan: Mapping[Key, _Planned], held: Mapping[Key, Spans], batch: CheckpointBatch) -> bool:
    """Whether everything held was planned. Without known starts only the number of the batch can speak."""
    for key, spans in held.items():
        hull, planned = spans.hull, plan.get(key)
        if hull is None or (planned is None and not batch.starts_known):
            continue
        if planned is None or hull.end > planned.end or hull.start < planned.span.start:
            return False
    return True


def _rest(plan: Mapping[Key, _Planned], held: Mapping[Key, Spans]) -> list[tuple[Key, Spans]]:
    """What was planned and is not held. A new partition begins wherever the write began."""
    found = []
    for key, planned in plan.items():
        if planned.start is None:
            continue
        left = Spans.of([planned.span]).minus(held.get(key, Spans()))
        if left:
            found.append((key, left))
    return found
