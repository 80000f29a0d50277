"""source_rows: the rows of some commits against what was counted of them (cases 46 and 59)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.checks.evidence.source_rows import SourceRows
from recon.checks.registry import build
from recon.model import Code, CommitRows, CountedRows, DeclaredRows, SinkLog, Unavailable, Verdict, Witnesses
from recon.model.fingerprint import of_offsets
from recon.model.offsets import OffsetSpan
from recon.project import CheckSpec
from recon.testing.evidence import SINK, TOPIC, Entry, gone, kafka, ledger
from tests.support.asked import commits_to_read, wants_rows
from tests.support.messages import same_message
from tests.support.witnesses import commit, delta, group, probe, rows, told, witnesses

CHECK = SourceRows()
NETTED = (0, 1, 2, 3, 3, 5, 6, 7, 8, 9)  # 4 is lost, 3 doubled
UNCOUNTED = {"status": "rebuilt", "rows_read": None, "rows_filtered": None, "rows_quarantined": None}


def filtered(kept: Iterable[int], batch_id: int = 0, **head: Any) -> Entry:
    """A micro-batch of ten offsets, of whose records the transform returned some."""
    first = 10 * batch_id
    returned = [first + offset for offset in kept]
    counts = {
        "rows_read": 10,
        "rows_filtered": 10 - len(returned),
        "rows_returned": len(returned),
        "rows_given": len(returned),
        "rows_written": len(returned),
        "fingerprint_read": of_offsets(TOPIC, 0, range(first, first + 10)),
        "fingerprint_returned": of_offsets(TOPIC, 0, returned),
        "fingerprint_given": of_offsets(TOPIC, 0, returned),
    }
    return Entry(batch_id, (first, first + 10), **{**counts, "sink_version": batch_id, **head})


def added(offsets: Sequence[int], version: int = 0) -> CommitRows:
    return CommitRows(
        version=version,
        held=CountedRows(len(offsets), of_offsets(TOPIC, 0, offsets)),
        offsets=len(set(offsets)),
        spans=[OffsetSpan(TOPIC, None, 0, min(offsets), max(offsets) + 1)],
    )


def seen(*entries: Entry, looked_at: Sequence[CommitRows | Unavailable] = (), **fields: Any) -> Witnesses:
    log = delta(*(commit(n, entry) for n, entry in enumerate(entries)))
    return witnesses(ledger(*entries), **{"delta": log, "commit_rows": dict(enumerate(looked_at)), **fields})


def chosen(*entries: Entry, check: SourceRows = CHECK, **fields: Any) -> list[int]:
    return list(commits_to_read(check, seen(*entries, **fields)))


def judged(witnesses: Witnesses) -> Verdict:
    return CHECK.judge(witnesses)


def no_spark(*entries: Entry, **fields: Any) -> str:
    """Why the micro-batches could not be proved without the sink's rows."""
    return judged(seen(*entries, rows=gone("rows"), **fields)).unproved or ""


# -- what is looked at -------------------------------------------------------------------------------------------------


def test_restored_micro_batches_come_first_then_filtered_ones_then_a_handful() -> None:
    plain = [filtered(range(10), n) for n in range(60)]
    restored = Entry(61, (610, 620), sink_version=61, **UNCOUNTED)
    entries = [*plain, filtered(range(7), 60), restored]
    order = chosen(*entries)
    assert order[:2] == [61, 60] and len(order) == 22 and len(set(order)) == 22
    # The same ledger gives the same choice, another one another.
    assert chosen(*entries) == order
    assert chosen(*entries, filtered(range(10), 62)) != order


def test_the_budget_counts_rows_and_files() -> None:
    entries = [filtered(range(7), n) for n in range(30)]
    assert len(chosen(*entries)) == 30
    assert len(chosen(*entries, check=SourceRows(sample_rows=50_000))) == 5
    assert chosen(*entries, check=SourceRows(sample_rows=0)) == []
    large = filtered(range(7), rows_written=60_000)
    assert chosen(large, check=SourceRows(sample_rows=50_000)) == []


def test_a_budget_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError):
        build(CheckSpec(test="source_rows", arguments={"sample_rows": -1}), "here")


def test_nothing_is_looked_at_where_it_shows_nothing() -> None:
    entry = filtered(range(7))
    assert chosen(entry) == [0]
    # Counts leave a question: its own commit answers it, unless rows of others are in question, too.
    short = Entry(0, (0, 10), rows_written=7, sink_version=0)
    assert chosen(short) == [0]
    assert chosen(short, check=SourceRows(sample_rows=9_999)) == []
    stranger = commit(1, None, operation="DELETE", rows_removed=1)
    assert chosen(short, delta=delta(commit(0, short), stranger)) == []
    # Micro-batches replace each other's rows.
    assert chosen(entry, rewriting=(SINK,)) == []
    # The log does not have the commit, or has another one there.
    assert chosen(entry, delta=delta(commit(1))) == []
    assert chosen(entry, delta=delta(commit(0, Entry(3, (0, 10))))) == []
    assert chosen(entry, delta=delta(commit(0, entry, operation="MERGE"))) == []
    # No Delta table.
    assert chosen(entry, delta=gone("delta"), sink_logs={SINK: SinkLog(location="files", exists=True)}) == []


# -- what it shows -----------------------------------------------------------------------------------------------------


def test_rows_as_they_were_counted_leave_no_question() -> None:
    healthy = seen(filtered(range(7)), looked_at=[added(range(7))])
    assert not wants_rows(CHECK, healthy)
    verdict = judged(healthy)
    assert not verdict.failures and verdict.unproved is None
    assert verdict.evidence["looked_at"] == {"micro_batches": 1, "rows": 7}
    assert same_message(verdict.message)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        pytest.param(filtered(NETTED[:7]), NETTED[:7], id="the transform"),
        pytest.param(filtered(range(10)), NETTED, id="the sink"),
        pytest.param(filtered(range(7)), (0, 1, 2, 3, 4, 5, 9), id="rows of other offsets"),
        pytest.param(filtered(range(7)), range(6), id="fewer rows"),
        pytest.param(Entry(0, (0, 10), sink_version=0), NETTED, id="no fingerprints"),
        pytest.param(Entry(0, (0, 10), sink_version=0), range(1, 11), id="offsets that were not read"),
    ],
)
def test_rows_other_than_counted_need_the_rows_of_the_sink(entry: Entry, found: Sequence[int]) -> None:
    contradicting = seen(entry, looked_at=[added(found)])
    assert wants_rows(CHECK, contradicting)
    verdict = judged(replace(contradicting, rows=gone("rows")))
    assert not verdict.failures and same_message(verdict.unproved or "")


def test_the_rows_of_the_sink_decide() -> None:
    contradicting = seen(filtered(NETTED[:7]), looked_at=[added(NETTED[:7])])
    sink = rows(group(0, (0, 4), (5, 7), rows=7))
    all_of_them = probe([(4, 5), (7, 10)], [(4, 5), (7, 10)], [(4, 5), (7, 10)])
    refuted = judged(replace(contradicting, rows=sink, probes=all_of_them))
    assert {code for code, *_ in told(refuted)} == {"GAP", "DUPLICATE"}
    # Somebody put right since what the commit got wrong.
    assert not told(judged(replace(contradicting, rows=rows(group(0, (0, 7))), probes=all_of_them)))


def test_offsets_that_had_no_record_are_not_lost_where_a_doubled_row_took_their_place() -> None:
    entry = Entry(0, (0, 10), sink_version=0)
    marker_at_four = {"rows": rows(group(0, (0, 4), (5, 10), rows=10)), "probes": probe([(4, 5)])}
    assert told(judged(seen(entry, looked_at=[added(NETTED)], **marker_at_four))) == [("DUPLICATE", 0, 0, 10)]


def test_rows_of_other_offsets_are_never_a_pass() -> None:
    swapped = seen(filtered(range(7)), looked_at=[added((0, 1, 2, 3, 4, 5, 9))], rows=rows(group(0, (0, 6), (9, 10))))
    assert told(judged(swapped)) == [("INCONCLUSIVE", None, None, None)]


def test_a_transform_that_makes_rows_may_repeat_offsets() -> None:
    left = filtered(range(10))
    assert not wants_rows(CHECK, seen(left, looked_at=[added(range(10))], declared=DeclaredRows(explodes=True)))


@pytest.mark.parametrize("counts", [{}, UNCOUNTED])
@pytest.mark.parametrize(("offsets", "whole"), [((*range(10), *range(10)), True), ((*range(10), *range(9), 3), False)])
def test_two_sources_of_a_query_may_read_the_same_topic(
    counts: dict[str, Any], offsets: Sequence[int], whole: bool
) -> None:
    """Each has a row of every offset; one that is there three times is none of theirs."""
    read = tuple(OffsetSpan(TOPIC, "id-1", 0, 0, 10, source) for source in range(2))
    given = {} if counts else {"rows_given": 20, "fingerprint_given": of_offsets(TOPIC, 0, [*range(10), *range(10)])}
    entry = Entry(0, *read, **{**given, **counts})
    assert bool(no_spark(entry, looked_at=[added(offsets)])) != whole


def test_what_could_not_be_looked_at_is_told_and_proves_nothing() -> None:
    vacuumed = Unavailable("commit_rows", "data files are no longer in the store")
    verdict = judged(seen(filtered(range(7)), looked_at=[vacuumed]))
    assert verdict.unproved is None and "looked at" not in verdict.message
    assert verdict.evidence["not_looked_at"] == {vacuumed.reason: 1}
    assert verdict.evidence["looked_at"] == {"micro_batches": 0, "rows": 0}


# -- restored entries --------------------------------------------------------------------------------------------------

RESTORED = Entry(0, (0, 10), sink_version=0, **UNCOUNTED)


def test_the_number_of_rows_alone_proves_nothing_of_a_restored_entry() -> None:
    assert same_message(no_spark(RESTORED))
    assert no_spark(RESTORED, looked_at=[Unavailable("commit_rows", "gone")])
    assert not no_spark(RESTORED, looked_at=[added(range(10))])
    assert no_spark(RESTORED, looked_at=[added(NETTED)])
    # Other sinks than Delta tables as well.
    assert no_spark(RESTORED, delta=gone("delta"), sink_logs={SINK: SinkLog(location="files", exists=True)})


def test_one_row_of_one_offset_is_no_other() -> None:
    assert not no_spark(Entry(0, (0, 1), sink_version=0, **UNCOUNTED))


def test_a_replay_that_counted_what_was_read_proves_as_much_as_any_count() -> None:
    replay = Entry(0, (0, 10), sink_version=0, status="already_committed", attempt=2)
    log = delta(commit(0, RESTORED))
    assert not wants_rows(CHECK, witnesses(ledger(RESTORED, replay), delta=log))


def test_a_restored_entry_of_a_sink_whose_rows_carry_no_offsets_is_a_finding_that_can_be_accepted() -> None:
    verdict = judged(seen(RESTORED, rows=rows(has_source_columns=False)))
    assert [finding.code for finding in verdict.findings] == [Code.INCONCLUSIVE] and same_message(verdict.message)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_compaction_may_have_removed_what_a_restored_entry_lost(policy: str) -> None:
    short = Entry(0, (0, 10), rows_written=9, sink_version=0, **UNCOUNTED)
    hole = {"rows": rows(group(0, (0, 4), (5, 10)), group(1, (10, 20))), "probes": probe([(4, 5)]),
            "kafka": kafka(policy=policy)}  # fmt: skip
    found = told(judged(seen(short, Entry(1, (10, 20), sink_version=1), **hole)))
    assert [one[0] for one in found] == (["INCONCLUSIVE"] * (policy == "compact"))
    # A replay of the hook counted what was read.
    replay = Entry(0, (0, 10), rows_read=9, rows_written=9, rows_filtered=0, sink_version=0, status="already_committed",
                   attempt=2)  # fmt: skip
    assert told(judged(witnesses(ledger(short, replay, Entry(1, (10, 20))), **hole))) == []
