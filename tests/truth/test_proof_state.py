"""The proof from audit to audit: what advances it, what stays open, what answers it, and what tampers with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from recon.audits.collect import _Reader
from recon.base.errors import LedgerError
from recon.model import Code, Finding, PreviousAudit
from recon.model.offsets import Span
from recon.model.proof import Acceptance, SinkProof
from recon.write.ledger import Ledger
from recon.write.ledger.proofs import ProofEdited
from tests.truth.judge import Judgement, WithoutKafka, WithoutSpark, WorldSources, audit
from tests.truth.memory import MemoryStore
from tests.truth.stories import (
    Aggregates,
    OfAggregates,
    accepted,
    half_the_input_of_an_aggregate_expires_before_it_is_read,
    next_day,
    ran,
)
from tests.truth.world import PIPELINE, SINK, TOPIC, World


def state(world: World) -> SinkProof:
    found = world.ledger.proofs.newest(PIPELINE, SINK)
    assert found is not None
    return found


def all_open(of: SinkProof) -> list[str]:
    return [open_finding.id for open_finding in of.open]


def with_gap() -> World:
    """Offsets 15 to 19 of both partitions are read by no micro-batch, and an audit found it."""
    world = ran(3)
    world.produce()
    world.micro_batch(skip=4)
    assert audit(world).codes == {"GAP"}
    return world


def accept(world: World, chosen: Callable[[SinkProof], list[str]] = all_open) -> None:
    before = state(world)
    ids, acceptance = chosen(before), Acceptance(by="Ada", reason="test data", at=world.now)
    opened = tuple(replace(o, accepted=acceptance) if o.id in ids else o for o in before.open)
    after = replace(before, open=opened)
    assert world.ledger.proofs.append(
        after, after=before.sequence, prev_hash=before.entry_hash, cause="accept", at=world.now
    )


def read_again(world: World, back: int, most: int) -> None:
    """A repair: a new checkpoint reads a range once more, and the query goes on where it was."""
    ends = dict(world.query.positions)
    world.new_checkpoint({where: end - back for where, end in ends.items()})
    world.micro_batch(most=most)
    world.query.positions = ends


def spans(judgement: Judgement, code: Code) -> set[tuple[int, int]]:
    found = [f.span for r in judgement.results for f in r.findings if f.code is code]
    return {(span.start, span.end) for span in found if span is not None}


def test_the_position_follows_the_entries_that_were_judged() -> None:
    world = ran(3)
    assert audit(world).answer == "complete"
    first = state(world)
    assert (first.position, first.first_batch_id, first.open) == (3, 0, ())
    assert [(c.partition, c.ranges) for c in first.coverage] == [(0, ((0, 15),)), (1, ((0, 15),))]
    next_day(world)
    judgement = audit(world)
    assert judgement.because == (
        "Every offset of micro-batch 0 (orders-0 from offset 0, and 1 more partition) to 5 is accounted for"
    )
    second = state(world)
    assert (second.position, second.sequence, second.chain_head) == (6, 2, world.ledger.head_hash(PIPELINE, SINK))
    assert second.coverage[0].ranges == ((0, 30),)


def test_an_audit_without_a_witness_advances_nothing_and_the_next_one_judges_it_all() -> None:
    world = ran(3)
    audit(world)
    world.produce()
    world.micro_batch(lose=(1,), inflated=1)
    assert audit(world, sources_of=WithoutKafka).answer != "complete"
    assert state(world).position == 3
    for _ in range(3):
        next_day(world)
    assert "GAP" in audit(world).codes
    assert state(world).position == 13


@pytest.mark.parametrize(
    ("missing", "checks", "code"),
    [
        (WithoutKafka, ("kafka_end_offsets", "source_rows"), Code.INCONCLUSIVE),
        (WithoutSpark, ("source_rows",), Code.GAP),
    ],
)
def test_an_open_finding_does_not_make_an_audit_whole_that_lacks_a_witness(
    missing: Callable[[World], WorldSources], checks: tuple[str, ...], code: Code
) -> None:
    """A check that only reports again what was open before has judged nothing of the new micro-batches."""
    world = ran(3)
    world.delete(lambda row: row.batch_id == 1)
    audit(world)
    before = state(world)
    finding = replace(before.open[0].finding, code=code)
    opened = tuple(replace(before.open[0], check=check, finding=finding) for check in checks)
    after = replace(before, open=opened)
    world.ledger.proofs.append(after, after=1, prev_hash=before.entry_hash, cause="audit", at=world.now)
    world.produce()
    world.micro_batch(lose=(1,), inflated=1)
    for _ in range(2):
        assert audit(world, sources_of=missing).answer != "complete"
        assert state(world).position == 3
    for _ in range(3):
        next_day(world)
    judgement = audit(world)
    assert state(world).position == 13
    assert spans(judgement, Code.GAP) >= {(16, 17)}


def test_an_audit_that_cannot_find_the_position_advances_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ran(3)
    audit(world)
    next_day(world)

    def unreadable(*_: object) -> int:
        raise LedgerError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(world.ledger, "position_before", unreadable)
        assert audit(world).answer == "could not be proved"
    assert state(world).position == 3


@pytest.mark.parametrize("bounded", ["from_", "to", "only"])
def test_an_audit_of_a_period_or_of_one_check_advances_nothing(bounded: str) -> None:
    world = ran(3)
    audit(world)
    next_day(world)
    judgement = audit(
        world,
        from_=world.commits[0].timestamp if bounded == "from_" else None,
        to=world.now if bounded == "to" else None,
        only=("offset_continuity",) if bounded == "only" else (),
    )
    assert judgement.answer in ("complete", "could not be proved")
    assert (state(world).position, state(world).sequence) == (3, 1)


def test_a_micro_batch_in_flight_is_judged_by_the_next_audit() -> None:
    world = ran(3)
    world.produce()
    world.micro_batch(finish=False)
    assert audit(world).answer == "complete"
    assert state(world).position == 3


def test_a_refutation_stays_with_its_age_whatever_audit_runs() -> None:
    world = with_gap()
    opened = state(world).open
    assert [(o.finding.code, o.finding.span) for o in opened if o.finding.partition == 0] == [(Code.GAP, (15, 19))]
    for _ in range(3):
        next_day(world)
        judgement = audit(world)
        assert (judgement.answer, judgement.codes) == ("not complete", {"GAP"})
    assert f"(finding {opened[0].id}, open since the audit of {opened[0].first_seen:%Y-%m-%d %H:%M:%S}Z" in (
        judgement.because
    )
    assert audit(world, full=True).codes == {"GAP"}
    assert audit(world, only=("ledger_integrity",)).answer == "not complete"
    later = state(world).open
    assert {(o.id, o.first_seen, o.finding) for o in later} == {(o.id, o.first_seen, o.finding) for o in opened}
    assert all(o.last_seen > o.first_seen for o in later)


def test_a_refutation_that_is_looked_at_again_has_its_id_and_age_once() -> None:
    world = with_gap()
    opened = state(world).open
    for _ in range(3):
        world.tick(minutes=1)
        judgement = audit(world)
        findings = [f for r in judgement.results for f in r.findings if f.code is Code.GAP]
        assert findings
        assert all(sum(f.message.count(open_finding.since) for open_finding in opened) == 1 for f in findings)
        assert {open_finding.finding for open_finding in state(world).open} == {
            open_finding.finding for open_finding in opened
        }


def test_what_somebody_accepted_refutes_no_more_and_is_named() -> None:
    world = with_gap()
    accept(world)
    next_day(world)
    for judgement in (audit(world), audit(world, full=True)):
        assert judgement.answer == "complete" and "GAP" not in judgement.codes
        assert judgement.facts.says == "complete, but for 2 accepted findings (8 offsets missing)"
        assert judgement.facts.accepted[0].endswith(f"accepted by Ada on {world.now:%Y-%m-%d}: test data") or (
            "accepted by Ada on" in judgement.facts.accepted[0]
        )
    assert "ACCEPTED" in judgement.codes, "the whole ledger shows it again"
    # Another loss is another finding.
    world.produce()
    world.micro_batch(skip=2)
    assert audit(world).codes >= {"GAP"}


def test_one_of_two_findings_is_accepted() -> None:
    world = with_gap()
    accept(world, lambda s: [o.id for o in s.open if o.finding.partition == 0])
    next_day(world)
    judgement = audit(world)
    assert judgement.answer == "not complete"
    assert {f.partition for r in judgement.results for f in r.findings if f.code is Code.GAP} == {1}


def test_a_repair_closes_and_a_second_one_doubles() -> None:
    world = with_gap()
    read_again(world, 10, 4)
    judgement = audit(world)
    assert (judgement.answer, judgement.codes) == ("complete", {"REPAIRED"})
    assert world.truth.whole and state(world).open == ()
    read_again(world, 10, 4)
    assert audit(world).codes >= {"OVERLAP", "DUPLICATE"} and world.truth.doubled


def test_what_was_repaired_of_a_range_closes_and_the_rest_stays() -> None:
    world = with_gap()
    read_again(world, 10, 2)
    judgement = audit(world)
    assert (judgement.answer, spans(judgement, Code.REPAIRED)) == ("not complete", {(15, 17)})
    assert spans(judgement, Code.GAP) == {(17, 19)}
    assert {o.finding.span for o in state(world).open} == {(17, 19)}


def test_a_repair_that_loses_a_row_is_a_finding_of_its_own() -> None:
    world = with_gap()
    ends = dict(world.query.positions)
    world.new_checkpoint({where: end - 10 for where, end in ends.items()})
    world.micro_batch(most=4, lose=(1,), inflated=1)
    world.query.positions = ends
    judgement = audit(world)
    assert world.truth.lost and judgement.answer == "not complete"
    assert spans(judgement, Code.GAP) == {(16, 17)}


def test_rows_that_are_there_again_are_repaired_where_they_were_read() -> None:
    world = ran(4)
    world.delete(lambda row: row.batch_id == 2)
    found = audit(world)
    assert found.codes >= {"GAP"} and spans(found, Code.GAP) == {(10, 15)}
    world.restore(3)
    judgement = audit(world)
    assert spans(judgement, Code.REPAIRED) == {(10, 15)} and not spans(judgement, Code.GAP)
    assert world.truth.whole


def test_a_loss_is_not_forgotten_when_compaction_would_explain_it() -> None:
    world = World()
    world.topics[TOPIC].compacts = True
    ran(2, world)
    world.produce()
    world.micro_batch(lose=(2,), inflated=1)
    assert audit(world).answer == "not complete"
    world.topics[TOPIC].logs[0].compacted.add(12)
    for full in (False, True):
        next_day(world)
        assert audit(world, full=full).answer == "not complete"


def test_a_doubled_row_is_not_repaired_because_another_one_is_found_beside_it() -> None:
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(0,), double=(7,), by="transform")
    first = audit(world)
    assert spans(first, Code.DUPLICATE) == {(12, 13)}
    read_again(world, 4, 1)
    second = audit(world)
    assert world.truth.doubled >= {(TOPIC, "id-1", 1, 12)}
    assert not any(begin <= 12 < end for begin, end in spans(second, Code.REPAIRED)), second.because
    assert any(begin <= 12 < end for begin, end in spans(second, Code.DUPLICATE))


# -- audits that lack a witness ----------------------------------------------------------------------


def found(world: World) -> list[Finding]:
    """What is open and not accepted."""
    return [open_finding.finding for open_finding in state(world).open if open_finding.accepted is None]


def opened(world: World) -> set[tuple[Code, tuple[int, ...] | None, tuple[int, int] | None]]:
    """The code of each of these, the versions that it names, and its offsets."""
    return {(f.code, f.changed_by, f.span) for f in found(world)}


def deleted(world: World, offset: int) -> int:
    """The version of the DELETE that took the row of an offset of partition 0."""
    world.delete(lambda row: row.place[2:] == (0, offset))
    return max(world.commits)


def test_what_an_audit_without_a_witness_refutes_stays_open_and_proves_nothing() -> None:
    world = ran(3)
    audit(world)
    proved = state(world)
    version = deleted(world, 6)
    audit(world, sources_of=WithoutSpark)
    first = state(world)
    assert opened(world) == {(Code.MUTATED, (version,), None), (Code.GAP, (version,), None)}
    assert without_audit(replace(first, open=())) == without_audit(proved)
    # Seen again it is the same finding; another deletion is another one.
    world.tick(hours=20)
    ran(1, world)
    again = deleted(world, 7)
    for _ in range(2):
        judgement = audit(world, sources_of=WithoutSpark)
    assert opened(world) == {(c, (v,), None) for c in (Code.MUTATED, Code.GAP) for v in (version, again)}
    of_before = [open_finding for open_finding in state(world).open if open_finding.finding.changed_by == (version,)]
    assert {(open_finding.id, open_finding.first_seen) for open_finding in of_before} == {
        (open_finding.id, open_finding.first_seen) for open_finding in first.open
    }
    assert all(open_finding.last_seen == world.now for open_finding in of_before)
    assert all(open_finding.id in judgement.because or "also" in judgement.because for open_finding in of_before)
    # Whoever removes the results of these audits removes nothing from the proof, and the next audit goes on from it.
    results = world.ledger.results
    assert isinstance(results, MemoryStore)
    results.parts = []
    assert audit(world).answer == "not complete"
    assert state(world).position == 4
    assert opened(world) >= {(Code.MUTATED, (version,), None), (Code.GAP, (version, again), (6, 8))}


def without_audit(of: SinkProof) -> SinkProof:
    """A state without what tells which audit stored it."""
    return replace(of, sequence=0, entry_hash="", invocation_id="", results_hash="", audited_at=None)


def test_what_the_first_audit_refutes_stays_open_though_it_lacks_a_witness() -> None:
    world = ran(3)
    world.produce()
    world.micro_batch(skip=4)
    assert audit(world, sources_of=WithoutKafka).codes >= {"GAP"}
    first = state(world)
    assert (first.position, first.memories, first.coverage) == (0, {}, ())
    assert {open_finding.finding.span for open_finding in first.open} == {(15, 19)}
    # Nothing was proved: the next audit judges the whole ledger, as the first one does.
    judgement = audit(world)
    assert judgement.facts.period_from is None and spans(judgement, Code.GAP) == {(15, 19)}
    assert state(world).position == 4
    read_again(world, 10, 4)
    assert (audit(world).codes, state(world).open) == ({"REPAIRED"}, ())


def test_an_audit_without_a_witness_closes_nothing_and_leaves_what_was_accepted() -> None:
    world = with_gap()
    accept(world, lambda s: [o.id for o in s.open if o.finding.partition == 0])
    before = state(world)
    read_again(world, 10, 4)
    judgement = audit(world, sources_of=WithoutKafka)
    assert judgement.codes >= {"REPAIRED"} and state(world) == before, "it refuted nothing new"
    world.produce()
    world.micro_batch(skip=2)
    audit(world, sources_of=WithoutKafka)
    assert {open_finding.finding.span for open_finding in state(world).open} >= {(15, 19)}
    assert [open_finding for open_finding in state(world).open if open_finding.accepted is not None] == [
        open_finding for open_finding in before.open if open_finding.accepted is not None
    ]
    judgement = audit(world)
    assert "REPAIRED" in judgement.codes and state(world).position == 6
    assert {open_finding.finding.span for open_finding in state(world).open if open_finding.accepted is None} == {
        (25, 27)
    }


def test_a_wider_loss_takes_the_place_of_the_one_that_was_found_first() -> None:
    world = ran(2)
    world.produce()
    world.micro_batch()
    audit(world)
    deleted(world, 11)
    audit(world, only=("source_rows", "delta_history"))
    first = {
        open_finding.finding.span: open_finding.first_seen
        for open_finding in state(world).open
        if open_finding.check == "source_rows"
    }
    assert set(first) == {(11, 12)} and state(world).position == 3
    world.delete(lambda row: row.place[2:] in ((0, 10), (0, 12)))
    audit(world, only=("source_rows", "delta_history"))
    wider = {
        open_finding.finding.span: open_finding.first_seen
        for open_finding in state(world).open
        if open_finding.check == "source_rows"
    }
    assert wider == {(10, 13): first[Span(11, 12)]}


@pytest.mark.parametrize("bounded", ["from_", "to"])
def test_what_an_audit_of_a_period_refutes_is_not_kept(bounded: str) -> None:
    world = ran(3)
    audit(world)
    world.delete(lambda row: row.batch_id == 1)
    before, at = state(world), {"from_": world.commits[0].timestamp, "to": world.now}[bounded]
    assert audit(world, **{bounded: at}).answer == "not complete"  # type: ignore[arg-type]
    assert state(world) == before


def test_one_deletion_is_one_finding_however_many_audits_look_at_it() -> None:
    """Also where the entries that are looked at again begin later in each audit; and it is accepted once."""
    world = ran(3)
    audit(world)
    for _ in range(4):
        world.tick(hours=5)
        ran(2, world)
        audit(world)
    version = deleted(world, 6)
    for hours in (0, 4, 4, 4):
        world.tick(hours=hours)
        ran(1, world)
        audit(world)
        of_commit = [(Code.GAP, (version,), None), (Code.MUTATED, (version,), None)]
        assert sorted((f.code, f.changed_by, f.span) for f in found(world) if f.span is None) == of_commit
    assert {f.span for f in found(world)} == {None, (6, 7)}
    accept(world)
    for _ in range(5):
        world.tick(hours=4)
        ran(1, world)
        assert audit(world).facts.says == "complete, but for 3 accepted findings (1 record removed)"


# -- tampering ---------------------------------------------------------------------------------------


def stored(world: World) -> MemoryStore:
    store = world.ledger.proofs.store
    assert isinstance(store, MemoryStore)
    return store


def _edit(world: World) -> None:
    """Who edits the state forgets what is open."""
    store = stored(world)
    row = store.parts[-1].to_pylist()[0]
    text = row["state"]
    begin, end = text.index('"open":'), text.rindex("}")
    row["state"] = text[:begin] + '"open":[]' + text[end:]
    store.parts[-1] = pa.Table.from_pylist([row], schema=store.schema)


def _remove(world: World) -> None:
    store = stored(world)
    store.parts, store.lengths, store.history = [], {}, []


def _older_copy(world: World) -> None:
    store = stored(world)
    store.parts = store.parts[:1]
    store.lengths = dict.fromkeys(store.lengths, 1)


def _row_of_the_newest_is_gone(world: World) -> None:
    store = stored(world)
    store.parts = store.parts[:-1]


@pytest.mark.parametrize("tamper", [_edit, _remove, _older_copy, _row_of_the_newest_is_gone])
def test_a_state_that_is_not_what_recon_stored_is_tampered(tamper: Callable[[World], None]) -> None:
    world = with_gap()
    next_day(world)
    audit(world)
    next_day(world)
    audit(world)
    assert world.ledger.verify() == []
    tamper(world)
    if tamper not in (_remove, _older_copy):  # those leave a table that is right in itself
        assert {found.code for found in world.ledger.verify()} == {Code.TAMPERED}
    judgement = audit(world)
    assert judgement.answer == "not complete" and "TAMPERED" in judgement.codes
    # The whole ledger was judged, and the new state goes on: the finding stays until somebody accepts it.
    next_day(world)
    assert "TAMPERED" in audit(world).codes


def loss_that_only_audits_know() -> World:
    """Offsets that expired unread, and that the stream passed over since: what is there now does not show when."""
    world = ran(2)
    audit(world)
    world.produce()
    world.expire(14)
    for _ in range(4):
        assert "LOSS_RETENTION" in audit(world).codes
        world.tick(minutes=1)
    world.micro_batch()
    assert lost_unread(audit(world)) == {(10, 14)}
    return world


def lost_unread(judgement: Judgement) -> set[tuple[int, int]]:
    """The offsets that are said to have expired unread; source_rows sees no more than that they have no row."""
    found = (f for r in judgement.results if r.check == "kafka_end_offsets" for f in r.findings)
    return {(f.span.start, f.span.end) for f in found if f.code is Code.LOSS_RETENTION and f.span is not None}


@pytest.mark.parametrize("sources_of", [WorldSources, WithoutKafka, WithoutSpark])
@pytest.mark.parametrize("tamper", [_edit, _remove, _older_copy, _row_of_the_newest_is_gone])
def test_what_audits_refuted_stays_open_though_the_state_that_has_it_is_gone(
    tamper: Callable[[World], None], sources_of: Callable[[World], WorldSources]
) -> None:
    """Their results have it still."""
    world = loss_that_only_audits_know()
    tamper(world)
    judgement = audit(world, sources_of=sources_of)
    assert judgement.answer == "not complete" and "TAMPERED" in judgement.codes
    assert lost_unread(judgement) == {(10, 14)}
    assert "kafka_end_offsets" in {o.check for o in state(world).open if o.finding.code is Code.LOSS_RETENTION}
    # Who accepts that the state is another one does not accept what it had.
    accept(world, lambda of: [o.id for o in of.open if o.finding.code is Code.TAMPERED])
    for missing in (sources_of, WorldSources):
        world.tick(minutes=1)
        judgement = audit(world, sources_of=missing)
        assert judgement.answer == "not complete" and lost_unread(judgement) == {(10, 14)}
        assert "TAMPERED" not in judgement.codes
    accept(world)
    world.tick(minutes=1)
    assert audit(world).facts.says.startswith("complete, but for")


@pytest.mark.parametrize("tamper", [_remove, _older_copy])
def test_what_was_repaired_stays_so_though_the_state_that_knew_it_is_gone(tamper: Callable[[World], None]) -> None:
    world = ran(4)
    audit(world)
    world.tick(minutes=1)
    world.delete(lambda row: row.batch_id == 1)
    assert audit(world).codes >= {"GAP", "MUTATED"}
    world.tick(minutes=1)
    world.restore(3)
    for _ in range(3):
        world.tick(minutes=1)
        audit(world)
    assert {o.finding.code for o in state(world).open} == {Code.MUTATED}
    tamper(world)
    world.tick(minutes=1)
    assert {o.finding.code for o in (audit(world), state(world))[1].open} == {Code.MUTATED, Code.TAMPERED}


def test_every_state_of_a_proof_is_verified() -> None:
    world = with_gap()
    for _ in range(3):
        next_day(world)
        audit(world)
    store, before = stored(world), list(stored(world).parts)
    edited = before[1].to_pylist()[0] | {"cause": "accept"}
    for parts in (
        [before[0], pa.Table.from_pylist([edited], schema=store.schema), *before[2:]],
        before[:1] + before[2:],
    ):
        store.parts = parts
        assert {found.code for found in world.ledger.verify()} == {Code.TAMPERED}
        assert world.ledger.verify("another") == []
    store.parts = before
    assert world.ledger.verify() == []


def test_a_finding_without_a_place_keeps_its_id_and_age() -> None:
    world = ran(3)
    for _ in range(2):
        audit(world)
    _remove(world)
    world.tick(minutes=1)
    audit(world)
    (opened,) = state(world).open
    assert opened.finding.code is Code.TAMPERED
    assert opened.finding.batch_id is None and opened.finding.span is None
    for _ in range(3):
        world.tick(minutes=1)
        judgement = audit(world)
        (found,) = (f for r in judgement.results for f in r.findings if f.code is Code.TAMPERED)
        assert found.message == opened.finding.message + opened.since
        (known,) = state(world).open
        assert (known.id, known.first_seen, known.finding) == (opened.id, opened.first_seen, opened.finding)


def test_a_proof_that_cannot_be_read_is_never_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ran(3)
    audit(world)

    def unreadable(*_: object) -> int:
        raise OSError("the store does not answer")

    monkeypatch.setattr(world.ledger.proofs, "length", unreadable)
    judgement = audit(world)
    assert judgement.answer == "could not be proved"
    assert "the state that earlier audits left cannot be read (the store does not answer)" in judgement.because


def test_a_state_that_could_not_be_read_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails once takes away neither what is open nor what somebody accepted."""
    world = with_gap()
    accept(world, lambda of: [open_finding.id for open_finding in of.open if open_finding.finding.partition == 0])
    before = state(world)

    def unreadable(*_: object) -> SinkProof:
        raise OSError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(world.ledger.proofs, "newest", unreadable)
        assert audit(world).answer == "not complete"
    assert state(world) == before
    judgement = audit(world)
    assert (judgement.answer, len(judgement.facts.accepted)) == ("not complete", 1)
    assert {open_finding.id: open_finding.accepted for open_finding in state(world).open} == {
        open_finding.id: open_finding.accepted for open_finding in before.open
    }


def test_an_entry_that_was_judged_and_is_another_one_now_is_tampered() -> None:
    world = ran(3)
    audit(world)
    entries = world.ledger.store
    assert isinstance(entries, MemoryStore)
    entries.parts, entries.lengths, entries.history = [], {}, []
    for _ in range(4):
        world.produce()
        world.micro_batch()
    assert "TAMPERED" in audit(world).codes


def test_a_state_whose_table_is_empty_though_its_log_counts_it_was_edited() -> None:
    world = with_gap()
    _row_of_the_newest_is_gone(world)
    with pytest.raises(ProofEdited, match="has no state number 1 of pipeline orders, sink lake"):
        world.ledger.proofs.newest(PIPELINE, SINK)


def test_an_acceptance_that_an_older_version_stored_without_a_topic_id_holds_for_the_only_topic_there_was() -> None:
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(1,))
    audit(world)
    accept(world)
    state = world.ledger.proofs.newest(PIPELINE, SINK)
    assert state is not None and {open_finding.finding.topic_id for open_finding in state.open} == {"id-1"}
    older = tuple(
        replace(open_finding, finding=replace(open_finding.finding, topic_id=None)) for open_finding in state.open
    )
    world.ledger.proofs.append(
        replace(state, open=older), after=state.sequence, prev_hash=state.entry_hash, cause="accept", at=world.now
    )
    assert audit(world).answer == "complete"


def test_an_audit_of_a_period_speaks_of_its_own_micro_batches() -> None:
    """Not of the one before it, which it did not judge: here that one lost a row."""
    world = ran(2)
    world.produce(5)
    world.micro_batch(lose=(1,))
    world.tick(days=1)
    begin = world.now
    empty = audit(world, from_=begin)
    assert empty.because == "Every offset of what the stream read in the period (no micro-batch) is accounted for"
    judgement = audit(ran(2, world), from_=begin)
    assert judgement.because == (
        "Every offset of micro-batch 3 (orders-0 from offset 15, and 1 more partition) to 4 is accounted for"
    )


def test_an_audit_of_a_later_period_does_not_speak_of_what_lies_between_it_and_the_proof() -> None:
    world = ran(2)
    assert audit(world).answer == "complete"
    world.produce(5)
    world.micro_batch(swallow=True)
    ran(1, world)
    world.tick(days=1)
    begin = world.now
    ran(1, world)
    assert audit(world, from_=begin).because.startswith("Every offset of micro-batch 4 (orders-0 from offset 20, ")
    # A period that begins in what was proved goes on from there.
    assert "GAP" in audit(world).codes


@pytest.mark.parametrize(("states", "accepts"), [(0, False), (1, False), (1, True)])
@pytest.mark.parametrize("sources", [WorldSources, WithoutSpark])
def test_a_refutation_stays_though_the_state_that_has_it_is_gone(
    states: int, accepts: bool, sources: Callable[[World], WorldSources]
) -> None:
    """Nor does the log show any more what happened. The results of the audit that found it are there."""
    world = ran(3)
    if accepts:
        world.produce()
        world.micro_batch(skip=2)
    for _ in range(states):
        audit(world)
    known = {(f.code, f.span) for f in found(world)} if states else set()
    version = deleted(world, 6)
    audit(world, sources_of=sources)
    refuted = {(f.code, f.span) for f in found(world)} - known
    store = stored(world)
    store.parts = store.parts[:states]
    store.lengths = dict.fromkeys(store.lengths, states)
    if accepts:  # what was known before; it is stored later than the results are
        world.tick()
        accept(world)
    world.clean_log()
    judgement = audit(world)
    assert judgement.answer == "not complete"
    assert refuted <= {(f.code, f.span) for f in found(world)}
    assert (Code.MUTATED, (version,), None) in opened(world)
    # It is taken over once, and accepted as any other.
    audit(world)
    accept(world)
    assert audit(world).facts.says.startswith("complete, but for")


def test_what_was_accepted_does_not_come_back_when_the_log_is_cleaned_up() -> None:
    world = ran(3)
    audit(world)
    deleted(world, 6)
    audit(world)
    accept(world)
    for full in (False, True):
        world.optimize()
        world.clean_log()
        judgement = audit(world, full=full)
        assert judgement.facts.says.startswith("complete, but for"), judgement.because
    deleted(world, 7)
    world.clean_log()
    assert audit(world).answer == "not complete"


# -- results that were removed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "one of the last audit"])
def test_results_that_were_removed_are_found_by_the_next_audit(which: str) -> None:
    world = ran(3)
    for _ in range(2):
        audit(world)
        world.tick(hours=1)
        ran(1, world)
    results = world.ledger.results
    assert isinstance(results, MemoryStore)
    if which == "all":
        results.parts = []
    else:
        results.parts[-1] = results.parts[-1].slice(1)
    judgement = audit(world)
    assert "TAMPERED" in judgement.codes and judgement.answer == "not complete"
    world.tick(hours=1)
    assert audit(world).answer == "not complete", "it stays open until somebody accepts it"
    accepted(world, lambda _: True)
    assert audit(world).facts.says.startswith("complete, but for")


def test_results_older_than_those_that_audits_read_may_be_removed() -> None:
    world = ran(3)
    audit(world)
    world.tick(days=31)
    results = world.ledger.results
    assert isinstance(results, MemoryStore)
    results.parts = []
    assert "TAMPERED" not in audit(world).codes


def test_an_audit_that_ends_while_another_begins_removed_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reads results, the first stores its own and its state, and the second reads that state."""
    world = ran(3)
    audit(world)
    read, ends = _Reader.previous, [audit]

    def previous(reader: _Reader, ledger: Ledger) -> PreviousAudit | None:
        before = read(reader, ledger)
        if ends:
            ends.pop()(world)
        return before

    monkeypatch.setattr(_Reader, "previous", previous)
    assert audit(world).answer == "complete"


def test_a_loss_of_unread_offsets_that_a_range_covers_later_is_not_called_repaired() -> None:
    """Spark reads past what Kafka has deleted (failOnDataLoss=false): the micro-batch's range has these offsets."""
    world = ran(2)
    world.produce()
    world.expire(14)
    assert "LOSS_RETENTION" in audit(world).codes
    world.micro_batch()
    judgement = audit(world)
    told = {f.code for r in judgement.results for f in r.findings if r.check == "kafka_end_offsets"}
    assert Code.LOSS_RETENTION in told and Code.REPAIRED not in told
    lost = [f.code for r in judgement.results for f in r.findings if r.check == "source_rows"]
    assert Code.LOSS_RETENTION in lost and judgement.answer == "not complete"


def test_what_nothing_can_tell_stays_open_until_it_is_accepted_and_later_audits_judge_what_is_new() -> None:
    """Half the input of an aggregate expired before it was read, and no row of the sink says which."""
    world, judgement = half_the_input_of_an_aggregate_expires_before_it_is_read()
    assert judgement.answer == "could not be proved"
    ran(2, world)
    again = audit(world, sources_of=OfAggregates)
    assert (again.answer, again.codes) == ("could not be proved", {"INCONCLUSIVE", "ATTESTED_ONLY"})
    assert state(world).position == 3
    accept(world)
    ran(1, world)
    answer = audit(world, sources_of=OfAggregates)
    assert answer.answer == "complete" and answer.codes == {"ACCEPTED", "ATTESTED_ONLY"}
    assert len(answer.facts.accepted) == 1


def loses_half(world: World, count: int = 20) -> None:
    """A micro-batch of an aggregate, half of whose input Kafka deletes before it is read."""
    world.produce(count)
    world.crash("write")
    world.expire(max(world.query.positions.values(), default=0) + count // 2)
    world.restart()


def of_aggregates(world: World, *, full: bool = False) -> Judgement:
    world.tick(hours=2)
    return audit(world, sources_of=OfAggregates, full=full)


@pytest.mark.parametrize("full", [False, True])
def test_an_acceptance_is_of_the_micro_batches_that_somebody_saw(full: bool) -> None:
    """Numbers of micro-batches begin anew with a checkpoint, and a later audit judges others."""
    world = Aggregates()
    loses_half(world)
    ran(1, world)
    loses_half(world)
    assert of_aggregates(world).answer == "could not be proved" and len(state(world).open) == 2
    accept(world)
    for _ in range(2):
        world.tick(days=2)
        ran(2, world)
        assert of_aggregates(world, full=full).facts.says == "complete, but for 2 accepted findings"
    world.new_checkpoint(dict(world.query.positions))
    loses_half(world)
    ran(1, world)
    loses_half(world)
    again = of_aggregates(world, full=full)
    assert again.answer == "could not be proved"
    waiting = [open_finding.finding for open_finding in state(world).open if open_finding.accepted is None]
    assert {(f.epoch, f.batch_id) for f in waiting} == {(1, 0), (1, 2)}


def test_accepted_questions_are_not_asked_again_where_others_are_judged_with_them() -> None:
    world = Aggregates()
    for _ in range(2):
        loses_half(world)
        ran(1, world)
        assert of_aggregates(world).answer == "could not be proved"
        accept(world)
        world.tick(days=3)
    assert of_aggregates(world, full=True).facts.says == "complete, but for 2 accepted findings"
    ran(1, world)
    assert of_aggregates(world).facts.says == "complete, but for 2 accepted findings"


def test_an_accepted_stranger_is_not_the_one_of_the_same_version_in_a_table_made_anew() -> None:
    world = Aggregates()
    ran(3, world)
    world.append_as_stranger([world.rows[0].place])
    assert of_aggregates(world).answer == "could not be proved"
    accept(world)
    world.tick(days=2)
    world.drop_table()
    ran(1, world)
    assert of_aggregates(world).answer == "not complete"
    accept(world)
    world.tick(days=2)
    ran(1, world)
    world.append_as_stranger([world.rows[-1].place])
    assert of_aggregates(world).answer == "could not be proved"
    assert of_aggregates(world).answer == "could not be proved"


@pytest.mark.parametrize("fault", ["lose", "double"])
def test_what_an_aggregate_gave_to_the_sink_and_the_sink_did_not_take_in_is_not_attested(fault: str) -> None:
    """Spark says that every offset was read; that the sink has what came of them, the ledger's own counts deny."""
    world = Aggregates()
    ran(2, world)
    world.produce(5)
    world.micro_batch(lose=(1,) if fault == "lose" else (), double=(1,) if fault == "double" else ())
    answer = of_aggregates(world)
    assert answer.answer == "could not be proved" and "INCONCLUSIVE" in answer.codes


def test_the_account_has_the_rows_of_the_files_where_a_retried_stage_was_counted_twice() -> None:
    world = ran(1)
    world.micro_batch(inflated=3)  # it reads nothing
    world.produce(5)
    world.micro_batch(inflated=2)
    answer = audit(world)
    account = answer.facts.sinks[0].account
    assert answer.answer == "complete" and answer.codes == {"METRIC_UNRELIABLE"}
    assert account is not None and (account.offsets, account.rows, account.difference) == (20, 20, 0)
