"""What offsets of findings have in common: named only where it holds for each offset that it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.judge.patterns import Facts, Group, patterns_of
from recon.judge.patterns.stretches import LEAST, stretches
from recon.model import Code, Finding, Pattern
from recon.model.incident import Harm
from recon.model.offsets import Spans
from recon.testing.evidence import PIPELINE, SINK, TOPIC, TOPIC_ID, Entry, checkpoint, kafka, ledger, span
from tests.support.witnesses import commit, delta, witnesses


def facts(*entries: Entry, **fields: Any) -> Facts:
    return Facts.of(witnesses(ledger(*entries), **fields), SINK)


NOTHING = facts(Entry(99, span(90_000, 90_001)))


def finding(code: Code, start: int | None, end: int | None, partition: int = 0, **more: Any) -> Finding:
    where = {"topic": TOPIC, "topic_id": TOPIC_ID, "partition": partition} if start is not None else {}
    made = {"pipeline": PIPELINE, "sink": SINK, "message": f"{code} {start} {partition}", **where}
    return Finding(code=code, start_offset=start, end_offset=end, **{**made, **more})


def missing(offsets: Iterable[int], batch_id: int = 0, partition: int = 0, epoch: int = 0) -> list[Finding]:
    """A finding for each range without a row."""
    return [
        finding(Code.GAP, a, b, partition, rows=b - a, batch_id=batch_id, epoch=epoch)
        for a, b in Spans.of_offsets(offsets)
    ]


def group(findings: Sequence[Finding], check: str = "source_rows", harm: Harm | None = None) -> Group:
    first = findings[0]
    return Group(harm or first.harm, first.subject.kind, "open", [(found, check) for found in findings])


def patterns(groups: Sequence[Group], known: Facts = NOTHING) -> list[tuple[Pattern, list[int]]]:
    return [(pattern, list(members)) for pattern, members in patterns_of(groups, known)]


def only(groups: Sequence[Group], known: Facts = NOTHING) -> Pattern:
    ((pattern, members),) = patterns(groups, known)
    assert sorted(members) == list(range(len(groups)))
    return pattern


# -- offsets that repeat ----------------------------------------------------------------------------------------------

PERIODS = st.tuples(
    st.integers(2, 24), st.sets(st.integers(0, 23), min_size=1), st.integers(0, 500), st.integers(10, 300)
)


@given(st.sets(st.integers(0, 400)))
def test_stretches_hold_exactly_the_offsets_that_they_are_said_of(offsets: set[int]) -> None:
    _assert_exact(offsets)


@given(PERIODS, st.sets(st.integers(0, 800), max_size=2))
def test_stretches_of_nearly_periodic_offsets_hold_exactly_these(made: Any, noise: set[int]) -> None:
    period, residues, start, length = made
    _assert_exact({o for o in range(start, start + length) if o % period in residues} ^ noise)


def _assert_exact(offsets: set[int]) -> None:
    """Within a stretch, whether an offset is one of them depends on its remainder alone; outside there is none."""
    found = stretches(Spans.of_offsets(offsets))
    held = set()
    for stretch in found:
        within = range(stretch.first, stretch.last + 1)
        mine = {o for o in within if o in offsets}
        remainders = {o % stretch.period for o in mine}
        assert mine == {o for o in within if o % stretch.period in remainders}
        assert len(remainders) == stretch.taken < stretch.period
        assert len(Spans.of_offsets(mine).ranges) >= LEAST
        held |= mine
    assert not found or held == offsets


@given(st.integers(2, 50), st.integers(0, 1000), st.integers(LEAST, 60))
def test_every_nth_offset_is_found(period: int, first: int, times: int) -> None:
    (stretch,) = stretches(Spans.of_offsets(range(first, first + period * times, period)))
    assert (stretch.first, stretch.period, stretch.taken) == (first, period, 1)


# -- within micro-batches ---------------------------------------------------------------------------------------------


def fourths(batches: int, size: int = 40) -> list[Group]:
    return [group(missing(range(size * n + 3, size * (n + 1), 4), n)) for n in range(batches)]


def test_every_fourth_record_of_forty_micro_batches_is_one_pattern() -> None:
    pattern = only(fourths(40))
    assert pattern.shape == "every_nth"
    assert pattern.says == f"400 offsets in 40 micro-batches: every fourth offset from 3 to 1,599 of {TOPIC}-0"
    assert (pattern.first, pattern.last) == (f"{TOPIC}-0 [3, 4)", f"{TOPIC}-0 [1599, 1600)")


def test_two_appends_under_one_number_are_the_first_likely_cause_of_a_function_s_sink() -> None:
    entries = [Entry(n, span(40 * n, 40 * n + 40), rows_written=30) for n in range(4)]
    log = delta(*(commit(n, entry, rows_added=30) for n, entry in enumerate(entries)))
    of_function = facts(*entries, delta=log, observed=True, own_function=True)
    first, second = only(fourths(4), of_function).causes
    assert "several appends under one txnAppId" in first.says
    assert first.because.startswith("the table has one commit of each")
    assert f"recon trace {TOPIC}/0/3" in second.look
    assert not any("txnAppId" in cause.says for cause in only(fourths(4), facts(*entries, observed=True)).causes)


def test_another_fault_beside_it_stays_apart_and_is_not_said_to_be_of_the_pattern() -> None:
    others = [group(missing([210, 211, 217], 5)), group(missing(range(600, 640), 15))]
    found = patterns([*fourths(5), *others], facts(Entry(15, span(600, 640))))
    (pattern, members), *rest = found
    assert (pattern.shape, sorted(members)) == ("every_nth", [0, 1, 2, 3, 4])
    assert [(p.shape, m) for p, m in rest] == [("whole_micro_batches", [6])]


def test_a_part_of_each_micro_batch_that_does_not_repeat_is_said_with_its_share() -> None:
    lost = [[1, 2, 5, 17], [41, 60, 61, 73], [80, 99, 103, 117]]
    entries = [Entry(n, span(40 * n, 40 * n + 40)) for n in range(3)]
    pattern = only([group(missing(offsets, n)) for n, offsets in enumerate(lost)], facts(*entries))
    assert pattern.shape == "part_of_each"
    assert pattern.says == "of each of the 3 micro-batches 0 to 2 (epoch 0) a part: 4 of 40 offsets each"


def test_rows_that_are_only_counted_are_a_part_of_each_micro_batch() -> None:
    counted = [finding(Code.GAP, 40 * n, 40 * n + 40, batch_id=n, epoch=0, rows=10 + n % 2) for n in range(10)]
    pattern = only([group(counted)])
    assert (pattern.shape, pattern.first) == ("part_of_each", "")
    assert pattern.says == "of each of the 10 micro-batches 0 to 9 (epoch 0) a part: 25 to 28 % of its offsets"


@pytest.mark.parametrize(
    "unknown",
    [
        [finding(Code.GAP, 40 * n, 40 * n + 40, batch_id=n, epoch=0) for n in range(10)],
        [finding(Code.GAP, None, None, batch_id=n, epoch=0) for n in range(10)],
        [finding(Code.GAP, 40 * n, 40 * n + 40, batch_id=n, epoch=0, rows=5, topic="table:x") for n in (0, 9)],
        missing([3, 9, 11, 30]),
        [finding(Code.MUTATED, None, None)],
    ],
    ids=["which offsets is not said", "no offsets", "of two of ten", "no rule", "no offsets at all"],
)
def test_without_a_pattern_none_is_named(unknown: list[Finding]) -> None:
    assert patterns([group(unknown)], facts(*(Entry(n, span(40 * n, 40 * n + 40)) for n in range(10)))) == []


def test_micro_batches_far_apart_have_no_pattern() -> None:
    assert patterns([group(missing([40 * n + 1, 40 * n + 7], n)) for n in (0, 9, 30)]) == []


def test_one_partition_only_and_whole_micro_batches() -> None:
    entries = [Entry(n, span(10 * n, 10 * n + 10), span(10 * n, 10 * n + 10, 1)) for n in range(4)]
    pattern = only([group([finding(Code.GAP, 10, 30, rows=20, batch_id=1, epoch=0)])], facts(*entries))
    assert pattern.says == (
        f"{TOPIC}-0 only, of which it is all that micro-batches 1 to 2 (epoch 0) read; of 1 other partition nothing"
    )
    both = [finding(Code.GAP, 10, 30, p, rows=20, batch_id=1, epoch=0) for p in (0, 1)]
    assert only([group(both)], facts(*entries)).says == (
        f"all that micro-batches 1 to 2 (epoch 0) read: {TOPIC}-0 [10, 30), {TOPIC}-1 [10, 30)"
    )
    assert patterns([group(missing(range(10, 29), 1))], facts(*entries)) == []


def test_findings_that_are_not_listed_belong_to_the_pattern_and_nothing_is_said_of_them() -> None:
    unlisted = finding(Code.GAP, None, None, about="not listed: 0123abcd", rows=251)
    pattern = only([*fourths(40), group([unlisted])])
    assert pattern.says.endswith("of further findings that are not listed nothing is said")


# -- a new epoch, and Kafka's log -------------------------------------------------------------------------------------


def reread(epoch: int = 1, start: int = 0) -> list[Finding]:
    return [finding(Code.OVERLAP, start, 20, p, batch_id=0, epoch=epoch) for p in (0, 1)]


def two(start: int, end: int) -> tuple[Any, Any]:
    return span(start, end), span(start, end, 1)


BOTH = [
    Entry(0, *two(0, 10)),
    Entry(1, *two(10, 20)),
    Entry(0, *two(0, 30), epoch=1, query_id="q-2"),
]


def test_a_lost_checkpoint_is_one_incident_with_both_query_ids() -> None:
    pattern = only([group(reread(), "offset_continuity")], facts(*BOTH, checkpoint=checkpoint()))
    assert pattern.shape == "read_again"
    assert pattern.says == (
        "epoch 1, which began with micro-batch 0, read again what epochs before it had read, from offset 0 on: "
        f"{TOPIC}-0 [0, 20), {TOPIC}-1 [0, 20)"
    )
    (cause,) = pattern.causes
    assert cause.says.startswith("the checkpoint was deleted")
    assert "q-2" in cause.because and "q-1" in cause.because


def test_two_epochs_in_turns_tell_of_two_queries() -> None:
    in_turns = [*BOTH, Entry(2, *two(20, 40))]
    (cause,) = only([group(reread(), "offset_continuity")], facts(*in_turns)).causes
    assert cause.says.startswith("two queries")


def test_the_same_query_id_tells_of_an_older_copy() -> None:
    older = [*BOTH[:2], Entry(1, *two(10, 30), epoch=1)]
    found = [finding(Code.OVERLAP, 10, 20, p, batch_id=1, epoch=1) for p in (0, 1)]
    (cause,) = only([group(found, "offset_continuity")], facts(*older)).causes
    assert "older copy" in cause.says
    assert "from offset 0" not in only([group(found, "offset_continuity")], facts(*older)).says


def test_offsets_that_one_epoch_read_twice_are_no_new_epoch() -> None:
    entries = [Entry(0, *two(0, 10)), Entry(0, *two(10, 20), epoch=1), Entry(1, *two(10, 20), epoch=1)]
    found = [finding(Code.OVERLAP, 10, 20, p, batch_id=1, epoch=1) for p in (0, 1)]
    assert not [p for p, _ in patterns([group(found, "offset_continuity")], facts(*entries)) if p.shape == "read_again"]


def test_a_new_epoch_behind_the_end_of_the_last_one() -> None:
    entries = [Entry(0, *two(0, 10)), Entry(0, *two(25, 30), epoch=1, query_id="q-2")]
    found = [finding(Code.GAP, 10, 25, p, batch_id=0, epoch=1) for p in (0, 1)]
    pattern = only([group(found, "offset_continuity")], facts(*entries))
    assert pattern.shape == "passed_over"
    assert "recon offsets --pipeline" in pattern.causes[0].then
    within = [Entry(0, *two(0, 10)), Entry(0, *two(10, 20), epoch=1), Entry(1, *two(25, 30), epoch=1)]
    found = [finding(Code.GAP, 20, 25, p, batch_id=1, epoch=1) for p in (0, 1)]
    assert patterns([group(found, "offset_continuity")], facts(*within)) == []


def test_what_kafka_deleted_lies_before_its_log() -> None:
    lost = [finding(Code.LOSS_RETENTION, 10, 15, batch_id=1, epoch=0)]
    entries = [Entry(0, span(0, 10)), Entry(1, span(15, 20))]
    pattern = only([group(lost, "offset_continuity")], facts(*entries, kafka=kafka(log_start=15, log_end=20)))
    assert pattern.shape == "before_log_start"
    assert [bool(re.search("retention", cause.says + cause.because)) for cause in pattern.causes] == [False, True, True]
    assert patterns([group(lost, "offset_continuity")], facts(*entries, kafka=kafka(log_start=12, log_end=20))) == []
