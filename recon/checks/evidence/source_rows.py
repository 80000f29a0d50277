"""source_rows: the check, and the order in which it looks at counts, rows and Kafka's answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import NonNegativeInt
from typing_extensions import override

from recon.checks.base import EvidenceCheck
from recon.judge.account.missing import held, judge_missing, without_row
from recon.judge.account.recorded import recorded
from recon.judge.findings import Findings, no_entries, quiet
from recon.judge.history.entries import entries_with_unrecorded_commits
from recon.judge.history.quarantine_log import judge_quarantine
from recon.judge.row_counts import Counts
from recon.judge.rows import rewriting, rows_from_commit_files, spot_check
from recon.judge.rows.exploded_rows import judge_made
from recon.judge.rows.filtered import judge_filtered, rows_filtered
from recon.judge.rows.of_sink import counts_of, looks_for_repeated_alone, misses_rows, rows_of
from recon.judge.rows.reasons import (
    added_by_others,
    attested,
    by_counts,
    changes,
    perhaps_repeated,
    read_twice,
    reasons,
    report_untold,
    without_rows,
)
from recon.judge.rows.sink_rows import (
    TopicPartition,
    judged_by_counts,
    rewrites,
    rows_lack_source,
    tell_explained,
)
from recon.judge.rows.surplus_rows import judge_present, judge_repeated_rows, judge_surplus
from recon.judge.rows.transactions import (
    doubtful_readings,
    judge_aborted,
    read_uncommitted,
    read_while_open,
    readings_of,
)
from recon.judge.rows.unwritten import judge_unwritten
from recon.model import Code, RowsWitness, Verdict, Witnesses, why_unknown
from recon.model.offsets import Spans
from recon.text import plural


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
        ledger = entries_with_unrecorded_commits(witnesses)
        if ledger is None:
            return no_entries(witnesses)
        counts = counts_of(ledger, witnesses)
        seen = witnesses.with_commit_rows(self._commits(counts, witnesses))
        if not rows_lack_source(seen) and (misses_rows(counts, seen) or perhaps_repeated(counts, seen)):
            seen = seen.with_rows()
        seen = seen.with_answers(lambda so_far: _questions(counts, so_far))
        return _judge_counts(counts, seen) if judged_by_counts(seen) else _judge(counts, seen)

    def _commits(self, counts: Counts, witnesses: Witnesses) -> Sequence[int]:
        """The commits into whose data files it looks: some that counts prove, else those that they leave open."""
        if judged_by_counts(witnesses):
            return ()
        if not by_counts(counts, witnesses):
            return spot_check.chosen(counts, witnesses, self.sample_rows)
        # Where counts leave a question that the rows of some commits do not answer, the sink's rows are read anyway.
        of_open = rows_from_commit_files.versions(counts, witnesses, self.test, self.sample_rows)
        return of_open or spot_check.chosen_of_made(counts, witnesses, self.sample_rows)


def _questions(counts: Counts, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
    """The offsets that Kafka's records alone can explain."""
    if witnesses.source_log is not None:
        return {}
    asked = {where: list(spans) for where, spans in doubtful_readings(counts, witnesses).items()}
    for where, spans in _questions_about_rows(counts, witnesses).items():
        asked.setdefault(where, []).extend(spans)
    return {where: Spans.of(spans) for where, spans in asked.items()}


def _questions_about_rows(counts: Counts, witnesses: Witnesses) -> Mapping[TopicPartition, Spans]:
    """The offsets without a row that nothing explains, and what may be of aborted transactions."""
    if judged_by_counts(witnesses):
        return rewriting.questions(counts, witnesses)
    sink = rows_of(counts, witnesses, Findings.of(witnesses))
    if sink is None or looks_for_repeated_alone(counts, witnesses):
        return {}
    unexplained = recorded(sink)[1].by_partition
    # Rows of aborted transactions lie anywhere in a partition that has offsets without a row.
    doubtful, opened = read_uncommitted(counts), read_while_open(counts, witnesses)
    asked = {where: [*pieces, *readings_of(counts.judged[where], doubtful)] for where, pieces in unexplained.items()}
    for where, stretches in counts.judged.items() if opened else ():
        asked.setdefault(where, []).extend(readings_of(stretches, opened))
    return {where: Spans.of((p.start, p.end) for p in pieces) for where, pieces in asked.items()}


def _report_perhaps_repeated(counts: Counts, witnesses: Witnesses, findings: Findings) -> None:
    """Retries of which rows would tell whether they doubled any, and rows could not be read."""
    rows = witnesses.rows
    lacks = "its rows have no _source_topic, _source_partition, _source_offset"
    findings.add_for_all(
        Code.ATTESTED_ONLY,
        perhaps_repeated(counts, witnesses),
        "the first micro-batch of a run may be one that the run before it had written already, and the sink keeps no "
        f"record of its writes; whether rows are in it twice is not known: {why_unknown(rows, lacks)}",
    )


def _judge(counts: Counts, witnesses: Witnesses) -> Verdict:
    """Counts first, then the rows, and Kafka's answers about offsets without a row."""
    why, findings = reasons(counts, witnesses), Findings.of(witnesses)
    sink, explained, missing = rows_of(counts, witnesses, findings), Counter[str](), 0
    with_row: dict[str, int] = {}
    if sink is not None and not looks_for_repeated_alone(counts, witnesses):
        missing = sum(one.piece.size for one in without_row(sink))
        if sink.rows.of is None:  # else the rows are not all of the period
            with_row = {"offsets_with_row": held(sink)}
        explained = judge_missing(sink)
    if sink is not None:
        judge_present(sink)
        judge_made(sink)
        spot_check.judge_swapped(counts, witnesses, findings)
    else:
        judge_aborted(counts, witnesses, findings, None)
    rows_tell = sink is not None and sink.rows.of is None
    judge_surplus(counts, witnesses, findings, rows_tell=rows_tell)
    if sink is None:
        judge_repeated_rows(counts, witnesses, findings)
    judge_filtered(counts, witnesses, findings)
    judge_quarantine(counts.covered.slice, witnesses, findings, rows_tell=rows_tell)
    judge_unwritten(counts, findings)
    if sink is None:
        _report_perhaps_repeated(counts, witnesses, findings)

    batches, proved = len(counts.counted), len(counts.counted) - len(counts.open)
    message = f"{plural(batches, 'micro-batch')}: as many rows as offsets"
    if not batches:
        message = quiet(counts.covered.slice)
    elif sink is not None:
        message = f"{plural(batches, 'micro-batch')}: every offset is in a row" + (
            f" or explained ({plural(missing, 'offset')} without a row)" if missing else ""
        )
        if sink.rows.of is not None:
            message += f"; counts prove {proved:,} of them, and the rows of the others were read from their data files"
    filtered = rows_filtered(counts)
    if filtered and witnesses.sink not in witnesses.routed:
        message += f"; {plural(filtered, 'row')} filtered by the transform"
    message += spot_check.said(witnesses)
    verdict = _verdict(counts, findings, message, missing, explained, **with_row, **spot_check.evidence(witnesses))
    if sink is not None or not why:
        return verdict
    if isinstance(witnesses.rows, RowsWitness):
        spot_check.report_unproved(counts, witnesses, findings)
        report_untold(counts, witnesses, witnesses.rows, findings)
        return findings.verdict(message, **verdict.evidence)
    proved -= len({*spot_check.contradictions(counts, witnesses), *spot_check.unproved(counts, witnesses)})
    return without_rows(verdict, witnesses.rows, why, f"the counts of {proved:,} of {batches:,} micro-batches agree; ")


def _judge_counts(counts: Counts, witnesses: Witnesses) -> Verdict:
    """Counts alone tell what was lost; rows only what is doubled, or which program wrote them."""
    findings = Findings.of(witnesses)
    of_partitions = rewriting.judge(counts, witnesses, findings, attested(counts, witnesses, findings))
    explained = tell_explained(of_partitions, "record", findings)
    judge_quarantine(counts.covered.slice, witnesses, findings, rows_tell=False)
    for change in changes(counts, witnesses):
        message = f"{change}: counts do not show which micro-batches' rows are gone"
        findings.add(Code.INCONCLUSIVE, message, about=change)
    doubling = [reason for reason in (read_twice(counts), added_by_others(counts, witnesses)) if reason]
    if rows_lack_source(witnesses):
        for reason in doubling:
            message = f"{reason}, and no row says which record it was made of"
            findings.add(Code.INCONCLUSIVE, message, about=reason)
    sink = rows_of(counts, witnesses, findings)
    if sink is not None:
        judge_present(sink)
    else:
        judge_surplus(counts, witnesses, findings, rows_tell=False)
    judge_unwritten(counts, findings)
    message, missing = quiet(counts.covered.slice), explained.total()
    if counts.counted:
        records = f"the records ({plural(missing, 'offset')} without one)" if missing else "offsets"
        batches = plural(len(counts.counted), "micro-batch")
        message = f"{batches}: rows taken in, left out and quarantined are as many as {records}"
        if rows_lack_source(witnesses):
            records = "their source has" if witnesses.source_log is not None else records
            message = f"{batches}: as many rows as {records}; which record each row was made of is not known"
            message += rewriting.said(counts, witnesses)
        filtered = rows_filtered(counts)
        if filtered and witnesses.source_log is not None and witnesses.sink not in witnesses.routed:
            message += f"; {plural(filtered, 'row')} filtered by the transform"
    verdict = _verdict(counts, findings, message, missing, explained)
    return (
        verdict
        if sink is not None or not doubling or not rewrites(witnesses)
        else without_rows(verdict, witnesses.rows, doubling)
    )


def _verdict(
    counts: Counts, findings: Findings, message: str, missing: int, explained: Mapping[str, int], **evidence: Any
) -> Verdict:
    return findings.verdict(
        message,
        batches=len(counts.counted),
        proved_by_counts=len(counts.counted) - len(counts.open),
        offsets_without_row=missing,
        filtered=rows_filtered(counts),
        explained=dict(explained),
        dropped_by_state=sum(counted.dropped_by_state for counted in counts.counted.values()),
        **evidence,
    )
