"""source_rows and delta_history on a sink whose rows later micro-batches replace: counts, never absent rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.checks.evidence.delta_history import DeltaHistory
from recon.checks.evidence.source_rows import SourceRows
from recon.model import (
    Code,
    DeclaredRows,
    KnownTable,
    LedgerSlice,
    PreviousAudit,
    SinkCommit,
    TableCommit,
    Verdict,
    Witnesses,
    dump_stamp,
    parse_stamp,
)
from recon.model.fingerprint import of_offsets
from recon.model.offsets import Span, Spans
from recon.model.wire.kafka_state import KafkaState, TopicLogs, dump_kafka_state
from recon.project import DeltaMergeSink, DeltaSink, Sink, load
from recon.project.sinks import JdbcUpsertSink
from recon.testing.evidence import NOW, SINK, TOPIC, Entry, checkpoint, gone, kafka, ledger, planned, span
from recon.write.ledger.rebuild import entry_of
from tests.support.asked import questions, wants_rows
from tests.support.messages import raises, same_message
from tests.support.witnesses import codes, commit, delta, group, probe, rows, witnesses

CHECK = SourceRows()


def merged(batch_id: int, start: int, end: int, rows: int | None = None, **head: Any) -> Entry:
    """An entry of a MERGE that was handed a row per offset, and took in `rows` of them."""
    taken = end - start if rows is None else rows
    made = {"rows_read": end - start, "rows_written": taken, "rows_filtered": end - start - taken}
    return Entry(batch_id, (start, end), **{"sink_kind": "delta_merge", **made, **head})


def merge(version: int, entry: Entry, given: int | None = None, **fields: Any) -> TableCommit:
    """Its commit: two rows are copied from others, and all of its own are new."""
    made = commit(version, entry)
    assert made.stamp is not None
    rows_in = entry.head.get("rows_written", entry.width) or 0
    given = (entry.head.get("rows_read") or entry.width) if given is None else given
    metrics = {
        "numTargetRowsInserted": str(rows_in), "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0",
        "numTargetRowsCopied": "2", "numOutputRows": str(rows_in + 2),
    }  # fmt: skip
    stamp = replace(made.stamp, given=given)
    whole = {"operation": "MERGE", "operation_metrics": metrics, "rows_added": rows_in + 2, "rows_removed": 2}
    return replace(made, **{**whole, "files_removed": 1, "stamp": stamp, **fields})


FEWER = [merged(0, 0, 10, 4), merged(1, 10, 20, 10)]
MARKED = merged(1, 10, 20, 6, rows_read=8, rows_filtered=2)  # ten offsets, eight records, two of one key twice


def seen(slice_: LedgerSlice, *entries: Entry, **fields: Any) -> Witnesses:
    log = delta(*(merge(n, e) for n, e in enumerate(entries))) if entries else gone("delta")
    fields.setdefault("delta", log)
    return witnesses(slice_, rewriting={SINK}, **fields)


def judged(*entries: Entry, given: int | None = None, **fields: Any) -> Verdict:
    log = delta(*(merge(n, e, given) for n, e in enumerate(entries)))
    return CHECK.judge(witnesses(ledger(*entries), rewriting={SINK}, **{"delta": log, **fields}))


def passed(verdict: Verdict) -> bool:
    return verdict.failures == 0 and verdict.warnings == 0 and verdict.unproved is None and verdict.skipped is None


def test_rows_of_one_key_are_counted_and_not_looked_for() -> None:
    found = seen(ledger(*FEWER), *FEWER)
    assert not wants_rows(CHECK, found) and questions(CHECK, found) == {}
    assert passed(CHECK.judge(found))
    # Four rows are left of twenty: an append would have lost sixteen.
    assert passed(judged(*FEWER, rows=rows(group(1, (16, 20)))))


def test_a_deficit_is_asked_of_kafka_and_not_of_the_rows() -> None:
    slice_ = ledger(FEWER[0], MARKED)
    found = seen(slice_, FEWER[0], merged(1, 10, 20, 6))
    assert wants_rows(CHECK, found)
    assert questions(CHECK, found) == {(TOPIC, 0): Spans.of([(10, 20)])}
    seen_by_both = probe([(10, 20)], [(10, 19)], [(10, 18)])  # one record aborted, one transaction marker
    verdict = judged(FEWER[0], MARKED, given=None, probes=seen_by_both)
    assert passed(verdict), verdict
    assert verdict.evidence["explained"] == {"control": 1, "aborted": 1}
    assert same_message(verdict.message)
    # The rows need not be there, nor be readable; doubled and unknown ones are told.
    assert passed(judged(FEWER[0], MARKED, probes=seen_by_both, rows=rows(group(1, (15, 16)))))
    assert codes(judged(FEWER[0], MARKED, probes=seen_by_both, rows=rows(group(0, (3, 5)), group(1, (3, 4))))) == [
        Code.DUPLICATE,
        Code.EXPLAINED,
    ]
    strays = judged(FEWER[0], MARKED, probes=seen_by_both, rows=rows(group(0, (0, 1)), unstamped_rows=3, version=1))
    assert Code.UNSTAMPED in codes(strays) and strays.failures == 0


def test_records_that_nothing_accounts_for_are_lost() -> None:
    verdict = judged(FEWER[0], MARKED, probes=probe([(10, 20)], [(10, 20)], [(10, 20)]))
    assert codes(verdict) == [Code.GAP]
    assert same_message(verdict.message)
    assert (verdict.findings[0].batch_id, verdict.findings[0].start_offset, verdict.findings[0].end_offset) == (
        1, 10, 20,
    )  # fmt: skip
    # Fewer than accounted for: nobody can tell why.
    fewer = judged(FEWER[0], MARKED, probes=probe([(10, 20)], [(10, 15)], [(10, 15)]))
    assert codes(fewer) == [Code.INCONCLUSIVE] and fewer.unproved is not None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "Kafka could not be read for orders-0"),
        ({"probes": probe([(10, 20)], [(15, 20)], [(15, 20)], log_start=15)}, "now starts at 15"),
        ({"probes": probe([(10, 20)], [(10, 18)], [(10, 18)], truncated="the time is over")}, "the time is over"),
        ({"probes": probe([(10, 20)], [(10, 18)], [(10, 18)], last_stable=18)}, "still open"),
        (
            {"probes": probe([(10, 20)], [(10, 18)], [(10, 18)]), "kafka": kafka(topic_id="id-2")},
            "topic orders was deleted and created again",
        ),
    ],
)
def test_what_cannot_be_counted_is_not_proved(fields: dict[str, Any], said: str) -> None:
    verdict = judged(FEWER[0], MARKED, **fields)
    assert codes(verdict) == [Code.INCONCLUSIVE] and said in verdict.message
    assert verdict.failures == 0 and verdict.unproved is not None


def test_an_unknown_count_is_not_proved() -> None:
    unknown = merged(1, 10, 20, rows_written=None, rows_filtered=None)
    assert codes(judged(FEWER[0], unknown, probes=probe([(10, 20)], [(10, 20)], [(10, 20)]))) == [Code.INCONCLUSIVE]


def test_a_stream_that_reads_uncommitted_merged_what_was_aborted() -> None:
    verdict = judged(
        merged(0, 0, 10, 5, rows_read=9, rows_filtered=4, isolation_level="read_uncommitted"),
        given=9,
        probes=probe([(0, 10)], [(0, 9)], [(0, 7)]),
    )
    assert codes(verdict) == [Code.PHANTOM_ROWS] and same_message(verdict.message)


def test_aborted_records_of_a_micro_batch_whose_counts_are_whole() -> None:
    """The marker, and with it the hole, is in the next micro-batch."""
    level = {"isolation_level": "read_uncommitted"}
    whole, holed = merged(0, 0, 10, **level), merged(1, 10, 20, 9, rows_read=9, rows_filtered=0, **level)
    found = seen(ledger(whole, holed), whole, merged(1, 10, 20, 9, **level))
    assert questions(CHECK, found) == {(TOPIC, 0): Spans.of([(0, 20)])}
    shown = probe([(0, 20)], [(0, 10), (11, 20)], [(0, 8), (11, 20)])
    verdict = judged(whole, holed, probes=shown)
    assert codes(verdict) == [Code.EXPLAINED, Code.PHANTOM_ROWS] and same_message(verdict.message)
    assert {(f.batch_id, f.span) for f in verdict.findings if f.code == "PHANTOM_ROWS"} == {(0, Span(0, 10))}
    filtering = merged(2, 20, 30, 9, **level)
    log = delta(merge(0, whole), merge(1, holed), merge(2, filtering, given=9))
    shown = probe([(0, 30)], [(0, 10), (11, 30)], [(0, 8), (11, 30)])
    maybe = CHECK.judge(seen(ledger(whole, holed, filtering), delta=log, probes=shown))
    assert Code.PHANTOM_ROWS not in codes(maybe) and Code.INCONCLUSIVE in codes(maybe)
    # What Kafka deleted since, it does not show.
    late = judged(whole, holed, probes=probe([(0, 20)], [(11, 20)], [(11, 20)], log_start=10))
    assert passed(late), late


def test_a_transaction_that_the_hook_saw_open() -> None:
    """No micro-batch has a hole yet: the stream has not read the marker."""
    logs = TopicLogs([0], [3], [0], [8], [10])
    state = dump_kafka_state(KafkaState(asked_at=NOW, after=1, topics={TOPIC: logs}))
    before, opened = merged(0, 0, 5), merged(1, 5, 10, isolation_level="read_uncommitted")
    later = merged(2, 10, 20, kafka_state=state, isolation_level="read_uncommitted")
    found = seen(ledger(before, opened, later), before, opened, later)
    assert questions(CHECK, found) == {(TOPIC, 0): Spans.of([(5, 10)])}
    verdict = judged(before, opened, later, probes=probe([(5, 10)], [(5, 10)], [(5, 8)]))
    assert codes(verdict) == [Code.PHANTOM_ROWS]
    assert passed(judged(before, opened, later, probes=probe([(5, 10)], [(5, 10)], [(5, 10)])))
    level = {"isolation_level": "read_committed"}
    committed = [merged(1, 5, 10, **level), merged(2, 10, 20, kafka_state=state, **level)]
    assert questions(CHECK, seen(ledger(before, *committed), before, *committed)) == {}


def test_a_restored_entry_is_as_good_as_what_its_commit_tells() -> None:
    whole = merged(1, 10, 20, 6)
    restored = merged(1, 10, 20, 6, status="rebuilt", rows_read=None)
    slice_ = ledger(FEWER[0], restored)
    assert passed(CHECK.judge(seen(slice_, FEWER[0], whole)))
    # A transform filtered two of ten, and after a crash nobody knows: neither lost nor proved.
    filtering = merged(0, 0, 10, 4, rows_filtered=6)
    of_filter = ledger(filtering, merged(1, 10, 20, 6, status="rebuilt", rows_read=None, rows_filtered=2))
    log = delta(merge(0, filtering, given=8), merge(1, whole, given=8))
    verdict = CHECK.judge(
        seen(of_filter, delta=log, probes=probe([(10, 20)], [(10, 20)], [(10, 20)])),
    )
    assert codes(verdict) == [Code.INCONCLUSIVE] and same_message(verdict.message)


def test_rows_that_a_transform_makes_are_no_doubles() -> None:
    made = merged(0, 0, 10, 6, rows_filtered=4)  # ten records, twenty rows, six keys
    shares = rows(group(0, (0, 3), rows=6))
    both = probe([(0, 10)], [(0, 10)], [(0, 10)])
    assert passed(judged(made, given=20, rows=shares, probes=both))
    assert codes(judged(made, given=10, rows=shares, probes=both)) == [Code.DUPLICATE]
    unknown = CHECK.judge(seen(ledger(made), rows=shares, probes=both))
    assert codes(unknown) == [Code.INCONCLUSIVE]


def test_a_transform_that_spark_sees_to_return_nothing() -> None:
    """Nobody counted the rows read: Spark's plan had no read."""
    nothing = {"rows_read": None, "rows_filtered": None, "rows_returned": 0, "rows_given": 0}
    assert passed(judged(merged(0, 0, 10), merged(1, 10, 20, 0, **nothing)))


def swapped(batch_id: int, low: int, **head: Any) -> Entry:
    """An entry whose transform returned ten rows of ten records, and lost one while it doubled another."""
    read = list(range(low, low + 10))
    returned = [*read[:4], *read[5:], read[5]]
    fingerprints = {
        "fingerprint_read": of_offsets(TOPIC, 0, read),
        "fingerprint_returned": of_offsets(TOPIC, 0, returned),
        "fingerprint_given": of_offsets(TOPIC, 0, returned),
    }
    return merged(batch_id, low, low + 10, 9, **{"rows_returned": 10, "rows_given": 10, **fingerprints, **head})


@pytest.mark.parametrize("probes", [{}, probe([(10, 20)], [(10, 20)], [(10, 20)])], ids=["no broker", "Kafka"])
def test_a_transform_loses_a_record_and_doubles_another_before_a_merge(probes: Any) -> None:
    """The doubled one has a key once: nine rows written and one left out are as many as ten records."""
    verdict = judged(merged(0, 0, 10), swapped(1, 10), given=10, probes=probes)
    assert codes(verdict) == [Code.GAP] and same_message(verdict.message)
    assert verdict.findings[0].span == Span(10, 20)


@pytest.mark.parametrize("lawful", ["another micro-batch is filtered", "several rows of one record are declared"])
def test_a_transform_that_may_drop_records_and_make_others_twice_is_a_question(lawful: str) -> None:
    filters = lawful.startswith("another")
    first = merged(0, 0, 10, 8, rows_returned=8) if filters else merged(0, 0, 10)
    fields = {} if filters else {"declared": DeclaredRows(explodes=True)}
    log = delta(merge(0, first, 8 if filters else 10), merge(1, swapped(1, 10)))
    answers = probe([(10, 20)], [(10, 20)], [(10, 20)])
    found = seen(ledger(first, swapped(1, 10)), delta=log, probes=answers, **fields)
    verdict = CHECK.judge(found)
    assert (codes(verdict), verdict.failures) == ([Code.INCONCLUSIVE], 0) and same_message(verdict.message)


def test_rows_that_others_removed_cannot_be_told() -> None:
    deleted = commit(2, operation="DELETE", files_removed=1, operation_metrics={"numDeletedRows": "3"})
    log = delta(*(merge(n, e) for n, e in enumerate(FEWER)), deleted)
    verdict = CHECK.judge(seen(ledger(*FEWER), delta=log, rows=rows(group(1, (10, 20)))))
    assert codes(verdict) == [Code.INCONCLUSIVE] and same_message(verdict.message)


# -- delta_history --------------------------------------------------------------------------------------------------


def history(*commits: TableCommit, slice_: LedgerSlice | None = None) -> Verdict:
    return DeltaHistory().judge(seen(slice_ or ledger(*FEWER), delta=delta(*commits)))


def test_a_merge_of_ours_is_no_mutation_and_is_counted_by_its_metrics() -> None:
    ours = [merge(n, e) for n, e in enumerate(FEWER)]
    assert history(*ours).findings == ()
    told = {**ours[1].operation_metrics, "numTargetRowsInserted": "9"}
    other = replace(ours[1], operation_metrics=told, rows_added=11)
    verdict = history(ours[0], other)
    assert codes(verdict) == [Code.LEDGER_ORPHAN] and same_message(verdict.message)
    # A retried stage counts twice; the files say how the table grew.
    inflated = history(ours[0], replace(ours[1], rows_added=11))
    assert codes(inflated) == [Code.METRIC_UNRELIABLE] and same_message(inflated.message)
    silent = history(ours[0], replace(ours[1], operation_metrics={}))
    assert codes(silent) == [Code.METRIC_UNRELIABLE] and (silent.failures, silent.warnings) == (0, 1)


def read_up_to(version: int, position: int | None = 1) -> PreviousAudit:
    table = KnownTable(table_id="t-1", version=version, read_at=NOW, position=position)
    return PreviousAudit(generated_at=NOW, tables={SINK: table})


def test_commits_that_are_cleaned_up_may_have_taken_rows_away() -> None:
    """Who knows which versions are its own knows whether any were others'."""

    def told(version: int, line: set[int] | None = None, **fields: Any) -> tuple[list[Code], str]:
        entry = merged(1, 10, 20, 10, sink_version=version)
        of_table = {"table_id": "t-1", "line": None if line is None else frozenset(line), "highest": version}
        log = delta(merge(version, entry), first_retained=version, **of_table)
        verdict = DeltaHistory().judge(seen(ledger(FEWER[0], entry), delta=log, **fields))
        return codes(verdict), verdict.unproved or ""

    found, why = told(3)
    assert found == [Code.ATTESTED_ONLY, Code.INCONCLUSIVE] and "2 commits of others between versions 0 and 3" in why
    assert same_message(why)
    assert told(1) == ([Code.ATTESTED_ONLY], "")  # version 0 is its own
    # An audit had read all up to version 2; another up to version 1, behind which one is not known.
    assert told(3, previous=read_up_to(2)) == ([Code.ATTESTED_ONLY], "")
    assert "1 commit of others between versions 1 and 3" in told(3, previous=read_up_to(1))[1]
    assert "between versions 0 and 3" in told(3, previous=read_up_to(2, position=None))[1]  # it proved nothing
    # An Iceberg table gives a rollback no number.
    assert Code.INCONCLUSIVE in told(1, {1})[0] and same_message(told(1, {1})[1])
    assert told(3, {1, 2, 3}, previous=read_up_to(1)) == ([Code.ATTESTED_ONLY], "")


def test_somebody_elses_merge_is_a_mutation() -> None:
    ours = [merge(n, e) for n, e in enumerate(FEWER)]
    theirs = replace(merge(2, FEWER[1]), stamp=None, user_metadata=None, txn={})
    assert codes(history(*ours, theirs)) == [Code.UNSTAMPED]  # it only inserted
    changing = {**theirs.operation_metrics, "numTargetRowsUpdated": "1"}
    assert Code.MUTATED in codes(history(*ours, replace(theirs, operation_metrics=changing)))
    assert Code.DUPLICATE in codes(history(*ours, merge(2, FEWER[1])))


def test_history_counts_versions_as_its_commit_says() -> None:
    ours = merge(0, FEWER[0])
    assert ours.stamp is not None
    closing = {**ours.operation_metrics, "numTargetRowsUpdated": "3"}  # versions that now end
    stamped = replace(ours, operation_metrics=closing, stamp=replace(ours.stamp, taken=4))
    assert history(stamped, slice_=ledger(FEWER[0])).findings == ()
    assert codes(history(replace(stamped, stamp=ours.stamp), slice_=ledger(FEWER[0]))) == [Code.LEDGER_ORPHAN]


# -- stamps, restored entries, recon.yml ----------------------------------------------------------------------------


def test_a_stamp_says_what_the_sink_was_handed() -> None:
    stamp = merge(0, FEWER[0]).stamp
    assert stamp is not None and '"given":10,"offsets"' in dump_stamp(stamp)
    assert parse_stamp(dump_stamp(stamp)) == stamp
    assert "given" not in dump_stamp(replace(stamp, given=None))
    taken = replace(stamp, taken=3)
    assert parse_stamp(dump_stamp(taken)) == taken


UPSERT = JdbcUpsertSink(
    kind="jdbc_upsert", name="s", target="t", keys=("id",), connection={"url": "jdbc:postgresql://h/d"}
)
MERGE = DeltaMergeSink(kind="delta_merge", name="s", target="t", keys=("id",))


@pytest.mark.parametrize(("sink", "filtered"), [(MERGE, 6), (UPSERT, 6), (DeltaSink(name="s", target="t"), None)])
def test_a_restored_entry_counts_what_the_sink_left_out(sink: Sink, filtered: int | None) -> None:
    stamp = merge(0, FEWER[0]).stamp
    assert stamp is not None
    made = SinkCommit(version=1, stamp=stamp, rows=4, at=NOW)
    entry = entry_of(made, sink, target="t")
    assert (entry.rows_written, entry.rows_filtered, entry.rows_read) == (4, filtered, None)
    assert entry_of(replace(made, rows=None), sink, target="t").rows_filtered is None


YML = """
version: 2
name: lake
ledger: l
pipelines:
  - {name: p, checkpoint: c, sinks: [{name: s, kind: delta_merge, target: t, KEYS}]}
"""


def test_the_keys_of_a_merge(tmp_path: Any) -> None:
    def read(keys: str) -> DeltaMergeSink:
        (tmp_path / "recon.yml").write_text(YML.replace("KEYS", keys))
        sink = load(tmp_path).pipelines[0].sinks[0]
        assert isinstance(sink, DeltaMergeSink)
        return sink

    sink = read("keys: [id, day], prune_by: [day, {column: land, immutable: true}], scd2: {effective: at}")
    assert sink.rewrites and sink.guarantee == "exactly-once"
    assert [(p.column, p.immutable) for p in sink.prune_by] == [("day", False), ("land", True)]
    assert sink.scd2 is not None and (sink.scd2.valid_from, sink.scd2.is_current) == ("valid_from", "is_current")
    assert read("keys: id").keys == ("id",)
    for keys in (
        "keys: [id], prune_by: [day]",
        "keys: [id], newer_wins: id",
        "keys: [id, id]",
        "keys: []",
        "keys: [id], stamp_source_offsets: false",
        "keys: [id], scd2: {effective: at}, newer_wins: at",
        "keys: [id], scd2: {effective: id}",
    ):
        with raises(ConfigError):
            read(keys)


def test_a_span_per_source() -> None:
    """Two topic partitions of one micro-batch are summed up."""
    two = Entry(
        0, span(0, 10), span(0, 6, partition=1), rows_read=14, rows_written=5, rows_filtered=9, sink_kind="delta_merge"
    )
    both = probe([(0, 10)], [(0, 9)], [(0, 9)]) | probe([(0, 6)], [(0, 5)], [(0, 5)], partition=1)
    assert passed(judged(two, given=14, probes=both))
    lost = probe([(0, 10)], [(0, 10)], [(0, 10)]) | probe([(0, 6)], [(0, 5)], [(0, 5)], partition=1)
    verdict = judged(two, given=14, probes=lost)
    assert codes(verdict) == [Code.GAP] and same_message(verdict.message)


@pytest.mark.parametrize("rows_out", [3, 10])
def test_what_came_out_of_state_is_not_held_against_what_went_in(rows_out: int) -> None:
    """Also where an aggregate happens to give as many rows as there were records."""
    entries = [merged(i, 10 * i, 10 * i + 10, rows_out, rows_read=rows_out, rows_filtered=0) for i in range(2)]
    plan = replace(checkpoint(planned(0, (0, 10)), planned(1, (10, 20))), stateful=True)
    log = delta(*(merge(n, one, rows_out) for n, one in enumerate(entries)))
    answers = probe([(0, 20)], [(0, 20)], [(0, 20)])
    verdict = CHECK.judge(witnesses(ledger(*entries), rewriting={SINK}, delta=log, checkpoint=plan, probes=answers))
    assert (verdict.failures, set(codes(verdict))) == (0, {Code.INCONCLUSIVE})
    assert verdict.unproved is not None and "recon.ProgressListener" in verdict.unproved


def test_a_trimmed_micro_batch_is_counted_by_what_the_sink_was_handed() -> None:
    """Fifteen records read, five of them there already; of the ten handed over two had a key twice."""
    first = merged(0, 0, 10)
    trimmed = merged(0, 10, 20, 8, rows_read=15, rows_filtered=7, epoch=1, query_id="q-2")
    log = delta(merge(0, first), merge(1, trimmed, 10))
    answers = probe([(10, 20)], [(10, 20)], [(10, 20)])
    verdict = CHECK.judge(witnesses(ledger(first, trimmed), rewriting={SINK}, delta=log, probes=answers))
    assert (verdict.failures, verdict.unproved) == (0, None)
