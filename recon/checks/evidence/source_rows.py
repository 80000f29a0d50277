"""source_rows: the check, and the order in which it looks at counts, rows and Kafka's answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import NonNegativeInt
from typing_extensions import override

from recon.base.text import plural
from recon.checks.base import EvidenceCheck
from recon.judge.account.missing import held, hidden, judge_missing, without_row
from recon.judge.account.recorded import recorded
from recon.judge.case import SinkCase, with_deletions
from recon.judge.coverage import by_partition
from recon.judge.findings import Findings, no_entries, quiet
from recon.judge.history.quarantine_log import judge_quarantine
from recon.judge.history.recon_commits import doubled
from recon.judge.row_counts import spans_of
from recon.judge.rows import filtered, reasons, surplus_rows, transactions
from recon.judge.rows.exploded_rows import judge_made
from recon.judge.rows.of_sink import RowEvidence, source_counts
from recon.judge.rows.sink_rows import SinkRows, TopicPartition, tell_explained
from recon.judge.source import Source
from recon.model import Code, RowsWitness, Verdict, Witnesses, why_unknown
from recon.model.grouping import united
from recon.model.offsets import Spans


@dataclass(frozen=True, kw_only=True)
class SourceRows(EvidenceCheck):
    """Every offset the stream read is in one row of the sink, or its absence is explained.

    It compares counts first, those of the ledger and the fingerprints of the write. What they leave open it looks for
    in the data files of the commits, then in the rows of the sink, then in Kafka, and stops where nothing is left.
    It needs the ledger; for what counts leave open the rows with `_source_topic`, `_source_partition` and
    `_source_offset`, and a broker that still holds the range. Without them the answer is "could not be proved".

    Args:
        sample_rows: rows of data files that one audit looks at without Spark, at most; a file counts for at least
            10,000. 0 looks at none, and where counts do not prove a micro-batch, the rows of the sink are read.

    Cost:
        no Spark job. The spot check takes about 0.2 s per million rows, and 2 ms per data file, on local disks.
    """

    test: ClassVar[str] = "source_rows"
    uses: ClassVar[Sequence[str]] = (
        "kafka",
        "delta",
        "delta_files",
        "sink_logs",
        "quarantine",
        "checkpoint",
        "progress",
    )
    scope: ClassVar[str] = "sink"
    reads_rows: ClassVar[bool] = True

    sample_rows: NonNegativeInt = 5_000_000

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        case = SinkCase(with_deletions(witnesses))
        if not case.entered.heads:
            return no_entries(witnesses)
        evidence = RowEvidence.of(case)
        evidence = evidence.look_at(self._commits(evidence))
        if not case.rows_lack_source and (evidence.misses_rows or evidence.perhaps_repeated):
            evidence = evidence.read_rows()
        source = case.source.asking(lambda so_far: _questions(evidence, so_far))
        return _judge_counts(evidence, source) if case.judged_by_counts else _judge(evidence, source)

    def _commits(self, evidence: RowEvidence) -> Sequence[int]:
        """The commits into whose data files it looks: some that counts prove, else those that they leave open."""
        if evidence.case.judged_by_counts:
            return ()
        if not evidence.by_counts:
            return evidence.spot.chosen(self.sample_rows)
        # Where counts leave a question that the rows of some commits do not answer, the sink's rows are read anyway.
        of_open = evidence.versions_of_open(self.sample_rows)
        if of_open or all(head.epoch <= 0 for head in evidence.counts.ledger.heads):
            return of_open
        # Where epochs share batch ids, the rows of the sink do not show which micro-batch made them.
        return evidence.spot.chosen(self.sample_rows, made=True)


def _questions(evidence: RowEvidence, source: Source) -> Mapping[TopicPartition, Spans]:
    """The offsets that Kafka's records alone can explain."""
    if source.log is not None:
        return {}
    return united(transactions.doubtful_readings(evidence.counts, source), _questions_about_rows(evidence, source))


def _questions_about_rows(evidence: RowEvidence, source: Source) -> Mapping[TopicPartition, Spans]:
    """The offsets without a row that nothing explains, and what may be of aborted transactions."""
    counts, sink = evidence.counts, evidence.sink
    if evidence.case.judged_by_counts:
        return source_counts(evidence.case, source).questions
    if sink is None or evidence.looks_for_repeated_alone:
        return {}
    asked = list(recorded(sink)[1].pieces)
    read = by_partition(read for entry in hidden(sink) for read in counts.ranges_of(entry))
    # Rows of aborted transactions lie anywhere in a partition that has offsets without a row.
    doubtful, opened = transactions.read_uncommitted(counts), transactions.read_while_open(counts, sink.proof)
    holed = {piece.where for piece in asked}
    for where, stretches in counts.judged.items():
        asked += transactions.readings_of(stretches, doubtful if where in holed else opened)
    return united(spans_of(asked), read)


def _report_perhaps_repeated(evidence: RowEvidence, findings: Findings) -> None:
    """Retries of which rows would tell whether they doubled any, and rows could not be read."""
    why = why_unknown(evidence.rows, "its rows have no _source_topic, _source_partition, _source_offset")
    retried = (
        "the first micro-batch of a run may be one that the run before it had written already, and the sink keeps "
    )
    retried += f"no record of its writes; whether rows are in it twice is not known: {why}"
    findings.add_for_all(Code.ATTESTED_ONLY, evidence.perhaps_repeated, retried)


def _judge(evidence: RowEvidence, source: Source) -> Verdict:
    """Counts first, then the rows, and Kafka's answers about offsets without a row."""
    findings, counts = Findings.of(evidence.case.witnesses), evidence.counts
    if evidence.sink is not None:
        return _with_rows(evidence, evidence.sink.told(source, findings))
    verdict, why = _without_rows(evidence, source, findings), evidence.reasons
    if not why:
        return verdict
    if isinstance(evidence.rows, RowsWitness):
        evidence.report_untold(evidence.rows, findings)
        return findings.verdict(verdict.message, **verdict.evidence)
    unsure = {*counts.open, *evidence.spot.contradictions, *evidence.spot.unproved}
    agree = f"the counts of {len(counts.counted) - len(unsure):,} of {len(counts.counted):,} micro-batches agree; "
    return reasons.without_rows(verdict, evidence.rows, why, agree)


def _with_rows(evidence: RowEvidence, sink: SinkRows) -> Verdict:
    """All rows, or those of the micro-batches in question."""
    counts, findings, rows_tell = sink.counts, sink.findings, sink.rows.of is None
    explained, missing, offsets = Counter[str](), 0, dict[str, int]()
    if not evidence.looks_for_repeated_alone:
        found = without_row(sink)
        missing = sum(classified.piece.size for classified in found)
        offsets = {"offsets_with_row": held(sink)} if rows_tell else {}  # else the rows are not all of the period
        explained = judge_missing(sink, found)
    surplus_rows.judge_present(sink)
    judge_made(sink)
    sink.spot.judge_swapped(findings)
    if not rows_tell:
        surplus_rows.judge_surplus(counts, sink.doubled, findings)
    _judge_besides(evidence, findings, rows_tell=rows_tell)
    every = (
        f"every offset is in a row or explained ({missing:,} without a row)" if missing else "every offset is in a row"
    )
    if not rows_tell:
        proved = len(counts.counted) - len(counts.open)
        every += f"; counts prove {proved:,} of them, and the rows of the others were read from their data files"
    return _verdict(evidence, findings, every, missing, explained, **offsets)


def _without_rows(evidence: RowEvidence, source: Source, findings: Findings) -> Verdict:
    """Counts alone, of the micro-batches that they prove."""
    case, counts, code = evidence.case, evidence.counts, doubled(evidence.case.writing.guarantee)
    transactions.judge_aborted(counts, source, case.proof, findings, None)
    surplus_rows.judge_surplus(counts, code, findings)
    surplus_rows.judge_repeated_rows(counts, case.record, case.proof, code, findings)
    _judge_besides(evidence, findings, rows_tell=False)
    _report_perhaps_repeated(evidence, findings)
    return _verdict(evidence, findings, "as many rows as offsets", 0, {})


def _judge_besides(evidence: RowEvidence, findings: Findings, *, rows_tell: bool) -> None:
    case = evidence.case
    if not case.is_route:  # in a route's entry, the rows of other routes count as filtered
        filtered.judge_filtered(case.counts, case.declared.max_filtered, findings)
    judge_quarantine(case.quarantine, findings, rows_tell=rows_tell)
    filtered.judge_unwritten(case.counts, findings)


def _judge_counts(evidence: RowEvidence, source: Source) -> Verdict:
    """Counts alone tell what was lost; rows only what is doubled, or which program wrote them."""
    case, counts = evidence.case, evidence.counts
    findings, against = Findings.of(case.witnesses), source_counts(case, source)
    attested = reasons.attested(counts, case.time, findings, rewrites=case.rewrites)
    explained = tell_explained(against.judge(findings, attested), "record", findings)
    judge_quarantine(case.quarantine, findings, rows_tell=False)
    doubling = [reason for reason in (reasons.read_twice(counts), reasons.added_by_others(case)) if reason]
    for reason in (*reasons.changes(case), *(doubling if case.rows_lack_source else ())):
        message = f"{reason}, and counts do not show which micro-batches' rows are concerned"
        findings.add(Code.INCONCLUSIVE, message, about=reason)
    if evidence.sink is not None:
        surplus_rows.judge_present(evidence.sink.told(source, findings))
    else:
        surplus_rows.judge_surplus(counts, doubled(case.writing.guarantee), findings)
    filtered.judge_unwritten(counts, findings)
    what = "rows taken in, left out and quarantined are as many as the records of their source"
    if case.rows_lack_source:
        what += f"; which record each row was made of is not known{against.confirmed}"
    verdict = _verdict(evidence, findings, what, explained.total(), explained)
    read = evidence.sink is not None or not doubling or not case.rewrites
    return verdict if read else reasons.without_rows(verdict, evidence.rows, doubling)


def _verdict(
    evidence: RowEvidence,
    findings: Findings,
    proved: str,
    missing: int,
    explained: Mapping[str, int],
    **offsets: Any,
) -> Verdict:
    counts, seen = evidence.counts, evidence.spot.evidence
    message, dropped = quiet(counts.ledger), filtered.rows_filtered(counts)
    if counts.counted:
        message = f"{plural(len(counts.counted), 'micro-batch')}: {proved}"
    if dropped and not evidence.case.is_route:
        message += f"; {plural(dropped, 'row')} filtered by the transform"
    if looked_at := seen.get("looked_at", {}).get("micro_batches"):
        message += f"; the rows of {plural(looked_at, 'micro-batch')} were looked at"
    return findings.verdict(
        message,
        batches=len(counts.counted),
        proved_by_counts=len(counts.counted) - len(counts.open),
        offsets_without_row=missing,
        filtered=dropped,
        explained=dict(explained),
        dropped_by_state=sum(counted.dropped_by_state for counted in counts.counted.values()),
        **offsets,
        **seen,
    )
