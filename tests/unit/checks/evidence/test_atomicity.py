"""atomicity: micro-batches that landed in some sinks only, and rows lost between routes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recon.checks.evidence.atomicity import Atomicity
from recon.judge.open_findings import with_open_findings
from recon.model import REPAIRS, Code, LedgerSlice, Level, Verdict
from recon.model.proof import Acceptance, OpenFinding, Proofs, SinkProof
from recon.testing.evidence import NOW, Entry, checkpoint, ledger, planned, span
from tests.support.messages import same_message
from tests.support.witnesses import codes, witnesses

CHECK = Atomicity()


def part(batch_id: int, start: int, end: int, written: int, **head: Any) -> Entry:
    """A route's entry: of all offsets read, `written` rows came here and the others went elsewhere."""
    read = end - start
    return Entry(
        batch_id, (start, end), **{"rows_read": read, "rows_written": written, "rows_filtered": read - written, **head}
    )


def judged(routed: bool = True, done: int | None = None, **sinks: LedgerSlice) -> Verdict:
    fields: dict[str, Any] = {"sink": None, "routed": tuple(sinks) if routed else ()}
    if done is not None:  # the newest micro-batch that Spark finished
        fields["checkpoint"] = checkpoint(*(planned(i, (0, 1), committed=i <= done) for i in range(done + 2)))
    return CHECK.judge(replace(witnesses(**fields), ledgers=sinks))


A = ledger(part(0, 0, 10, 6), part(1, 10, 20, 3))
B = ledger(part(0, 0, 10, 4), part(1, 10, 20, 7))


def test_everything_landed_and_adds_up() -> None:
    verdict = judged(a=A, b=B)
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence["rows_in_routes"] == 20


def test_one_sink_is_not_judged() -> None:
    assert judged(a=A).skipped


def test_no_entries_prove_nothing() -> None:
    assert "nothing can be proved" in (judged(a=ledger(), b=ledger()).unproved or "")


def test_a_route_that_lacks_an_older_micro_batch() -> None:
    verdict = judged(a=A, b=ledger(part(0, 0, 10, 4), part(2, 20, 30, 5)), c=A)
    found = [f for f in verdict.findings if f.code is Code.PARTIAL]
    assert next((f.sink, f.batch_id, f.start_offset, f.end_offset) for f in found) == ("b", 1, 10, 20)
    assert same_message(found[0].message)


def test_the_newest_is_in_flight_until_spark_finished_it() -> None:
    behind = ledger(part(0, 0, 10, 4))
    assert codes(judged(a=A, b=behind)) == [Code.INFLIGHT]
    assert codes(judged(a=A, b=behind, done=0)) == [Code.INFLIGHT]
    verdict = judged(a=A, b=behind, done=1)
    assert codes(verdict) == [Code.PARTIAL] and verdict.failures == 1


def test_a_route_without_entries() -> None:
    one = ledger(part(0, 0, 10, 6))
    assert codes(judged(a=one, b=ledger())) == [Code.INFLIGHT]
    verdict = judged(a=A, b=ledger())
    assert codes(verdict) == [Code.INCONCLUSIVE] and verdict.unproved


def test_a_route_that_was_added_later() -> None:
    later = ledger(part(1, 10, 20, 7, started_at=A.heads[1].started_at))
    verdict = judged(a=A, b=later)
    assert codes(verdict) == [Code.EXPLAINED] and verdict.failures == 0
    # A chain whose first entry is gone did not begin there.
    cut = ledger(part(1, 10, 20, 7, started_at=A.heads[1].started_at, prev_hash="h"))
    assert codes(judged(a=A, b=cut)) == [Code.PARTIAL]


def test_epochs_of_routes_need_not_agree() -> None:
    first = ledger(part(0, 0, 10, 6), part(0, 10, 20, 3, epoch=1, query_id="q-2"))
    second = ledger(part(0, 10, 20, 7, epoch=0, query_id="q-2", started_at=first.heads[1].started_at))
    verdict = judged(a=first, b=second)
    assert codes(verdict) == [Code.EXPLAINED] and verdict.evidence["landed"] == 2


def test_one_query_that_numbers_anew_is_told_apart_by_offsets() -> None:
    first = ledger(part(0, 0, 10, 6), part(0, 10, 20, 3, epoch=1))
    verdict = judged(a=first, b=ledger(part(0, 0, 10, 4)), done=0)
    assert [(f.code, f.sink) for f in verdict.findings] == [(Code.PARTIAL, "b")]


def test_offsets_that_came_with_another_micro_batch() -> None:
    first = ledger(part(0, 0, 10, 6), part(1, 10, 20, 3), part(0, 20, 30, 1, epoch=1, query_id="q-2"))
    second = ledger(part(0, 0, 10, 4), part(0, 10, 30, 16, epoch=1, query_id="q-2"))
    verdict = judged(a=first, b=second)
    assert codes(verdict) == [Code.EXPLAINED] and same_message(verdict.findings[0].message)


def test_a_row_that_is_in_no_route() -> None:
    lossy = ledger(part(0, 0, 10, 4), part(1, 10, 20, 6, rows_filtered=3))
    verdict = judged(a=A, b=lossy)
    assert codes(verdict) == [Code.PARTIAL] and same_message(verdict.message)
    assert verdict.evidence["rows_in_routes"] == 19


def test_quarantined_and_reduced_rows_are_accounted_for() -> None:
    other = ledger(
        Entry(0, (0, 10), rows_read=10, rows_written=1, rows_quarantined=2, rows_filtered=7),  # one reduced by a MERGE
        part(1, 10, 20, 7),
    )
    assert judged(a=A, b=other).failures == 0


def test_rows_in_two_routes() -> None:
    verdict = judged(a=A, b=ledger(part(0, 0, 10, 5), part(1, 10, 20, 7)))
    assert codes(verdict) == [Code.DUPLICATE] and same_message(verdict.message)


def test_a_retry_that_counts_otherwise() -> None:
    again = part(0, 0, 10, 6, status="already_committed", attempt=2, rows_filtered=5, sink_version=0)
    verdict = judged(a=ledger(part(0, 0, 10, 6), again, part(1, 10, 20, 3)), b=B)
    assert codes(verdict) == [Code.NONDETERMINISTIC] and verdict.failures == 1


def test_a_restored_entry_is_judged_by_its_replay() -> None:
    restored = part(0, 0, 10, 5, status="rebuilt", rows_read=None, rows_filtered=None, rows_quarantined=None)
    verdict = judged(a=ledger(restored, part(1, 10, 20, 3)), b=B)
    assert verdict.failures == 0 and verdict.evidence["counts_unknown"] == 1
    replay = part(0, 0, 10, 5, status="already_committed", attempt=2, sink_version=0, rows_filtered=4)
    assert codes(judged(a=ledger(restored, replay, part(1, 10, 20, 3)), b=B)) == [Code.PARTIAL]


def test_a_transform_that_makes_rows_leaves_counts_open() -> None:
    verdict = judged(a=ledger(part(0, 0, 10, 16, rows_filtered=4)), b=ledger(part(0, 0, 10, 8, rows_filtered=6)))
    assert verdict.failures == 0 and verdict.evidence["counts_unknown"] == 1


def test_sinks_without_routes_hold_all_rows_each() -> None:
    whole = ledger(Entry(0, (0, 10)), Entry(1, (10, 20)))
    assert judged(routed=False, a=whole, b=whole).failures == 0
    assert codes(judged(routed=False, a=whole, b=ledger(Entry(0, (0, 10))), done=1)) == [Code.PARTIAL]


def test_empty_micro_batches_are_nowhere_missing() -> None:
    idle = ledger(part(0, 0, 10, 6), part(1, 10, 10, 0), part(2, 10, 20, 1))
    assert judged(a=idle, b=ledger(part(0, 0, 10, 4), part(2, 10, 20, 9))).failures == 0


def test_several_partitions_are_told_without_one_range() -> None:
    both = (span(0, 5), span(0, 5, partition=1))
    counts = {"rows_read": 10, "rows_written": 5, "rows_filtered": 5}
    first = ledger(Entry(0, *both, **counts), Entry(1, (5, 6), rows_read=1, rows_written=1))
    second = ledger(Entry(1, (5, 6), rows_read=1, rows_written=0, rows_filtered=1, prev_hash="h"))
    (found,) = [f for f in judged(a=first, b=second).findings if f.code is Code.PARTIAL]
    assert found.start_offset is None and same_message(found.message)


def test_a_restored_entry_of_a_route_that_reduces_rows_is_no_contradiction() -> None:
    # Restored from the sink's record: of six rows handed over five were taken. Its replay counted the other route, too.
    kind = {"sink_kind": "delta_merge", "rows_quarantined": 0}
    restored = part(0, 0, 10, 5, status="rebuilt", **{**kind, "rows_read": None, "rows_filtered": 1})
    replay = part(0, 0, 10, 5, status="already_committed", attempt=2, sink_version=0, rows_filtered=5, **kind)
    found = judged(a=ledger(restored, replay, part(1, 10, 20, 3)), b=B)
    assert (found.failures, found.unproved, codes(found)) == (0, None, [])


def repaired(start: int, end: int, written: int, **head: Any) -> Entry:
    """A repair of a route, which read these offsets again."""
    return part(0, start, end, written, **{"epoch": REPAIRS, "status": "repaired", "query_id": "repair-1", **head})


def test_a_repair_reads_what_a_route_lacked() -> None:
    lacking = part(0, 0, 10, 4), part(2, 20, 30, 5)
    whole = ledger(part(0, 0, 10, 6), part(1, 10, 20, 3), part(2, 20, 30, 5))
    assert codes(judged(a=whole, b=ledger(*lacking))) == [Code.PARTIAL]
    verdict = judged(a=whole, b=ledger(*lacking, repaired(10, 20, 7)))
    assert codes(verdict) == [Code.EXPLAINED] and verdict.failures == 0
    some = judged(a=whole, b=ledger(*lacking, repaired(10, 15, 3)))
    assert [(f.code, f.start_offset, f.end_offset) for f in some.findings] == [(Code.PARTIAL, 15, 20)]


def test_a_repair_of_offsets_that_a_route_has_is_no_second_micro_batch() -> None:
    mended = ledger(part(0, 0, 10, 4), part(1, 10, 20, 7), repaired(0, 10, 1))
    verdict = judged(a=A, b=mended)
    assert (verdict.findings, verdict.evidence["rows_in_routes"]) == ((), 20)


def test_a_row_that_a_repair_routed_and_lost() -> None:
    lossy = ledger(part(0, 0, 10, 4), part(1, 10, 20, 7), repaired(0, 10, 1, rows_filtered=8))
    verdict = judged(a=A, b=lossy)
    assert [(f.code, f.sink, f.epoch, f.batch_id) for f in verdict.findings] == [(Code.PARTIAL, "b", REPAIRS, 0)]
    for unknown in ({"rows_filtered": None}, {"rows_read": None}, {"rows_filtered": 12}):
        known = ledger(part(0, 0, 10, 4), part(1, 10, 20, 7), repaired(0, 10, 1, **unknown))
        assert judged(a=A, b=known).findings == ()


def test_a_lost_row_that_a_repair_wrote() -> None:
    lossy = part(0, 0, 10, 4), part(1, 10, 20, 6, rows_filtered=3)
    assert codes(judged(a=A, b=ledger(*lossy, repaired(11, 14, 1)))) == [Code.EXPLAINED]
    for elsewhere in (repaired(0, 10, 1), repaired(11, 14, 0), repaired(11, 14, 1, rows_filtered=None)):
        assert codes(judged(a=A, b=ledger(*lossy, elsewhere))) == [Code.PARTIAL]


def opened(verdict: Verdict, **sinks: LedgerSlice) -> Proofs:
    """The states that an audit with these findings leaves: that of each sink has those of all."""
    found = tuple(
        OpenFinding(finding=f, check="atomicity", first_seen=NOW, last_seen=NOW)
        for f in verdict.findings
        if f.level is Level.FAIL
    )
    common: dict[str, Any] = {"pipeline": "p", "at": NOW, "invocation_id": "i", "position": 3, "chain_head": ""}
    states = {s: SinkProof(sink=s, first_epoch=0, first_batch_id=0, open=found, **common) for s in sinks}
    return Proofs(of_sink=states)


def again(proofs: Proofs, **sinks: LedgerSlice) -> Verdict:
    """What a later audit says, with what is open."""
    seen = replace(witnesses(sink=None, routed=tuple(sinks)), ledgers=sinks, proofs=proofs)
    return with_open_findings(CHECK.judge(seen), "atomicity", seen)


def test_what_a_route_lacks_stays_open_until_it_is_read() -> None:
    whole = ledger(part(0, 0, 10, 6), part(1, 10, 20, 3), part(2, 20, 30, 5))
    lacking = part(0, 0, 10, 4), part(2, 20, 30, 5)
    proofs = opened(judged(a=whole, b=ledger(*lacking)), a=whole, b=whole)
    later = part(3, 30, 40, 4)
    a = ledger(part(2, 20, 30, 5), later, anchors=1, complete=False)
    b = ledger(part(2, 20, 30, 5), later, anchors=1, complete=False)
    open_still = again(proofs, a=a, b=b)
    assert [(f.code, f.sink, f.start_offset, f.end_offset) for f in open_still.findings] == [
        (Code.PARTIAL, "b", 10, 20)
    ]
    assert open_still.failures == 1
    mended = ledger(part(2, 20, 30, 5), later, repaired(10, 20, 7), anchors=1, complete=False)
    verdict = again(proofs, a=a, b=mended)
    assert [(f.code, f.sink) for f in verdict.findings] == [(Code.REPAIRED, "b")] and verdict.failures == 0
    # Another route's repair is none of this one.
    assert Code.PARTIAL in codes(again(proofs, a=mended, b=b))


def test_a_lost_row_stays_open_until_its_micro_batch_is_judged_again_or_it_is_accepted() -> None:
    lossy = part(0, 0, 10, 4), part(1, 10, 20, 6, rows_filtered=3)
    proofs = opened(judged(a=A, b=ledger(*lossy)), a=A, b=A)
    a = ledger(part(1, 10, 20, 3), part(2, 20, 30, 4), anchors=1, complete=False)
    b = ledger(part(1, 10, 20, 6, rows_filtered=3), part(2, 20, 30, 6), anchors=1, complete=False)
    assert codes(again(proofs, a=a, b=b)) == [Code.PARTIAL]
    assert codes(again(proofs, a=A, b=ledger(*lossy, repaired(11, 14, 1)))) == [Code.EXPLAINED]
    by = Acceptance(by="ada", reason="known", at=NOW)
    taken = {s: replace(p, open=tuple(replace(one, accepted=by) for one in p.open)) for s, p in proofs.of_sink.items()}
    once = Proofs(of_sink={**proofs.of_sink, "b": taken["b"]})
    assert codes(again(once, a=A, b=ledger(*lossy))) == [Code.ACCEPTED]
    assert codes(again(once, a=a, b=b)) == []
