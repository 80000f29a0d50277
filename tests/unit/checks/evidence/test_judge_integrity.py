"""ledger_integrity: case 40."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from recon.checks.evidence.ledger_integrity import LedgerIntegrity
from recon.model import ChainEnd, Code, LedgerSlice, PreviousAudit, ReconStamp, Verdict
from recon.model.integrity import verify_stamps
from recon.testing.evidence import NOW, SINK, Entry, ledger, range_table
from tests.support.messages import same_message
from tests.support.witnesses import codes, commit, witnesses

CHAIN = ledger(Entry(0, (0, 10)), Entry(1, (10, 20)), Entry(2, (20, 30)), Entry(3, (30, 40)))


def judged(slice_: LedgerSlice | None, **fields: object) -> Verdict:
    return LedgerIntegrity().judge(witnesses(slice_, **fields))


def without(slice_: LedgerSlice, *lost: int, **changes: object) -> LedgerSlice:
    heads = [head for i, head in enumerate(slice_.heads) if i not in lost]
    return replace(slice_, heads=heads, ranges=range_table([[]] * len(heads)), offsets_texts=(), **changes)


def previous(sequence: int, entry_hash: str = "") -> PreviousAudit:
    """An audit that saw the chain end with an entry."""
    end = ChainEnd(sequence, entry_hash or f"hash-{sequence - 1}", NOW)
    return PreviousAudit(generated_at=NOW, chain_ends={SINK: end})


def test_a_whole_chain_passes() -> None:
    verdict = judged(CHAIN, previous=previous(2))
    assert (verdict.failures, verdict.warnings, verdict.unproved, verdict.findings) == (0, 0, None, ())
    assert same_message(verdict.message)
    assert verdict.evidence == {
        "entries": 4,
        "chain_head": "hash-3",
        "chain_position": 4,
        "ledger_version": None,
        "proof_states": 0,
        "erasures": [],
        "judged": [1, 4],
    }


def test_an_edited_entry() -> None:
    verdict = judged(replace(CHAIN, broken=[2]))
    assert codes(verdict) == [Code.TAMPERED]
    assert verdict.failures == 1
    assert verdict.findings[0].batch_id == 2
    assert same_message(verdict.message)


def test_anchors_are_verified_too() -> None:
    assert judged(replace(CHAIN, anchors=3, broken=[0], complete=False)).failures == 1


def test_a_removed_entry() -> None:
    verdict = judged(without(CHAIN, 1))
    assert codes(verdict) == [Code.TAMPERED]
    assert verdict.findings[0].batch_id == 2
    assert same_message(verdict.message)


def test_the_first_entries_are_gone() -> None:
    assert codes(judged(without(CHAIN, 0))) == [Code.TAMPERED]
    assert codes(judged(without(CHAIN, 0, complete=False, anchors=1))) == []


def test_the_last_entry_is_gone_and_the_previous_audit_knew_it() -> None:
    shorter = without(CHAIN, 3)
    assert codes(judged(shorter)) == []
    gone = judged(shorter, previous=previous(4))
    assert codes(gone) == [Code.TAMPERED] and same_message(gone.message)
    assert codes(judged(None, previous=previous(4))) == [Code.TAMPERED]


def test_another_entry_stands_where_the_previous_audit_knew_one() -> None:
    replaced = judged(CHAIN, previous=previous(2, "another"))
    assert codes(replaced) == [Code.TAMPERED] and same_message(replaced.message)


def test_a_slice_that_does_not_reach_back_to_the_previous_audit() -> None:
    later = without(CHAIN, 0, 1, complete=False, anchors=1)
    assert codes(judged(later, previous=previous(1))) == []
    assert codes(judged(later, previous=previous(3))) == []
    # An audit of a period that ends before now may leave out entries that are there.
    assert codes(judged(without(CHAIN, 3), previous=previous(4), period_to=NOW - timedelta(hours=1))) == []


def test_two_writers_warn() -> None:
    forked = ledger(Entry(0), Entry(1), Entry(1, epoch=1, prev_hash="hash-0"), Entry(2))
    verdict = judged(forked)
    assert codes(verdict) == [Code.UNUSUAL]
    assert (verdict.failures, verdict.warnings) == (0, 1)
    assert same_message(verdict.message)


def test_an_entry_stored_twice_warns() -> None:
    again = Entry(1, prev_hash="hash-0", entry_hash="hash-1", sequence=2)
    twice = ledger(Entry(0), Entry(1), again, Entry(2, prev_hash="hash-1", sequence=3))
    verdict = judged(twice)
    assert codes(verdict) == [Code.UNUSUAL]
    assert same_message(verdict.message)


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE", "RESTORE", "WRITE Overwrite", "TRUNCATE", "FSCK"])
def test_operations_that_no_ledger_needs(operation: str) -> None:
    verdict = judged(replace(CHAIN, operations=[(0, "CREATE TABLE"), (1, "WRITE"), (2, operation)]))
    assert codes(verdict) == [Code.TAMPERED]
    assert same_message(verdict.message)


def test_operations_that_keep_house() -> None:
    lawful = ["CREATE TABLE", "WRITE", "WRITE Append", "OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES"]
    assert codes(judged(replace(CHAIN, operations=list(enumerate(lawful))))) == []


def test_the_next_audit_learns_how_far_the_operations_were_judged() -> None:
    known = replace(previous(2), ledger_version=7)
    assert judged(CHAIN, previous=known).evidence["ledger_version"] == 7
    appended = replace(CHAIN, operations=[(8, "WRITE"), (9, "WRITE")])
    assert judged(appended, previous=known).evidence["ledger_version"] == 9


def test_rebuilt_entries_are_named() -> None:
    verdict = judged(ledger(Entry(0), Entry(1, status="rebuilt"), Entry(2, status="rebuilt")))
    assert codes(verdict) == [Code.REBUILT]
    assert verdict.findings[0].message.startswith(
        "2 entries restored from the sink's own record: micro-batch 1 (epoch 0)"
    )


def test_a_quiet_period_and_an_empty_ledger() -> None:
    quiet = judged(replace(CHAIN, anchors=4, complete=False))
    assert quiet.unproved is None
    assert same_message(quiet.message)
    assert judged(None).unproved is not None


# -- the stamps of the sink's commits ----------------------------------------------------------------------------------


def stamps(*prev_hashes: str) -> list[ReconStamp]:
    """The stamps of micro-batches 0, 1, … and the entries that they followed."""
    made = [commit(n, Entry(n, (10 * n, 10 * n + 10))).stamp for n in range(len(prev_hashes))]
    return [
        replace(stamp, prev_hash=hash_) for stamp, hash_ in zip(made, prev_hashes, strict=True) if stamp is not None
    ]


def test_commits_follow_entries_that_the_chain_holds() -> None:
    assert verify_stamps(CHAIN, stamps("", "hash-0", "hash-1", "hash-2")) == []
    # Two drivers: one of them took an older entry for the newest.
    assert verify_stamps(CHAIN, stamps("", "hash-0", "hash-0", "hash-2")) == []


def test_a_commit_that_follows_an_entry_which_is_gone() -> None:
    short = without(CHAIN, 2, 3)
    assert [f.batch_id for f in verify_stamps(short, stamps("", "hash-0", "hash-1", "hash-2"))] == [3]
    other = replace(CHAIN, heads=[replace(h, entry_hash=f"new-{i}") for i, h in enumerate(CHAIN.heads)])
    found = verify_stamps(other, stamps("", "hash-0", "hash-1", "hash-2"))
    assert [(f.code, f.batch_id) for f in found] == [(Code.TAMPERED, 1), (Code.TAMPERED, 2), (Code.TAMPERED, 3)]
    assert same_message(found[0].message)
    # Of a chain that is known in part nothing can be said.
    assert verify_stamps(replace(short, complete=False), stamps("", "hash-0", "hash-1", "hash-2")) == []


def test_entries_that_were_restored_have_other_hashes() -> None:
    restored = replace(CHAIN.heads[2], entry_hash="new", status="rebuilt")
    chain = replace(CHAIN, heads=[*CHAIN.heads[:2], restored, CHAIN.heads[3]])
    assert verify_stamps(chain, stamps("", "hash-0", "hash-1", "hash-2")) == []
