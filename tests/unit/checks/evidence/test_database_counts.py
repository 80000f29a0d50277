"""What a database counts of its own rows, against what its record accounts for and what the last audit saw."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recon.audits.proof import advance
from recon.checks.evidence.sink_commits import SinkCommits
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.case import SinkCase
from recon.judge.history.record_history import (
    OtherRows,
    RecordHistory,
    TableFingerprint,
    TableJudged,
)
from recon.judge.open_findings import with_open_findings
from recon.model import (
    REMOVALS,
    CheckResult,
    Code,
    DeclaredRows,
    Finding,
    LedgerSlice,
    ReconStamp,
    RecordCount,
    SinkCommit,
    SinkLog,
    TableCount,
    Unavailable,
    Verdict,
    Witnesses,
    offsets_text,
)
from recon.model.fingerprint import of_offsets, of_ranges
from recon.model.proof import OpenFinding, Proofs
from recon.testing.evidence import PIPELINE, SINK, START, TOPIC, Entry, ledger, span
from tests.support.asked import wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import after, codes, group, rows, sink_proof, witnesses

ME, OTHER = (PIPELINE, SINK), ("p2", "s2")


def entry(batch_id: int, *, filtered: int = 0, **head: Any) -> Entry:
    """A micro-batch of ten records, whose fingerprints say that each went into the sink as it was read."""
    read = of_ranges([span(10 * batch_id, 10 * batch_id + 10)])
    given: dict[str, Any] = {
        "rows_read": 10,
        "rows_written": 10 - filtered,
        "rows_filtered": filtered,
        "fingerprint_read": read,
        "fingerprint_returned": read,
        "fingerprint_given": read,
    }
    return Entry(batch_id, (10 * batch_id, 10 * batch_id + 10), sink_version=None, **{**given, **head})


ENTRIES = [entry(i) for i in range(3)]
LEDGER = ledger(*ENTRIES)


def commit(of: Entry, by: tuple[str, str] = ME, *, epoch: int = 0, **fields: Any) -> SinkCommit:
    stamp = ReconStamp(
        pipeline=by[0], sink=by[1], epoch=epoch, batch_id=of.batch_id, query_id="q-1", run_id=None, prev_hash="",
        offsets_text=offsets_text(of.ranges),
    )  # fmt: skip
    return SinkCommit(**{"version": None, "stamp": stamp, "rows": 10, "at": START + timedelta(minutes=1), **fields})


def count(held: int = 30, repeated: int | Unavailable = 0, **fields: Any) -> TableCount:
    """A table of which `held` rows are of our topic; three micro-batches of ten were written."""
    made = {"rows": {TOPIC: held}, "topics": frozenset([TOPIC]), "repeated": repeated, "written": {ME: 30}}
    return TableCount(**{**made, **fields})


def seen(
    table: TableCount | Unavailable | None,
    before: TableJudged | None = None,
    *,
    slice_: LedgerSlice = LEDGER,
    other_rows: int | None = None,
    recorded: bool = True,
    commits: tuple[SinkCommit, ...] = tuple(map(commit, ENTRIES)),
    open_: tuple[OpenFinding, ...] = (),
    **fields: Any,
) -> Witnesses:
    log = SinkLog(location="orders", exists=True, commits=commits, recorded=recorded, table=table)
    proof = sink_proof(OtherRows(rows=other_rows) if other_rows is not None else None, before, open=open_)
    proofs = Proofs(of_sink={SINK: proof} if before is not None or open_ else {})
    return witnesses(slice_, sink_logs={SINK: log}, proofs=proofs, **fields)


def history(seen_: Witnesses) -> RecordHistory:
    """What happened to the sink."""
    found = SinkCase(seen_).record
    assert found is not None
    return found


def of_commits(seen_: Witnesses) -> list[Code]:
    return codes(SinkCommits().judge(seen_))


def of_rows(seen_: Witnesses) -> Verdict:
    return SourceRows().judge(seen_)


UNREAD = Unavailable("rows", "Spark is not wanted (--no-spark)", skipped=True)


def test_as_many_rows_as_were_written_and_none_doubled() -> None:
    whole = seen(count())
    assert of_commits(whole) == [] and of_rows(whole).findings == ()
    assert not wants_rows(SourceRows(), whole) and history(whole).nothing_repeated
    # What was there at the last audit was told then.
    assert of_commits(seen(count(33, 3), TableJudged(own=3, repeated=3), other_rows=3)) == []


def test_one_row_removed_and_another_doubled() -> None:
    both = seen(count(30, 1), rows=UNREAD)
    verdict = of_rows(both)
    assert codes(verdict) == [Code.DUPLICATE] and same_message(verdict.message) and wants_rows(SourceRows(), both)
    assert of_commits(both) == [Code.MUTATED]
    # Two doubled and one removed: one row more than was written.
    assert history(seen(count(31, 2))).removed == 1 and history(seen(count(31, 2))).changed == 1
    # Doubled alone.
    assert history(seen(count(31, 1))).removed == 0 and of_commits(seen(count(31, 1))) == []


@pytest.mark.parametrize("may_double", [entry(2, filtered=2), entry(2, fingerprint_given=6), entry(2, rows_read=None)])
def test_where_the_query_may_have_doubled_the_row_itself_none_is_said_to_be_gone(may_double: Entry) -> None:
    """It wrote as many rows as the record says; which of them share an offset is source_rows' business."""
    own = seen(count(30, 1), slice_=ledger(*ENTRIES[:2], may_double), rows=UNREAD)
    assert Code.MUTATED not in of_commits(own) and Code.DUPLICATE in codes(of_rows(own))


def test_a_doubled_row_that_is_removed_is_no_loss() -> None:
    before = TableJudged(own=2, repeated=2)
    assert of_commits(seen(count(30, 0), before, other_rows=2)) == []
    gone = SinkCommits().judge(seen(count(29, 0), before, other_rows=2))  # and a row besides
    assert codes(gone) == [Code.MUTATED] and gone.findings[0].rows == 1
    # A repair of recon's removed them, and its record says so: the figures stay.
    repaired = count(30, 0, written={ME: 28}, removed=2)
    assert of_commits(seen(repaired, before, other_rows=2)) == []
    assert codes(SinkCommits().judge(seen(replace(repaired, rows={TOPIC: 29}), before, other_rows=2))) == [Code.MUTATED]


def test_rows_that_may_lawfully_share_an_offset_are_not_counted_as_doubled() -> None:
    explodes = {"declared": DeclaredRows(explodes=True)}
    again = ledger(*ENTRIES[:2], Entry(2, span(0, 10, topic_id="another"), sink_version=None))
    sources = ledger(*ENTRIES[:2], Entry(2, span(20, 30), span(20, 30, source=1), sink_version=None))
    for lawful in (
        seen(count(30, 4), **explodes),
        seen(count(30, 4), slice_=again),
        seen(count(30, 4), slice_=sources),
    ):
        assert history(lawful).may_repeat and history(lawful).repeated_since == 0
        assert Code.MUTATED not in of_commits(lawful)
    assert of_commits(seen(count(29, 4), **explodes)) == [Code.MUTATED], "how many there are is known all the same"


def test_another_pipeline_of_other_topics_is_none_of_ours() -> None:
    other = {"written": {ME: 30, OTHER: 20}, "others": (commit(Entry(0, span(0, 20, topic="payments")), OTHER),)}
    for theirs in (20, 3, 40):  # its rows may come and go
        table = count(rows={TOPIC: 30, "payments": theirs}, **other)
        assert of_commits(seen(table)) == [] and not wants_rows(SourceRows(), seen(table))
        # It may even replace its rows by a key.
        assert of_commits(seen(replace(table, has_unique_key=True))) == []
    assert of_commits(seen(count(rows={TOPIC: 29, "payments": 21}, **other))) == [Code.MUTATED]


def test_the_rows_of_all_pipelines_where_one_reads_our_topic_as_well() -> None:
    """It read other partitions: as many rows as both wrote, and none doubled."""
    theirs = commit(Entry(0, span(0, 20, partition=1)), OTHER)
    both = {"written": {ME: 30, OTHER: 20}, "others": (theirs,)}
    assert of_commits(seen(count(50, **both))) == [] and not wants_rows(SourceRows(), seen(count(50, **both)))
    assert of_commits(seen(count(49, **both))) == [Code.MUTATED]
    # Where rows may replace each other by a key, their number says nothing.
    unknown = SinkCommits().judge(seen(count(49, has_unique_key=True, **both)))
    assert codes(unknown) == [Code.ATTESTED_ONLY] and same_message(unknown.message)


def test_another_pipeline_wrote_our_offsets() -> None:
    """Fault case 43 in a database."""
    theirs = commit(Entry(0, (0, 20)), OTHER)
    table = count(50, 20, written={ME: 30, OTHER: 20}, others=(theirs,))
    without = of_rows(seen(table, rows=UNREAD))
    assert codes(without) == [Code.DUPLICATE] and of_commits(seen(table)) == []
    mine = [group(i, (10 * i, 10 * i + 10)) for i in range(3)]
    repeated = [group(0, (0, 20), rows=40)]
    read = rows(group(0, (0, 20), rows=30), *mine[1:], repeated=repeated)
    verdict = of_rows(seen(table, rows=read))
    assert set(codes(verdict)) == {Code.DUPLICATE, Code.OVERLAP}
    (overlap,) = (f for f in verdict.findings if f.code is Code.OVERLAP)
    assert overlap.span == (0, 20) and same_message(overlap.message)


def test_another_pipeline_wrote_our_topic_and_nothing_counts_the_doubled_rows() -> None:
    theirs = commit(Entry(0, (0, 20)), OTHER)
    slow = Unavailable("sink_logs", "its rows were not grouped within 50 s")
    table = count(50, slow, written={ME: 30, OTHER: 20}, others=(theirs,))
    assert wants_rows(SourceRows(), seen(table)) and of_rows(seen(table, rows=UNREAD)).skipped
    assert of_commits(seen(table)) == [Code.ATTESTED_ONLY]
    assert of_commits(seen(count(30, slow))) == [Code.ATTESTED_ONLY]
    # A table whose rows name no source is counted as a whole, as ever.
    nameless = count(rows={None: 29}, repeated=slow)
    assert of_commits(seen(nameless)) == [Code.MUTATED]
    assert of_commits(seen(replace(nameless, rows={None: 30}))) == []


def test_whether_rows_are_doubled_that_the_query_may_make_is_not_known() -> None:
    theirs = commit(Entry(0, (0, 20)), OTHER)
    table = count(50, 23, written={ME: 30, OTHER: 20}, others=(theirs,))
    mine = [group(0, (0, 10), rows=33), *(group(i, (10 * i, 10 * i + 10)) for i in (1, 2))]
    read = rows(*mine, repeated=[group(0, (0, 20), rows=40), group(0, (25, 28), rows=6)])
    explodes = seen(table, rows=read, declared=DeclaredRows(explodes=True))
    assert wants_rows(SourceRows(), explodes)
    found = [f for f in of_rows(explodes).findings if f.code is Code.INCONCLUSIVE]
    assert [f.span for f in found] == [(0, 20)], "what it made itself is its own"
    assert same_message(found[0].message)


def test_which_rows_are_doubled_is_told_by_offset() -> None:
    table, mine = count(31, 1), [group(0, (0, 10), rows=11), group(1, (10, 20)), group(2, (20, 30))]
    (found,) = of_rows(seen(table, rows=rows(*mine, repeated=[group(0, (4, 5), rows=2)]))).findings
    assert (found.code, found.span, found.batch_id, found.rows) == (Code.DUPLICATE, (4, 5), 0, 1)
    assert same_message(found.message)
    # Of a micro-batch that was judged long ago, whose rows are not among those that were read by micro-batch.
    later = ledger(*ENTRIES, anchors=2)
    read = rows(group(2, (20, 30)), repeated=[group(0, (4, 5), rows=2)])
    (found,) = of_rows(seen(table, TableJudged(own=0, repeated=0), slice_=later, rows=read)).findings
    assert (found.code, found.span, found.batch_id) == (Code.DUPLICATE, (4, 5), None) and same_message(found.message)


def test_doubled_rows_of_a_partition_that_is_idle_and_of_another_pipeline_alone() -> None:
    table, mine = count(31, 1), [group(i, (10 * i, 10 * i + 10)) for i in range(3)]
    idle = rows(*mine, repeated=[group(0, (4, 5), rows=2, partition=7)])
    (found,) = of_rows(seen(table, TableJudged(own=0, repeated=0), rows=idle)).findings
    assert (found.code, found.partition, found.span) == (Code.DUPLICATE, 7, (4, 5))
    # Another pipeline read that partition, and we did not: its audit says so. Whose they are, rows alone tell.
    theirs = commit(Entry(0, span(0, 10, partition=7)), OTHER)
    shared = count(41, 1, written={ME: 30, OTHER: 10}, others=(theirs,))
    assert of_rows(seen(shared, rows=idle)).failures == 0
    without = of_rows(seen(shared, rows=UNREAD))
    assert without.findings == () and without.skipped and "41 rows of 40 different source offsets" in without.message
    # Of one that we did not read, and nobody else, either.
    beyond = rows(*mine, repeated=[group(0, (400, 401), rows=2)])
    assert codes(of_rows(seen(table, rows=beyond))) == [Code.DUPLICATE]


def test_one_range_that_was_written_twice_after_its_rows_were_removed() -> None:
    again = entry(7)
    again.ranges = ENTRIES[1].ranges
    twice = ledger(*ENTRIES, again)
    commits = (*map(commit, ENTRIES), commit(again))
    assert Code.DUPLICATE in of_commits(seen(count(40, 10, written={ME: 40}), slice_=twice, commits=commits))
    removed = of_commits(seen(count(30, 0, written={ME: 40}), slice_=twice, commits=commits))
    assert removed == [Code.MUTATED]


def test_offsets_that_recon_yml_says_are_not_to_be_counted_are_no_question() -> None:
    chosen = Unavailable("sink_logs", "recon.yml says count_offsets: false", skipped=True)
    for table, expected in ((count(30, chosen), []), (count(29, chosen), [Code.MUTATED])):
        assert of_commits(seen(table)) == expected
    verdict = SinkCommits().judge(seen(count(30, chosen)))
    assert "whether rows are doubled was not counted (recon.yml says count_offsets: false)" in verdict.message
    slow = replace(chosen, skipped=False)
    assert of_commits(seen(count(30, slow))) == [Code.ATTESTED_ONLY]


def test_a_plain_append_without_a_record() -> None:
    fields: dict[str, Any] = {"recorded": False, "commits": (), "guarantees": {SINK: "at-least-once"}, "rows": UNREAD}
    table = count(31, 1, written=None)
    assert Code.REPEATED in codes(of_rows(seen(table, **fields)))
    assert Code.MUTATED not in of_commits(seen(count(12, written=None), **fields)), "how many were written, none says"


@pytest.mark.parametrize(
    ("rows", "numbered", "missing"),
    [
        ({TOPIC: 29, None: 1}, 29, 1),  # a row of no topic in the place of one of ours
        ({TOPIC: 29, "others": 1}, 29, 1),
        ({TOPIC: 30}, 29, 1),  # one that names our topic, and no micro-batch
        ({TOPIC: 29, None: 5}, 29, 1),
        ({TOPIC: 30, None: 5}, 30, 0),
        ({TOPIC: 31}, 30, 0),
    ],
)
def test_rows_that_others_add_make_up_for_none_that_is_gone(
    rows: dict[str | None, int], numbered: int, missing: int
) -> None:
    table = count(rows=rows, numbered={TOPIC: numbered})
    before = TableJudged(own=0, repeated=0, numbered=0)
    found = SinkCommits().judge(seen(table, before, other_rows=0)).findings
    assert [f.rows for f in found if f.code is Code.MUTATED] == ([missing] if missing else [])


def test_a_doubled_row_without_a_number_hides_nothing_and_is_no_removal() -> None:
    before = TableJudged(own=0, repeated=0, numbered=0)
    assert of_commits(seen(count(31, 1, numbered={TOPIC: 30}), before, other_rows=0, rows=UNREAD)) == []
    assert of_commits(seen(count(30, 1, numbered={TOPIC: 29}), before, other_rows=0, rows=UNREAD)) == [Code.MUTATED]
    # Whoever added the row takes it away again.
    then = TableJudged(own=1, repeated=1, numbered=0)
    assert of_commits(seen(count(30, 0, numbered={TOPIC: 30}), then, other_rows=1)) == []


def test_rows_of_another_pipeline_that_reads_our_topic_are_numbered_too() -> None:
    table = count(39, numbered={TOPIC: 39}, written={ME: 30, OTHER: 10}, others=(commit(ENTRIES[0], OTHER),))
    of_sink = seen(table, TableJudged(own=0, repeated=0, numbered=0), other_rows=0, rows=UNREAD)
    judged = after(TableJudged, of_sink)
    assert judged is not None and judged.numbered is None


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (RecordCount(newest=3, writes=3, rows=30, kept=(2, 20)), []),
        (
            RecordCount(newest=3, writes=2, rows=20, kept=(1, 10)),
            ["up to number 2 it has 1 write (10 rows), and had 2 (20 rows) "],
        ),
        (
            RecordCount(newest=3, writes=3, rows=29, kept=(2, 19)),
            ["2 writes (19 rows), and had 2 (20 rows) "],
        ),
        (RecordCount(newest=3, writes=3, rows=None, kept=(2, None)), []),
    ],
)
def test_a_record_that_lost_writes_since_the_last_audit(record: RecordCount, said: list[str]) -> None:
    log = SinkLog(location="orders", exists=True, commits=tuple(map(commit, ENTRIES)), record=record)
    proofs = Proofs(of_sink={SINK: sink_proof(TableJudged(record=(2, 2, 20)))})
    of_sink = witnesses(LEDGER, sink_logs={SINK: log}, proofs=proofs)
    found = [f.message for f in SinkCommits().judge(of_sink).findings]
    assert len(found) == len(said) and all(words in message for words, message in zip(said, found, strict=True)), found
    judged = after(TableJudged, of_sink)
    assert judged is not None and judged.record == (record.newest, record.writes, record.rows)


def test_a_record_that_could_not_be_counted_is_said_and_one_that_is_gone_is_told_once() -> None:
    silent = Unavailable("sink_logs", "the record of sink s was not looked at: it did not answer")
    before = TableJudged(own=0, repeated=0, numbered=0, record=(2, 2, 20))
    unread = SinkLog(
        location="orders",
        exists=True,
        commits=tuple(map(commit, ENTRIES)),
        table=count(numbered={TOPIC: 30}),
        record=silent,
    )
    proofs = Proofs(of_sink={SINK: sink_proof(OtherRows(rows=0), before)})
    of_sink = witnesses(LEDGER, sink_logs={SINK: unread}, proofs=proofs)
    (said,) = SinkCommits().judge(of_sink).findings
    assert said.code is Code.ATTESTED_ONLY and "did not answer" in said.message
    judged = after(TableJudged, of_sink)
    assert judged is not None and judged.record == before.record  # the next audit compares from there

    gone = SinkLog(location="orders", exists=False)
    of_sink = witnesses(LEDGER, sink_logs={SINK: gone}, proofs=proofs)
    (mutated,) = (f for f in SinkCommits().judge(of_sink).findings if f.code is Code.MUTATED)
    assert "up to number 2 it has 0 writes (rows not counted), and had 2 " in mutated.message
    judged = after(TableJudged, of_sink)
    assert judged is not None and judged.record is None


@pytest.mark.parametrize("written", [10, 0])
def test_a_table_that_is_not_there(written: int) -> None:
    commits = tuple(commit(one, rows=written) for one in ENTRIES)
    log = SinkLog(location="orders", exists=True, commits=commits, gone=True)
    entries = ledger(*(entry(n, rows_written=written) for n in range(3)))
    found = of_commits(witnesses(entries, sink_logs={SINK: log}))
    assert (Code.MUTATED in found) == (written > 0)


def test_what_is_remembered() -> None:
    def remembered(table: TableCount | Unavailable, before: TableJudged | None = None) -> tuple[Any, Any]:
        of_sink = seen(table, before, other_rows=4)
        return after(OtherRows, of_sink), after(TableJudged, of_sink)

    assert remembered(count(32, 1)) == (OtherRows(rows=2), TableJudged(own=2, repeated=1))
    assert remembered(count(30, 0, written={ME: 28}, removed=2)) == (OtherRows(rows=2), TableJudged(own=2, repeated=2))
    before, slow = TableJudged(own=7, repeated=3), Unavailable("sink_logs", "it did not answer")
    assert remembered(slow, before) == (OtherRows(rows=4), before)
    assert remembered(count(31, slow), before) == (OtherRows(rows=1), TableJudged(own=1, repeated=3, together=False))
    shared = count(31, written={ME: 30, OTHER: 9}, has_unique_key=True)
    assert remembered(shared, before) == (OtherRows(rows=4), TableJudged(own=1, repeated=0))


def test_figures_of_two_audits_are_not_compared_with_each_other() -> None:
    """The last audit counted rows, and gave up on their offsets: what it saw of both is not of one moment."""
    apart = TableJudged(own=1, repeated=0, together=False)
    doubled_before = seen(count(31, 1), apart, other_rows=1, rows=UNREAD)  # by that audit's time, or since
    assert of_commits(doubled_before) == [] and codes(of_rows(doubled_before)) == [Code.DUPLICATE]
    # Two doubled rows went before that audit, and two others since: these are no longer the doubled ones.
    lost = seen(count(28, 0), TableJudged(own=0, repeated=2, together=False), other_rows=0)
    assert of_commits(lost) == [Code.MUTATED]


def doubled(message: str = "orders-0: offsets [4, 5) have 2 rows each", **fields: Any) -> OpenFinding:
    finding = Finding(code=Code.DUPLICATE, message=message, pipeline=PIPELINE, sink=SINK, **fields)
    return OpenFinding(finding=finding, check="source_rows", first_seen=START, last_seen=START)


def test_doubled_rows_are_repaired_once_the_table_has_none() -> None:
    """Whatever micro-batch they are of, and without reading a row."""
    placed = doubled(topic=TOPIC, partition=0, start_offset=4, end_offset=5)
    counted = doubled("orders has 31 rows of 30 different source offsets")
    later = ledger(*ENTRIES, anchors=2)
    for table, left in ((count(30, 0), set()), (count(31, 1), {Code.DUPLICATE})):
        before = TableJudged(own=1, repeated=1)
        audit = seen(table, before, slice_=later, other_rows=1, open_=(placed, counted), rows=UNREAD)
        verdict = with_open_findings(of_rows(audit), "source_rows", audit)
        assert {f.code for f in verdict.findings} - {Code.REPAIRED} == left, verdict.findings
        assert (Code.REPAIRED in codes(verdict)) == (not left)


def test_a_removal_of_another_pipelines_repair_excuses_no_loss() -> None:
    removal = commit(Entry(0, (0, 20)), OTHER, epoch=REMOVALS)
    table = count(48, 0, written={ME: 30, OTHER: 20}, others=(removal,))
    assert history(seen(table, TableJudged(own=20, repeated=2))).removed == 2


def test_the_proof_keeps_the_figures() -> None:
    names = ("ledger_integrity", "offset_continuity", "checkpoint_commits", "sink_commits", "source_rows")
    results = [
        CheckResult(
            unique_id=name, name=name, check=name, kind="evidence", status="pass", failures=0, message="",
            pipeline=PIPELINE, sink=SINK,
        )
        for name in names
    ]  # fmt: skip
    state = advance(None, SINK, seen(count(32, 1), slice_=ledger(*ENTRIES, complete=True)), results, "1")
    assert state is not None and state.memory(OtherRows) == OtherRows(rows=2)
    assert state.memory(TableJudged) == TableJudged(own=2, repeated=1)


def test_the_whole_sink_is_searched_only_where_something_may_be_doubled() -> None:
    assert not history(seen(count(30))).doubled_by_others
    assert history(seen(count(30, 1))).doubled_by_others and history(seen(count(31))).doubled_by_others
    assert not history(seen(count(29))).doubled_by_others
    # A folder of files into which another pipeline writes, too: its manifests say so.
    folder = seen(None, commits=(*map(commit, ENTRIES), commit(Entry(9, (0, 10)), OTHER)))
    assert history(folder).doubled_by_others
    assert not history(seen(None, commits=(commit(Entry(9, span(0, 10, topic="payments")), OTHER),))).doubled_by_others


# -- what happens to a table from audit to audit -----------------------------------------------------------------------


class World:
    """A table, its record and whoever writes it; `audit` compares what a database would count with what happened."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: Counter[tuple[str, int]] = Counter()
        self.written: Counter[tuple[str, str]] = Counter()
        self.removed = 0
        self.others: list[tuple[int, SinkCommit]] = []  # by the audit before them
        self.entries: list[Entry] = []
        self.judged, self.audits, self.other_rows = TableJudged(), 0, 0

    @property
    def mine(self) -> list[tuple[str, int]]:
        return [place for place, rows in self.rows.items() if rows and place[0] == TOPIC]

    @property
    def shared(self) -> bool:
        """Whether another pipeline ever wrote our topic."""
        return any(f'"{TOPIC}"' in one.stamp.offsets_text for _, one in self.others)

    @property
    def doubled(self) -> list[tuple[str, int]]:
        return [place for place in self.mine if self.rows[place] > 1]

    def own_write(self) -> None:
        self.entries.append(entry(len(self.entries)))
        self.rows.update((TOPIC, offset) for span in self.entries[-1].ranges for offset in range(*span.span))
        self.written[ME] += 10

    def others_write(self, topic: str = "payments", start: int = 0) -> None:
        self.others.append((self.audits, commit(Entry(0, span(start, start + 10, topic=topic)), OTHER)))
        self.rows.update((topic, offset) for offset in range(start, start + 10))
        self.written[OTHER] += 10

    def others_lose(self) -> None:
        """Rows of another topic go; where its pipeline reads our topic, too, it is not known whose rows they are."""
        for place in () if self.shared else [place for place in self.rows if place[0] == "payments"][:3]:
            del self.rows[place]

    def single(self) -> list[tuple[str, int]]:
        """Places with one row; there are some, as the stream goes on."""
        places = [place for place in self.mine if self.rows[place] == 1]
        if len(places) > 2:
            return places
        self.own_write()
        return self.single()

    def delete(self) -> None:
        for place in self.random.sample(self.single(), 2):
            del self.rows[place]

    def double(self) -> None:
        self.rows.update(self.random.sample(self.mine, 3))

    def delete_and_double(self) -> None:
        del self.rows[self.random.choice(self.single())]
        self.rows[self.random.choice(self.mine)] += 1

    def others_double(self) -> None:
        self.others_write(TOPIC, 0)

    def remove_doubled(self, *, by_repair: bool = False) -> None:
        for place in self.doubled:
            gone, self.rows[place] = self.rows[place] - 1, 1
            self.removed += gone * by_repair
            self.written[ME] -= gone * by_repair

    def repair(self) -> None:
        self.remove_doubled(by_repair=True)

    def audit(self) -> set[Code]:
        by_topic: Counter[str | None] = Counter()
        for (topic, _), rows_ in self.rows.items():
            by_topic[topic] += rows_
        repeated = sum(self.rows[place] - 1 for place in self.mine)
        listed = [one for at, one in self.others if repeated or at >= self.audits - 1]
        table = TableCount(
            rows=by_topic, topics=frozenset([TOPIC]), repeated=repeated, written=dict(self.written),
            removed=self.removed, others=tuple(listed),
        )  # fmt: skip
        commits = tuple(map(commit, self.entries))
        of_sink = seen(
            table, self.judged, slice_=ledger(*self.entries), other_rows=self.other_rows, commits=commits, rows=UNREAD
        )
        found = {*of_commits(of_sink), *codes(of_rows(of_sink))}
        self.judged = after(TableJudged, of_sink) or TableJudged()
        others = after(OtherRows, of_sink)
        self.other_rows = others.rows if others is not None else 0
        self.audits += 1
        return found


LAWFUL = (World.own_write, World.others_write, World.others_lose)
FAULTS = {
    World.delete: {Code.MUTATED},
    World.double: {Code.DUPLICATE},
    World.delete_and_double: {Code.DUPLICATE, Code.MUTATED},
    World.others_double: {Code.DUPLICATE},
}


@pytest.mark.parametrize("seed", range(100))
def test_faults_among_lawful_writes(seed: int) -> None:
    """Each fault is found by the next audit and no later one, and nothing else is."""
    world = World(seed)
    world.own_write()
    assert world.audit() == set()
    for _ in range(12):
        fault = world.random.choice([*FAULTS, None])
        lawful = LAWFUL[:2] if fault is World.others_double else LAWFUL
        for happens in world.random.choices(lawful, k=world.random.randrange(4)):
            happens(world)
        if fault is not None:
            fault(world)
        found = world.audit()
        expected = FAULTS.get(fault, set())
        if world.shared:  # another pipeline may have doubled it
            expected = expected - {Code.MUTATED} if fault is World.delete_and_double else expected
        assert found - {Code.OVERLAP} == expected, (fault, found)
        if world.doubled and world.random.random() < 0.5:
            world.random.choice([World.remove_doubled, World.repair])(world)
            assert world.audit() == set()


# -- fingerprints ------------------------------------------------------------------------------------------------------


def wrote(batch_id: int, offsets: Sequence[int], **head: Any) -> Entry:
    """A micro-batch that gave the sink rows of some of its ten offsets."""
    given = {"rows_given": len(offsets), "rows_written": len(offsets), "rows_filtered": None}
    return entry(batch_id, **{**given, "fingerprint_given": of_offsets(TOPIC, 0, offsets), **head})


def fingerprinted(held: Sequence[int], entries: Sequence[Entry], known: int = 0, **fields: Any) -> TableCount:
    """What the database says of a table with rows of these offsets, all with a `_batch_id`, behind write `known`."""
    brought = sum(one.head["rows_written"] for one in entries)
    return count(
        **{
            "rows": {TOPIC: len(held)},
            "numbered": {TOPIC: len(held)},
            "repeated": len(held) - len(set(held)),
            "written": {ME: brought},
            "fingerprint": of_offsets(TOPIC, 0, held),
            "newest": len(entries),
            "new": tuple((0, one.batch_id) for one in entries[known:]),
            **fields,
        }
    )


def test_another_row_takes_the_place_of_one() -> None:
    entries = [wrote(i, range(10 * i, 10 * i + 10)) for i in range(3)]
    whole, of_all = list(range(30)), ledger(*entries)

    def told(
        held: Sequence[int], before: TableJudged | None = None, slice_: LedgerSlice = of_all, **fields: Any
    ) -> str:
        known = before.fingerprint.newest if before is not None and before.fingerprint is not None else 0
        table = fingerprinted(held, entries, known, **fields)
        of_sink = seen(table, before, slice_=slice_, other_rows=None if before is None else 0, rows=UNREAD)
        found = SinkCommits().judge(of_sink).findings
        replaced = [one.message for one in found if "of other source offsets" in one.message]
        assert all(map(same_message, replaced)) and bool(replaced) == bool(history(of_sink).replaced)
        assert not replaced or wants_rows(SourceRows(), of_sink)
        return " ".join(replaced)

    swapped = [*whole[:3], *whole[4:], 99]
    assert not told(whole) and told(swapped)
    assert not told(whole[1:]) and not told([*whole, 99]), "their number tells of these"
    before = after(TableJudged, seen(fingerprinted(whole[:20], entries[:2]), slice_=ledger(*entries[:2])))
    assert before is not None and before.fingerprint == TableFingerprint(
        location="orders", newest=2, value=of_offsets(TOPIC, 0, range(20))
    )
    later = ledger(*entries[2:], anchors=0, complete=False)
    assert not told(whole, before, later) and told(swapped, before, later)
    # What nobody knows is not compared: a restored entry, one with other rows, another table, an older version's state.
    for unknown in (wrote(2, range(20, 30), fingerprint_given=None), wrote(2, range(20, 30), rows_given=9)):
        assert not told(swapped, before, ledger(unknown, anchors=0, complete=False))
    moved = replace(before, fingerprint=replace(before.fingerprint, location="elsewhere"))
    for state in (moved, replace(before, fingerprint=None), replace(before, numbered=None)):
        assert not told(swapped, state, later)
    for fields in ({"new": None}, {"fingerprint": None}, {"others": (commit(ENTRIES[0], OTHER),)}):
        assert not told(swapped, before, later, **fields)


def test_an_audit_that_sees_no_source_columns_forgets_nothing() -> None:
    entries = [wrote(i, range(10 * i, 10 * i + 10)) for i in range(3)]
    before = after(TableJudged, seen(fingerprinted(range(10), entries[:1]), slice_=ledger(entries[0])))
    assert before is not None
    blind = fingerprinted(range(20), entries[:2], 1, rows={None: 20}, numbered={}, fingerprint=None)
    of_sink = seen(blind, before, slice_=ledger(entries[1], complete=False), other_rows=0, rows=UNREAD)
    assert Code.MUTATED not in of_commits(of_sink)
    known = after(TableJudged, of_sink)
    assert known is not None and known.numbered == 0 and known.fingerprint is not None
    assert known.fingerprint.value == of_offsets(TOPIC, 0, range(20)) and known.fingerprint.newest == 2
    later = ledger(entries[2], complete=False)
    for held, replaced in ((range(30), False), ([*range(1, 30), 99], True)):
        of_sink = seen(fingerprinted(held, entries, 2), known, slice_=later, other_rows=0, rows=UNREAD)
        assert bool(history(of_sink).replaced) == replaced


def test_a_fingerprint_that_was_not_computed_is_said() -> None:
    slow = Unavailable("sink_logs", "the fingerprint of its source offsets was not computed within 40 s")
    entries = [wrote(i, range(10 * i, 10 * i + 10)) for i in range(3)]
    of_sink = seen(fingerprinted(range(30), entries, fingerprint=slow), slice_=ledger(*entries), rows=UNREAD)
    (said,) = SinkCommits().judge(of_sink).findings
    assert said.code is Code.ATTESTED_ONLY and slow.reason in said.message


def test_histories_of_a_table_by_its_fingerprint() -> None:
    """As many rows and others are always told, and nothing else is; an audit may read the ledger before a write."""
    rng, kinds = random.Random(11), Counter[str]()
    for _ in range(400):
        held, entries, seen_up_to, proved = list[int](), list[Entry](), 0, 0
        state: TableJudged | None = None
        since = list[int]()
        for _ in range(rng.randint(2, 5)):
            for _ in range(rng.randint(0, 2)):
                place = len(entries)
                made = sorted(rng.sample(range(10 * place, 10 * place + 10), rng.choice((10, 10, 7))))
                entries.append(wrote(place, made))
                held, since = held + made, since + made
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                if held and rng.random() < 0.6:
                    held.remove(rng.choice(held))
                else:
                    held.append(rng.choice((rng.randrange(60), 1000)))
            late = len(entries) > seen_up_to and rng.random() < 0.3
            visible = entries[: len(entries) - late]
            if not visible:
                continue
            known = state.fingerprint.newest if state is not None and state.fingerprint is not None else 0
            chosen = visible if proved == 0 else visible[proved:]
            slice_ = ledger(*(chosen or visible[-1:]), anchors=0 if chosen else 1, complete=proved == 0)
            of_sink = seen(fingerprinted(held, entries, known), state, slice_=slice_, rows=UNREAD)
            told = bool(history(of_sink).replaced)
            as_many = len(held) == len(since)
            expected = as_many and not late and Counter(held) != Counter(since)
            pending = state.fingerprint.pending if state is not None and state.fingerprint is not None else ()
            kinds["late" if late else "behind a late one" if pending else "replaced" if expected else "not"] += 1
            assert told == expected, (held, since, state)
            state, proved = after(TableJudged, of_sink), len(visible)
            if not (late and as_many):
                since = list(held)
            seen_up_to = len(entries)
    assert min(kinds.values()) > 20, kinds
