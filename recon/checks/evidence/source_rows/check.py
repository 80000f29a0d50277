"""source_rows: every offset the stream read is in a row of the sink once, or its absence is explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from recon.checks.base import EvidenceCheck
from recon.checks.evidence.findings import Findings, ledger_of, named, no_entries, offsets, quiet
from recon.checks.evidence.row_accounting import Account, Piece, ReadStretches, account
from recon.checks.evidence.source_rows import rewriting
from recon.checks.evidence.stateful_operators import operators_of
from recon.checks.evidence.table_history import alive, changes_rows, is_restore, rows_lost
from recon.model import (
    Code,
    DeltaWitness,
    LedgerSlice,
    ProbeAnswer,
    RowGroup,
    RowsWitness,
    Unavailable,
    Verdict,
    Witnesses,
    parse_offsets,
)
from recon.model.offsets import GrowingSpans, Span, Spans
from recon.model.wire.app_ids import claim_app_id
from recon.model.wire.quarantine import parse_returned
from recon.text import plural, some

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class SourceRows(EvidenceCheck):
    """Every offset the stream read is in one row of the sink, or its absence is explained.

    First from counts: a micro-batch whose rows (written, filtered, quarantined) are as many as its offsets is proved by
    the ledger alone. Only where they are not, or where offsets were read twice or rows were removed later, the rows
    of the sink are read, and Kafka is asked about the offsets that no row carries: a read_uncommitted and a
    read_committed reader tell aborted records and transaction markers from lost ones. A whole period without
    a deficit needs neither Spark nor Kafka.

    Where the query keeps state, what came out of it is not what was read. Rows that deduplication let fall are known
    from Spark's own counts, if `recon.ProgressListener` recorded them ([progress](progress.md)) and they add up with
    the rows that came out; without them offsets that have no row are neither lost nor explained.

    In a sink whose rows later micro-batches replace (a MERGE, an upsert) a missing row proves nothing. There the rows
    that each micro-batch took in, left out because a later one has the same key, filtered and put aside are counted
    against its offsets, and where those are more, against the records that Kafka has in its ranges.

    It needs the ledger; for deficits the rows with `_source_topic`, `_source_partition`, `_source_offset`, and a broker
    that still holds the range. Without them the answer is "could not be proved", never pass.

    Codes:
        ATTESTED_ONLY: the rows carry no source offsets because the query keeps state (an aggregate, a join): Spark's
            progress says that every offset was read, and what became of them cannot be told row by row (warns).
        GAP: Kafka gives the record, the stream read past it, no row carries it, and nothing says it was filtered; or
            the commit wrote a row for every offset, and rows are missing now; or a release took the row from
            quarantine, and neither the sink has it nor did the repair drop it.
        LOSS_RETENTION: no row carries the beginning of a micro-batch's range, and Kafka's log now starts beyond it.
        DUPLICATE: more rows than one with the same (topic, partition, offset). Rows that a transform made of one record
            are lawful and do not count: entries show it by more rows written than read.
        REPEATED: the same in a sink that claims no more than at-least-once (warns).
        PHANTOM_ROWS: rows of records whose transaction was aborted: the stream reads uncommitted.
        UNSTAMPED: rows that no ledger entry accounts for (warns).
        EXPLAINED: how many offsets per partition have no row for a lawful reason: transaction markers (control),
            aborted, compacted, filtered, quarantined (a row that waits in the quarantine table carries them).
        INFLIGHT: micro-batches of the last minutes whose progress is not recorded yet.
        INCONCLUSIVE: offsets that nobody could be asked about, or whose micro-batch does not say what it filtered;
            offsets of rows that a release claimed and did not enter in the ledger.

    What Kafka deletes while a micro-batch reads is the beginning of its range. Offsets further in, below today's log
    start, were there when they were read; whether they were markers or lost records nobody can tell any more:
    INCONCLUSIVE. Audit while Kafka still holds the records. A transaction marker and a record that compaction
    removed look the same from outside; in a compacted topic both count as compacted.
    """

    test: ClassVar[str] = "source_rows"
    needs: ClassVar[Sequence[str]] = ("ledgers",)
    uses: ClassVar[Sequence[str]] = ("kafka", "delta", "sink_logs", "quarantine", "checkpoint", "progress")
    scope: ClassVar[str] = "sink"

    def wants_rows(self, witnesses: Witnesses) -> bool:
        """Whether counts leave something open, offsets were read twice, or rows were removed since."""
        ledger = ledger_of(witnesses)
        return ledger is not None and bool(_reasons(_account_of(ledger, witnesses), witnesses))

    def questions(self, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
        """Offsets without a row, but for those that recorded filtering explains.

        For a stream that reads uncommitted records, the whole range of each partition that has any: rows of aborted
        transactions would lie there.
        """
        ledger, rows = ledger_of(witnesses), witnesses.rows
        if ledger is not None and _rewrites(witnesses):
            return rewriting.questions(_account_of(ledger, witnesses))
        if ledger is None or isinstance(rows, Unavailable) or not rows.has_source_columns:
            return {}
        trial = _Evaluation(witnesses, ledger, _account_of(ledger, witnesses), rows)
        asked = {where: Spans.of((p.start, p.end) for p in pieces) for where, pieces in trial.unexplained.items()}
        if witnesses.isolation_level == "read_uncommitted":
            return {where: trial.stretches[where].ranges for where in asked}
        return asked

    def judge(self, witnesses: Witnesses) -> Verdict:
        """Lost, doubled and phantom rows fail."""
        ledger = ledger_of(witnesses)
        if ledger is None:
            return no_entries(witnesses)
        counts = _account_of(ledger, witnesses)
        if _rewrites(witnesses):
            return _judge_rewriting(ledger, counts, witnesses)
        reasons = _reasons(counts, witnesses)
        rows = witnesses.rows
        readable = isinstance(rows, RowsWitness) and rows.has_source_columns
        if isinstance(rows, RowsWitness) and readable:
            trial = _Evaluation(witnesses, ledger, counts, rows)
            trial.judge()
            findings, explained, missing = trial.findings, dict(trial.explained), trial.missing
        else:
            findings, explained, missing = Findings.of(witnesses), {}, 0
        doubled = _doubled(witnesses)
        if doubled not in findings:
            _tell_surplus(ledger, counts, findings, doubled)

        batches, proved = len(counts.counted), len(counts.counted) - len(counts.open)
        message = quiet(ledger) if not batches else f"{plural(batches, 'micro-batch')}: as many rows as offsets"
        if readable and batches:
            message = f"{plural(batches, 'micro-batch')}: every offset is in a row" + (
                f" or explained ({plural(missing, 'offset')} without a row)" if missing else ""
            )
        verdict = findings.verdict(
            message,
            batches=batches,
            proved_by_counts=proved,
            offsets_without_row=missing,
            explained=explained,
            dropped_by_state=sum(counted.fell for counted in counts.counted.values()),
        )
        if readable or not reasons:
            return verdict
        if isinstance(rows, RowsWitness):
            attested = _attested(counts, witnesses, findings)
            reasons = _reasons(counts, witnesses, attested)
            if not reasons:
                return findings.verdict(message, **verdict.evidence)
        if verdict.failures:  # refuted, and the rest is open
            return replace(verdict, evidence={**verdict.evidence, "unread": "; ".join(reasons)})
        return _without_rows(verdict, rows, reasons, f"{proved:,} of {batches:,} micro-batches are proved by counts; ")


def _account_of(ledger: LedgerSlice, witnesses: Witnesses) -> Account:
    handed = rewriting.handed_by(witnesses) if _rewrites(witnesses) else None
    return account(ledger, operators_of(witnesses), handed)


def _rewrites(witnesses: Witnesses) -> bool:
    """Whether later micro-batches may replace the rows of earlier ones, so that a missing row proves nothing."""
    return witnesses.sink in witnesses.rewriting


def _judge_rewriting(ledger: LedgerSlice, counts: Account, witnesses: Witnesses) -> Verdict:
    """Counts alone tell what was lost; rows only what is doubled, or whose they are."""
    rows = witnesses.rows
    findings, explained = Findings.of(witnesses), Counter[str]()
    attested = _attested(counts, witnesses, findings)
    of_partitions = rewriting.judge(counts, witnesses, findings, attested)
    for (topic, partition), tally in sorted(of_partitions.items()):
        explained += tally
        if tally.total():
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.items()) if count)
            findings.add(
                Code.EXPLAINED,
                f"{topic}-{partition}: {plural(tally.total(), 'offset')} without a record, all explained: {reasons}",
                topic=topic,
                partition=partition,
            )
    changed = [*_removed(counts, witnesses), *_doubts_of_quarantine(counts, witnesses)]
    for reason in changed:
        findings.add(Code.INCONCLUSIVE, f"{reason}: which micro-batches' rows are gone no count can tell")
    readable = isinstance(rows, RowsWitness) and rows.has_source_columns
    if isinstance(rows, RowsWitness) and readable:
        trial = _Evaluation(witnesses, ledger, counts, rows, findings)
        trial.judge_present()
    elif _doubled(witnesses) not in findings:
        _tell_surplus(ledger, counts, findings, _doubled(witnesses))
    batches, proved = len(counts.counted), len(counts.counted) - len(counts.open)
    message = quiet(ledger)
    if batches:
        message = f"{plural(batches, 'micro-batch')}: rows taken in, left out and put aside are as many as " + (
            f"the records ({plural(explained.total(), 'offset')} without one)" if explained.total() else "offsets"
        )
    verdict = findings.verdict(
        message,
        batches=batches,
        proved_by_counts=proved,
        offsets_without_row=explained.total(),
        explained=dict(explained),
        dropped_by_state=sum(counted.fell for counted in counts.counted.values()),
    )
    twice = sum(spans.size for spans in counts.overlaps.values())
    if readable or not twice:
        return verdict
    reasons_left = [f"{plural(twice, 'offset')} were read twice"]
    if verdict.failures:
        return replace(verdict, evidence={**verdict.evidence, "unread": reasons_left[0]})
    return _without_rows(verdict, rows, reasons_left, "")


def _without_rows(verdict: Verdict, rows: RowsWitness | Unavailable, reasons: Sequence[str], proved: str) -> Verdict:
    """The verdict when rows are needed and cannot be had."""
    if isinstance(rows, Unavailable):
        why = rows.reason
    else:
        why = f"{rows.location} has no _source_topic, _source_partition, _source_offset (stamp_source_offsets)"
    said = f"{proved}{'; '.join(reasons)}: the sink's rows are needed and {why}"
    if isinstance(rows, Unavailable) and rows.skipped:
        return replace(verdict, skipped=said, message=said)
    return replace(verdict, unproved=said, message=said)


def _attested(counts: Account, witnesses: Witnesses, findings: Findings) -> frozenset[int]:
    """Open entries of a query with state of which Spark says that it read every offset, or will say so soon."""
    heads, operators = counts.covered.slice.heads, counts.operators
    stateful = [entry for entry in counts.open if operators.keeps_state(heads[entry])]
    read = [entry for entry in stateful if operators.read_whole(heads[entry], counts.width[entry])]
    if read:
        findings.add(
            Code.ATTESTED_ONLY,
            f"{plural(len(read), 'micro-batch')} ({some(named(heads[e]) for e in read)}): the query keeps state, and "
            "its rows carry no source offsets; Spark reports that every offset was read, and what the state made of "
            "them no count can tell",
        )
    return frozenset((*read, *_awaited(stateful, counts, witnesses, findings)))


def _awaited(entries: Iterable[int], counts: Account, witnesses: Witnesses, findings: Findings) -> list[int]:
    """Entries whose progress is not recorded yet; told once."""
    heads = counts.covered.slice.heads
    found = sorted({entry for entry in entries if counts.operators.awaited(heads[entry], witnesses)})
    if found:
        findings.add(
            Code.INFLIGHT,
            f"{plural(len(found), 'micro-batch')} ({some(named(heads[e]) for e in found)}): Spark's progress is not "
            "recorded yet; the next audit looks at them again",
        )
    return found


def _reasons(counts: Account, witnesses: Witnesses, attested: frozenset[int] = frozenset()) -> list[str]:
    """Why the ledger's counts are not enough; empty when they are."""
    found = []
    heads = counts.covered.slice.heads
    left = [entry for entry in counts.open if entry not in attested]
    if left:
        deficits = [counts.counted[entry].deficit for entry in left]
        known = sum(deficit for deficit in deficits if deficit)
        of = f"{plural(known, 'offset')} without a counted row" if known else "rows that counts cannot tell"
        found.append(f"{plural(len(left), 'micro-batch')} ({some(named(heads[e]) for e in left)}) with {of}")
    twice = sum(spans.size for spans in counts.overlaps.values())
    if twice:
        found.append(f"{plural(twice, 'offset')} were read twice")
    found.extend(_removed(counts, witnesses))
    found.extend(_doubts_of_quarantine(counts, witnesses))
    return found


def _removed(counts: Account, witnesses: Witnesses) -> Iterator[str]:
    """Which commits of others changed rows of the sink."""
    delta = {} if isinstance(witnesses.delta, Unavailable) else witnesses.delta
    log, heads = delta.get(witnesses.sink or ""), counts.covered.slice.heads
    if log is None:
        return
    still = alive(log)
    first = min((head.sink_version for head in heads if head.sink_version is not None), default=log.last or 0)
    removing = [
        commit.version
        for commit in log.commits.values()
        if commit.version in still and commit.version > first and (changes_rows(commit) or is_restore(commit))
    ]
    if removing:
        yield f"version {some(removing)} of the sink changed rows"


def _doubts_of_quarantine(counts: Account, witnesses: Witnesses) -> Iterator[str]:
    """Why what the ledger counts as quarantined may no longer be there."""
    aside = sum(counted.quarantined for counted in counts.counted.values())
    if not aside:
        return
    if isinstance(witnesses.quarantine, Unavailable):
        yield f"{plural(aside, 'row')} were quarantined, and that log was not read ({witnesses.quarantine.reason})"
        return
    log = witnesses.quarantine.get(witnesses.sink or "")
    if log is None or not log.exists:
        yield f"{plural(aside, 'row')} were quarantined, and there is no quarantine table"
        return
    took = [c.version for c in log.commits.values() if is_restore(c) or (changes_rows(c) and rows_lost(c) != 0)]
    if took:
        yield f"version {some(took)} of the quarantine table removed rows"
    other = _told_otherwise(counts, log)
    if other:
        yield f"the log of the quarantine table does not have the rows that were quarantined of {some(other)}"
    open_ = _unfinished(counts.covered.slice, log, witnesses)
    if open_:
        yield f"release {some(open_)} was claimed and has no ledger entry: finish it with `recon quarantine release`"


def _told_otherwise(counts: Account, log: DeltaWitness) -> list[str]:
    """Micro-batches whose quarantined rows are more or fewer in the table's log, as far as it reaches."""
    ledger, still = counts.covered.slice, alive(log)
    put: dict[tuple[int, int], int | None] = {}
    for version, commit in log.commits.items():
        stamp = commit.stamp
        if stamp is not None and (stamp.pipeline, stamp.sink) == (ledger.pipeline, ledger.sink) and version in still:
            put[stamp.epoch, stamp.batch_id] = commit.rows_added
    oldest = log.commits[min(log.commits)] if log.commits else None
    found = []
    for entry, counted in counts.counted.items():
        head = ledger.heads[entry]
        # The oldest commit that is left may be any; only the table's first one says that there is nothing before it.
        reaches = oldest is not None and (oldest.version == 0 or head.started_at >= oldest.timestamp)
        if (
            counted.quarantined
            and reaches
            and put.get((head.epoch, head.batch_id), 0) not in (None, counted.quarantined)
        ):
            found.append(named(head))
    return found


def _unfinished(ledger: LedgerSlice, log: DeltaWitness, witnesses: Witnesses) -> list[int]:
    """Releases that claimed rows in the period and were neither entered nor given up."""
    app, begin = claim_app_id(ledger.pipeline, ledger.sink), witnesses.period_from
    entered = {head.batch_id for head in ledger.heads if head.is_release}
    claimed: set[int] = set()
    for _, commit in sorted(log.commits.items()):
        if app in commit.txn and commit.timestamp < witnesses.period_to and not (begin and commit.timestamp < begin):
            claimed.add(commit.txn[app])
        returned = parse_returned(commit.user_metadata)
        if returned is not None:
            claimed.discard(returned)
    return sorted(claimed - entered)


def _doubled(witnesses: Witnesses) -> Code:
    """What doubled rows are called: a sink may claim no more than that no row is lost."""
    claimed = witnesses.guarantees.get(witnesses.sink or "", "exactly-once")
    return Code.DUPLICATE if claimed.startswith("exactly-once") else Code.REPEATED


def _tell_surplus(ledger: LedgerSlice, counts: Account, findings: Findings, doubled: Code) -> None:
    for entry, counted in counts.counted.items():
        if counted.surplus:
            head = ledger.heads[entry]
            findings.add(
                doubled,
                f"{named(head)} wrote {plural(counted.surplus, 'row')} more than it read offsets, and no transform "
                "makes rows: some are doubled",
                head=head,
            )


class _Depth(NamedTuple):
    """A stretch of offsets that `depth` groups of rows carry."""

    span: Span
    depth: int


@dataclass
class _Evaluation:
    """The rows of one sink against the ledger's ranges."""

    witnesses: Witnesses
    ledger: LedgerSlice
    counts: Account
    rows: RowsWitness
    found: Findings | None = None
    findings: Findings = field(init=False)
    stretches: Mapping[TopicPartition, ReadStretches] = field(init=False)
    groups: dict[TopicPartition, list[RowGroup]] = field(init=False)
    present: dict[TopicPartition, Spans] = field(init=False)
    unexplained: dict[TopicPartition, list[Piece]] = field(init=False)
    explained: Counter[str] = field(default_factory=Counter)
    missing: int = 0

    def __post_init__(self) -> None:
        self.findings = Findings.of(self.witnesses) if self.found is None else self.found
        self.stretches = self.counts.judged
        self.groups = {}
        for group in self.rows.groups:
            self.groups.setdefault((group.topic, group.partition), []).append(group)
        self.present = {
            where: Spans.of(span for group in groups for span in group.present) for where, groups in self.groups.items()
        }
        self.aside: dict[TopicPartition, list[RowGroup]] = {}
        self.taken: dict[TopicPartition, list[RowGroup]] = {}
        for group in self.rows.quarantined:
            of = self.aside if group.release is None else self.taken
            of.setdefault((group.topic, group.partition), []).append(group)
        self.unreleased: dict[int, list[Piece]] = {}
        self.filtered: Counter[TopicPartition] = Counter()
        self.quarantined: Counter[TopicPartition] = Counter()
        self.removed: list[Piece] = []
        self.unexplained = {} if _rewrites(self.witnesses) else self._unexplained()

    def _unexplained(self) -> dict[TopicPartition, list[Piece]]:
        """Offsets without a row, cut up by entry, but for entries that dropped exactly as many rows."""
        pieces: list[Piece] = []
        for where, stretches in self.stretches.items():
            absent = stretches.ranges.minus(self.present.get(where, Spans()))
            waiting = self._waiting(where, absent)
            self.quarantined[where] = waiting.size
            absent = absent.minus(waiting)
            released = GrowingSpans()
            for group in self.taken.get(where, ()):
                taken = [part for span in absent.intersect(group.present) for part in released.add(*span)]
                self.unreleased.setdefault(group.batch_id, []).extend(stretches.pieces(Spans(tuple(taken))))
            pieces += stretches.pieces(absent.minus(released.spans))
        of_entry: Counter[int] = Counter()
        for piece in pieces:
            of_entry[piece.entry] += piece.end - piece.start
        of_releases = sum(piece.end - piece.start for mine in self.unreleased.values() for piece in mine)
        self.missing = sum(of_entry.values()) + self.quarantined.total() + of_releases
        left: dict[TopicPartition, list[Piece]] = {}
        for piece in pieces:
            counted = self.counts.counted[piece.entry]
            where = (piece.key.topic, piece.key.partition)
            if counted.proved and not counted.dropped:
                # The commit wrote a row for every offset, whatever Kafka may still know of them.
                self.removed.append(piece)
            elif not counted.explodes and counted.dropped == of_entry[piece.entry]:
                self.filtered[where] += piece.end - piece.start
            else:
                left.setdefault(where, []).append(piece)
        return left

    def _waiting(self, where: TopicPartition, absent: Spans) -> Spans:
        """Offsets whose rows wait in quarantine; in a re-created topic, put there by the micro-batch that read them."""
        groups = self.aside.get(where, ())
        if self.stretches[where].incarnations == 1:
            return absent.intersect(Spans.of(span for group in groups for span in group.present))
        of_batch: dict[tuple[int, int], list[Span]] = {}
        for group in groups:
            of_batch.setdefault((group.epoch, group.batch_id), []).extend(group.present)
        waiting = {batch: Spans.of(spans) for batch, spans in of_batch.items()}
        nowhere: list[Span] = []  # of some incarnation
        for piece in self.stretches[where].readings(absent):
            head = self.ledger.heads[piece.entry]
            mine = waiting.get((head.epoch, head.batch_id), Spans())
            nowhere += Spans.of([(piece.start, piece.end)]).minus(mine)
        return absent.minus(Spans.of(nowhere))

    def _judge_unreleased(self, explained: dict[TopicPartition, Counter[str]]) -> None:
        """Rows that a release took from quarantine and the sink does not have."""
        heads = {head.batch_id: head for head in self.ledger.heads if head.is_release}
        for number, pieces in sorted(self.unreleased.items()):
            head, count = heads.get(number), sum(piece.end - piece.start for piece in pieces)
            by = f"release {number}"
            if head is None:
                self._tell(Code.INCONCLUSIVE, pieces, f"were claimed by {by}, of which the period has no ledger entry")
            elif head.rows_filtered is None:
                self._tell(Code.INCONCLUSIVE, pieces, f"were released by {by}, which does not say what it dropped")
            elif count <= head.rows_filtered:
                for piece in pieces:
                    tally = explained.setdefault((piece.key.topic, piece.key.partition), Counter())
                    tally["filtered"] += piece.end - piece.start
            else:
                self._tell(Code.GAP, pieces, f"were released by {by}, and no row of the sink carries them")

    def judge(self) -> None:
        sought: dict[int, list[Piece]] = {}
        explained: dict[TopicPartition, Counter[str]] = {}
        for where, count in self.filtered.items():
            explained.setdefault(where, Counter())["filtered"] += count
        for where, count in self.quarantined.items():
            explained.setdefault(where, Counter())["quarantined"] += count
        for where, pieces in self.unexplained.items():
            answer = self.witnesses.probes.get(where)
            if answer is None:
                self._tell(Code.INCONCLUSIVE, pieces, "are in no row, and Kafka could not be asked about them")
                continue
            tally = explained.setdefault(where, Counter())
            for piece in self._judge_missing(pieces, answer, tally):
                sought.setdefault(piece.entry, []).append(piece)
        self._judge_sought(sought, explained)
        self._judge_unreleased(explained)
        or_quarantine = any(self.counts.counted[piece.entry].quarantined for piece in self.removed)
        self._tell(
            Code.GAP,
            self.removed,
            "had a row each when they were written, and no row carries them now: they were removed from the sink"
            + (" or from its quarantine" if or_quarantine else ""),
        )
        for (topic, partition), tally in sorted(explained.items()):
            self.explained += tally
            if tally.total():
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(tally.items()) if count)
                self.findings.add(
                    Code.EXPLAINED,
                    f"{topic}-{partition}: {plural(tally.total(), 'offset')} without a row, all explained: {reasons}",
                    topic=topic,
                    partition=partition,
                )
        self.judge_present()

    def judge_present(self) -> None:
        """Rows that are there: of aborted transactions, doubled, or nobody's."""
        self._judge_phantoms()
        self._judge_duplicates()
        self._judge_strays()

    # -- offsets without a row -------------------------------------------------------------------------------------

    def _judge_missing(self, pieces: Sequence[Piece], answer: ProbeAnswer, tally: Counter[str]) -> Iterator[Piece]:
        """Tells what Kafka explains or has lost, and gives back what both readers see: it should have a row."""
        wanted = Spans.of((piece.start, piece.end) for piece in pieces)
        expired = wanted.intersect(Spans.of([(0, answer.log_start)]))
        rest = wanted.minus(expired)
        seen, aborted = rest.intersect(answer.committed), rest.intersect(answer.uncommitted).minus(answer.committed)
        unseen = rest.minus(answer.committed).minus(answer.uncommitted)
        sure = answer.asked.intersect(Spans.of([(0, answer.last_stable)])) if answer.truncated is None else Spans()
        doubtful = aborted.union(unseen).minus(sure)
        compacted = rewriting.is_compacted(answer.topic, self.witnesses)
        tally["aborted"] += aborted.intersect(sure).size
        tally["compacted" if compacted else "control"] += unseen.intersect(sure).size
        log_start = f"are in no row, and Kafka's log now starts at {answer.log_start}"
        gone = list(_within(pieces, expired))
        self._tell(Code.LOSS_RETENTION, (p for p in gone if p.leads), f"{log_start}: they cannot be read any more")
        self._tell(
            Code.INCONCLUSIVE,
            (p for p in gone if not p.leads),
            f"{log_start}: they were there when they were read, and whether they were records nobody can tell now",
        )
        why = answer.truncated or "the probe did not reach them"
        self._tell(
            Code.INCONCLUSIVE, _within(pieces, doubtful), f"are in no row, and Kafka could not explain them: {why}"
        )
        yield from _within(pieces, seen)

    def _judge_sought(
        self, sought: Mapping[int, Sequence[Piece]], explained: dict[TopicPartition, Counter[str]]
    ) -> None:
        """Records that both readers see and no row carries: filtered, if their micro-batch says so, else lost."""
        lost: list[Piece] = []
        undecided: list[Piece] = []
        in_state: list[Piece] = []
        awaited = set(_awaited(sought, self.counts, self.witnesses, self.findings))
        for entry, pieces in sought.items():
            dropped = self.counts.counted[entry].dropped
            count = sum(piece.end - piece.start for piece in pieces)
            if dropped is None and entry in awaited:
                continue
            if dropped is None and self.counts.operators.keeps_state(self.ledger.heads[entry]):
                in_state += pieces
            elif dropped is None and (self.counts.transforms or self.counts.only_rebuilt):
                undecided += pieces
            elif count <= (dropped or 0):
                for piece in pieces:
                    tally = explained.setdefault((piece.key.topic, piece.key.partition), Counter())
                    tally["filtered"] += piece.end - piece.start
            else:
                lost += pieces
        self._tell(
            Code.INCONCLUSIVE,
            undecided,
            "are in no row and in Kafka, and the micro-batch does not say how many it filtered",
        )
        self._tell(
            Code.INCONCLUSIVE,
            in_state,
            "are in no row and in Kafka: the query keeps state, and how many rows that let fall was not recorded; add "
            "recon.ProgressListener to the session",
        )
        recorded = (
            "are in Kafka and were read past, and no row carries them nor does the micro-batch say it dropped them"
        )
        self._tell(Code.GAP, lost, f"{recorded}; read exactly this range once more through the hook")

    def _tell(self, code: Code, pieces: Iterable[Piece], said: str) -> None:
        """One finding per unbroken range; the micro-batches that read it are named."""
        for joined in _joined(pieces):
            first, last = (self.ledger.heads[piece.entry] for piece in (joined[0], joined[-1]))
            key, start, end = joined[0].key, joined[0].start, joined[-1].end
            by = f"{named(first)} to {named(last)}" if first is not last else named(first)
            self.findings.add(
                code,
                f"{key}: {offsets(start, end)} of {by} {said}",
                head=first,
                topic=key.topic,
                partition=key.partition,
                start_offset=start,
                end_offset=end,
            )

    # -- rows that should not be there -------------------------------------------------------------------------------

    def _judge_phantoms(self) -> None:
        for where, answer in sorted(self.witnesses.probes.items()):
            if where not in self.stretches:
                continue
            stretches = self.stretches[where]
            there = self.present.get(where, Spans()).intersect(stretches.ranges).intersect(answer.asked)
            stable = Spans.of([(0, answer.last_stable)])
            phantoms = there.intersect(answer.uncommitted).minus(answer.committed).intersect(stable)
            pieces = stretches.pieces(phantoms)
            if answer.truncated is None:
                self._tell(
                    Code.PHANTOM_ROWS,
                    pieces,
                    "have rows, and their transaction was aborted: set kafka.isolation.level to read_committed and "
                    "remove the rows",
                )
            elif phantoms:
                self._tell(Code.INCONCLUSIVE, pieces, f"may be rows of aborted transactions: {answer.truncated}")

    def _judge_duplicates(self) -> None:
        for where, groups in sorted(self.groups.items()):
            stretches = self.stretches.get(where)
            if stretches is None:
                continue
            lives = stretches.incarnations
            for group in groups:
                self._judge_group(where, group, lives)
            if sum(group.present.size for group in groups) > self.present[where].size:
                if self._lawfully_again(where):
                    continue
                twice = Spans.of(span for span, depth in _depths(groups) if depth > lives)
                if lives > 1:
                    twice = twice.union(Spans.of(s for s, d in _depths(groups) if d > 1).minus(self._recurring(where)))
                said = "are in the rows of more than one micro-batch: remove those of the later one"
                self._tell(_doubled(self.witnesses), stretches.pieces(twice.intersect(stretches.ranges)), said)

    def _lawfully_again(self, where: TopicPartition) -> bool:
        """Whether a record may be in the rows of several micro-batches: a join gives it again with each partner."""
        stretches = self.stretches[where]
        entries = {piece.entry for piece in stretches.pieces(stretches.ranges)}
        return any(self.counts.operators.makes_rows(self.ledger.heads[entry]) for entry in entries)

    def _judge_group(self, where: TopicPartition, group: RowGroup, lives: int) -> None:
        """Rows of one batch_id that share an offset; two epochs may hide behind one batch_id."""
        surplus = group.rows - group.distinct_offsets
        if surplus <= 0:
            return
        stretches = self.stretches[where]
        mine = group.present.intersect(stretches.ranges)
        if not mine:
            return
        pieces = list(stretches.pieces(mine))
        if any(self.counts.counted[piece.entry].explodes for piece in pieces):
            return
        heads = [self.ledger.heads[piece.entry] for piece in pieces]
        if _rewrites(self.witnesses) and any((h.epoch, h.batch_id) not in self.counts.handed for h in heads):
            said = "have rows that share an offset, and whether a transform made several of one record is not known"
            self._tell(Code.INCONCLUSIVE, pieces[:1], said)
            return
        twice = Spans()
        for key in stretches.keys:
            twice = twice.union(self.counts.overlaps.get(key, Spans()).intersect(mine))
        if lives > 1:
            self._tell(
                Code.INCONCLUSIVE, pieces[:1], "lie in a topic that was re-created, and rows share their offsets"
            )
            return
        if twice.size == surplus:
            pieces = list(stretches.pieces(twice))
        hull = Spans.of([(pieces[0].start, pieces[-1].end)]).hull
        assert hull is not None
        if twice.size == surplus:
            self._tell(_doubled(self.witnesses), pieces, "have two rows each: remove those of the later attempt")
            return
        head = self.ledger.heads[pieces[0].entry]
        topic, partition = where
        self.findings.add(
            _doubled(self.witnesses),
            f"{topic}-{partition}: {plural(surplus, 'row')} too many among {offsets(*hull)} of {named(head)}: rows "
            "share an offset",
            head=head,
            topic=topic,
            partition=partition,
            start_offset=hull.start,
            end_offset=hull.end,
        )

    def _recurring(self, where: TopicPartition) -> Spans:
        """Offsets that more than one life of a re-created topic has: two rows with one offset are lawful there."""
        found = Spans()
        for key in self.stretches[where].keys:
            before = Spans()
            for life in self.counts.covered.lives[key]:
                covered = life.walked.covered
                found = found.union(before.intersect(covered))
                before = before.union(covered)
        return found

    def _judge_strays(self) -> None:
        """Rows that no entry accounts for; asked only when the whole ledger, up to now, is known."""
        if self.rows.unstamped_rows:
            self.findings.add(
                Code.UNSTAMPED,
                f"{plural(self.rows.unstamped_rows, 'row')} of {self.rows.location} have no _batch_id: another program "
                "wrote them",
            )
        if not self.ledger.complete or self.witnesses.period_to < self.witnesses.now:
            return
        claimed, frontier = self._claimed()
        for (topic, partition), present in sorted(self.present.items()):
            strays = present.minus(claimed.get((topic, partition), Spans()))
            if not self._rows_are_no_newer():
                strays = strays.intersect(Spans.of([(0, frontier.get((topic, partition), 0))]))
            hull = strays.hull
            if hull is not None:
                self.findings.add(
                    Code.UNSTAMPED,
                    f"{topic}-{partition}: rows carry {plural(strays.size, 'offset')} within {offsets(*hull)} that no "
                    "ledger entry accounts for: another program wrote them, or an entry is missing",
                    topic=topic,
                    partition=partition,
                    start_offset=hull.start,
                    end_offset=hull.end,
                )

    def _claimed(self) -> tuple[dict[TopicPartition, Spans], dict[TopicPartition, int]]:
        """What entries, and stamped commits that still lack one, account for; and how far that goes."""
        claimed: dict[TopicPartition, list[tuple[int, int]]] = {}
        for key, lives in self.counts.covered.lives.items():
            for life in lives:
                claimed.setdefault((key.topic, key.partition), []).extend(life.walked.covered)
        known = {(head.epoch, head.batch_id) for head in self.ledger.heads}
        logs = {} if isinstance(self.witnesses.delta, Unavailable) else self.witnesses.delta
        log = logs.get(self.witnesses.sink or "")
        for commit in log.commits.values() if log is not None else ():
            stamp = commit.stamp
            ours = stamp is not None and (stamp.pipeline, stamp.sink) == (self.ledger.pipeline, self.ledger.sink)
            if stamp is None or not ours or (stamp.epoch, stamp.batch_id) in known:
                continue
            for span in parse_offsets(stamp.offsets_text):
                if span.span.size > 0:
                    claimed.setdefault((span.topic, span.partition), []).append(span.span)
        merged = {where: Spans.of(ranges) for where, ranges in claimed.items()}
        return merged, {where: spans.hull.end for where, spans in merged.items() if spans.hull is not None}

    def _rows_are_no_newer(self) -> bool:
        """Whether the rows were read at a version that the Delta log's witness knows."""
        logs = self.witnesses.delta
        log = None if isinstance(logs, Unavailable) else logs.get(self.witnesses.sink or "")
        return (
            log is not None and log.last is not None and self.rows.version is not None and self.rows.version <= log.last
        )


def _within(pieces: Iterable[Piece], spans: Spans) -> Iterator[Piece]:
    """The parts of the pieces that lie in `spans`."""
    if not spans:
        return
    for piece in pieces:
        for start, end in Spans.of([(piece.start, piece.end)]).intersect(spans):
            yield piece._replace(start=start, end=end, leads=piece.leads and start == piece.start)


def _joined(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces that touch, together."""
    run: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.key, p.start)):
        if run and (run[-1].key, run[-1].end) != (piece.key, piece.start):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _depths(groups: Iterable[RowGroup]) -> Iterator[_Depth]:
    """How many groups carry each stretch of offsets, where any does."""
    steps: Counter[int] = Counter()
    for group in groups:
        for start, end in group.present:
            steps[start] += 1
            steps[end] -= 1
    depth, before = 0, 0
    for at in sorted(steps):
        if depth:
            yield _Depth(Span(before, at), depth)
        depth, before = depth + steps[at], at
