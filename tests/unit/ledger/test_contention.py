"""Many writers of one table: every write is tried again until a deadline, and then its error says what it is."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer

from recon.base.errors import LedgerError
from recon.model.erasure import Erasure
from recon.model.proof import SinkProof
from recon.model.wire.app_ids import MERGE_APP_ID
from recon.write.ledger import erasures, key_index, open_ledger
from recon.write.ledger.failures import FAILURES
from recon.write.ledger.progress import PROGRESS
from recon.write.ledger.proofs import PROOF
from recon.write.ledger.results import RESULTS
from recon.write.ledger.state import STATE
from recon.write.ledger.store import (
    ChainMoved,
    Contended,
    DeltalakeStore,
    Housekeeping,
    LedgerTable,
    contention,
    delta_rs,
    merging,
    open_store,
)
from tests.support.ledger_entries import AT, entry, project
from tests.support.messages import raises, same_message

TABLES = [RESULTS, PROGRESS, FAILURES, STATE]
REASONS = [
    "15",  # delta-rs gave up after so many versions of others
    "Metadata changed since last commit.",  # another one made the table at the same moment
    "Protocol changed since last commit: protocol changed",
]


class Refusals:
    """`write_deltalake` that delta-rs refuses some times, or always, because of commits of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.reason, self.tries = 0.0, REASONS[0], 0
        self._write = deltalake.write_deltalake
        self.before: Callable[[], object] = lambda: None
        monkeypatch.setattr(deltalake, "write_deltalake", self)

    def __call__(self, *of: Any, **more: Any) -> None:
        self.tries += 1
        if self.left > 0:
            self.left -= 1
            self.before()
            raise CommitFailedError(f"Failed to commit transaction: {self.reason}")
        self._write(*of, **more)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are given up after a moment."""
    monkeypatch.setattr(contention, "CONTENTION_S", 0.3)


def row(table: LedgerTable) -> dict[str, Any]:
    return {**dict.fromkeys(table.columns), table.time: AT}


def state(**changes: Any) -> SinkProof:
    fields = {"pipeline": "orders", "sink": "orders", "at": AT, "invocation_id": "", "position": 0, "chain_head": ""}
    return SinkProof(**{**fields, "first_epoch": 0, "first_batch_id": 0, **changes})


# -- every table is tried again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_a_table_without_a_chain_is_tried_again(
    tmp_path: Path, refusals: Refusals, table: LedgerTable, reason: str
) -> None:
    refusals.left, refusals.reason = 3, reason
    store = open_store(project(tmp_path), table)
    store.append_rows([row(table)])
    assert refusals.tries == 4 and sum(store.rows_by_day().values()) == 1


@pytest.mark.parametrize("table", [*TABLES, PROOF, erasures.ERASURES], ids=lambda table: table.kind)
def test_contention_beyond_the_deadline_is_said(
    tmp_path: Path, refusals: Refusals, soon: None, table: LedgerTable
) -> None:
    store = open_store(project(tmp_path), table)
    refusals.left = float("inf")
    began = time.monotonic()
    with pytest.raises(Contended) as raised:
        store.append_rows([row(table)])
    assert time.monotonic() - began < 5 and refusals.tries > 1 and store.dates() == []
    assert isinstance(raised.value, LedgerError)
    assert f"the {table.kind} table {store.location} is being written by others at the same time; " in str(raised.value)
    assert "make the folder writable" not in str(raised.value) and same_message(str(raised.value))


def test_an_entry_that_others_crowd_out_until_the_deadline(tmp_path: Path, refusals: Refusals, soon: None) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0))
    refusals.left = float("inf")
    with raises(Contended):
        ledger.append(entry(1))
    refusals.left = 0
    assert ledger.append(entry(1)).sequence == 2 and ledger.verify() == []


def test_a_folder_that_cannot_be_written_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def full(*_: object, **__: object) -> None:
        tries.append(1)
        raise OSError("No space left on device")

    monkeypatch.setattr(deltalake, "write_deltalake", full)
    with raises(LedgerError) as raised:
        open_store(project(tmp_path), STATE).append_rows([row(STATE)])
    assert len(tries) == 1 and not isinstance(raised.value, Contended)


def test_an_entry_is_tried_until_the_deadline_though_the_chain_moves(tmp_path: Path, soon: None) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0))
    tries = []

    def moved(*_: object, **__: object) -> None:
        tries.append(1)
        raise ChainMoved

    ledger.store.append = moved  # type: ignore[method-assign]
    with raises(LedgerError):
        ledger.append(entry(1))
    assert len(tries) > 1 and len(open_ledger(project(tmp_path)).entries()) == 1


def test_the_tries_for_the_chain_and_for_the_table_share_one_deadline(
    tmp_path: Path, refusals: Refusals, soon: None
) -> None:
    ledger, other = open_ledger(project(tmp_path)), open_ledger(project(tmp_path))
    refusals.left = float("inf")

    def extend() -> None:
        refusals.left, left = 0, refusals.left
        other.append(entry(refusals.tries))
        refusals.left = left

    refusals.before = extend
    began = time.monotonic()
    with pytest.raises(LedgerError):
        ledger.append(entry(0))
    assert 0.1 < time.monotonic() - began < 4


def test_erasures_end_at_the_deadline(tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = erasures.ErasureTable(open_store(project(tmp_path), erasures.ERASURES))
    of = {"pipeline": "orders", "sink": "orders", "at": AT, "by": "Ada", "reason": "asked"}
    erasure = Erasure(**of, quarantined=1, failures=0, samples=0)
    assert table.append(erasure) == 1

    def moved(*_: object, **__: object) -> None:
        raise ChainMoved

    monkeypatch.setattr(table.store, "append", moved)
    with raises(LedgerError):
        table.append(erasure)
    assert len(table.of("orders", "orders")) == 1


def test_an_index_of_keys_is_tried_again(tmp_path: Path, refusals: Refusals) -> None:
    import numpy as np

    index = key_index.KeyIndex(str(tmp_path / "keys"))
    refusals.left = 2
    parts = index.add({}, np.array([1, 2], np.int64))
    assert refusals.tries == 3 and index.contains(parts, np.array([2, 3], np.int64)).tolist() == [True, False]


def test_an_index_of_keys_says_that_others_write_it(tmp_path: Path, refusals: Refusals, soon: None) -> None:
    import numpy as np

    refusals.left = float("inf")
    with pytest.raises(Contended, match=r"the index of key hashes .* is being written by others at the same time"):
        key_index.KeyIndex(str(tmp_path / "keys")).add({}, np.array([1], np.int64))


@pytest.mark.parametrize(
    ("message", "contention_is_why"),
    [
        ("[DELTA_METADATA_CHANGED] MetadataChangedException: The metadata of the Delta table has been changed", True),
        ("[DELTA_PROTOCOL_CHANGED] ProtocolChangedException: The protocol version of the table has changed", True),
        ("[DELTA_CONCURRENT_APPEND] ConcurrentAppendException: Files were added to [date=2026-11-26] by", True),
        ("[DELTA_CONCURRENT_DELETE_READ] ConcurrentDeleteReadException: This transaction attempted to read", True),
        ("[DELTA_CONCURRENT_WRITE] ConcurrentWriteException: A concurrent transaction has written new data", True),
        ("[DELTA_MAX_COMMIT_RETRIES_EXCEEDED] This commit has failed as it has been tried 9 times", True),
        # Another writer extended the chain: `ChainMoved`.
        ("[DELTA_CONCURRENT_TRANSACTION] ConcurrentTransactionException: This error occurs when", False),
        ("Failed to commit transaction: Concurrent transaction failed.", False),
        ("Failed to commit transaction: 403 Forbidden", False),
        ("Generic LocalFileSystem error: Permission denied", False),
    ],
)
def test_what_is_contention_to_delta_on_spark_and_to_delta_rs(message: str, contention_is_why: bool) -> None:
    assert contention.others_wrote(Exception(message)) is contention_is_why


# -- deletions and merges ---------------------------------------------------------------------------------------------


def test_a_deletion_that_met_new_rows_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs refuses a deletion when somebody appended rows that it may be about."""
    store = open_store(project(tmp_path), FAILURES)
    store.append_rows([{**row(FAILURES), "name": name} for name in ("a", "b")])
    tries, delete = [], deltalake.DeltaTable.delete

    def met(table: Any, predicate: str) -> Any:
        tries.append(1)
        if len(tries) == 1:
            open_store(project(tmp_path), FAILURES).append_rows([{**row(FAILURES), "name": "a"}])
        return delete(table, predicate)

    monkeypatch.setattr(deltalake.DeltaTable, "delete", met)
    store.remove("name = 'a'")
    assert len(tries) > 1 and store.read(delta_rs.Filter(), ["name"])["name"].to_pylist() == ["b"]


@pytest.fixture
def merged(tmp_path: Path) -> DeltalakeStore:
    store = open_store(project(tmp_path), STATE)
    assert isinstance(store, DeltalakeStore)
    for _ in range(3):
        store.append_rows([row(STATE)])
    return store


def refused(*_: object, **__: object) -> None:
    raise CommitFailedError("Failed to commit transaction: 15")


def test_a_merge_among_others_is_left_for_later(
    tmp_path: Path, merged: DeltalakeStore, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TableOptimizer, "compact", refused)
        open_store(project(tmp_path), STATE, housekeeping=Housekeeping(many_files=2)).tidy()
        with pytest.raises(Contended, match="is being written by others at the same time"):
            merged.compact()
        patched.setattr(merging, "_commit", refused)
        with pytest.raises(Contended):
            merged.compact()
    assert merged.small_files() == 3
    merged.compact()
    assert merged.small_files() == 1, "the claim of a merge that failed kept the next one from the table"


def test_the_end_of_a_merge_is_entered_though_others_write(
    merged: DeltalakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, left = merging._commit, [2]  # noqa: SLF001 - the end of a merge alone is refused

    def crowded(table: Any, app_id: str, version: int) -> None:
        if version % 2 == 0 and left[0]:
            left[0] -= 1
            refused()
        commit(table, app_id, version)

    monkeypatch.setattr(merging, "_commit", crowded)
    merged.compact()
    assert left == [0] and merged.length(MERGE_APP_ID) % 2 == 0


# -- the proof --------------------------------------------------------------------------------------------------------


def test_a_proof_among_others_is_stored(tmp_path: Path, refusals: Refusals) -> None:
    table = open_ledger(project(tmp_path)).proofs
    refusals.left = 3
    assert table.append(state(), after=0, prev_hash="", cause="audit", at=AT)
    stored = table.newest("orders", "orders")
    assert refusals.tries == 4 and stored is not None and stored.sequence == 1
    refusals.left = 2
    assert table.append(state(invocation_id="2"), after=1, prev_hash=stored.entry_hash, cause="audit", at=AT)
    assert table.verify({}) == [] and table.length("orders", "orders") == 2


def test_a_proof_is_refused_where_a_newer_state_came_meanwhile(tmp_path: Path, refusals: Refusals) -> None:
    """Others crowd the first try out, and one of them is another audit of the same sink."""
    table, other = (open_ledger(project(tmp_path)).proofs for _ in range(2))

    def advance() -> None:
        assert other.append(state(position=7), after=0, prev_hash="", cause="audit", at=AT)

    refusals.left, refusals.before = 1, advance
    assert not table.append(state(position=3), after=0, prev_hash="", cause="audit", at=AT)
    stored = table.newest("orders", "orders")
    assert stored is not None and (stored.sequence, stored.position) == (1, 7)


def test_a_proof_that_others_crowd_out_is_not_said_to_be_older(tmp_path: Path, refusals: Refusals, soon: None) -> None:
    table = open_ledger(project(tmp_path)).proofs
    refusals.left = float("inf")
    with pytest.raises(Contended, match=r"the proof table .* is being written by others at the same time"):
        table.append(state(), after=0, prev_hash="", cause="audit", at=AT)
    assert table.length("orders", "orders") == 0


def test_a_proof_whose_commit_was_not_answered_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store stores a commit and fails to say so; delta-rs makes it again and meets its own."""
    table, write = open_ledger(project(tmp_path)).proofs, deltalake.write_deltalake

    def unanswered(*of: Any, **more: Any) -> None:
        write(*of, **more)
        raise CommitFailedError("Failed to commit transaction: Concurrent transaction failed.")

    monkeypatch.setattr(deltalake, "write_deltalake", unanswered)
    assert table.append(state(), after=0, prev_hash="", cause="audit", at=AT)
    assert table.length("orders", "orders") == 1


def test_a_proof_whose_table_lost_states_is_not_said_to_be_older(tmp_path: Path) -> None:
    table = open_ledger(project(tmp_path)).proofs
    with raises(LedgerError):
        table.append(state(), after=2, prev_hash="x", cause="audit", at=AT)


# -- for real ---------------------------------------------------------------------------------------------------------


def _write_state(location: str, number: int, rounds: int, barrier: Any, told: Any) -> None:
    """One of many processes; none waits for its turn, as processes of different hosts cannot."""
    setattr(delta_rs, "turn", lambda folder: nullcontext())  # noqa: B010 - a process of its own
    failed = ""
    try:
        for table in range(rounds):
            store = open_store(project(Path(location), location=f"{location}/{table}"), STATE)
            for _ in range(2):
                barrier.wait(60)
                store.append_rows([{**row(STATE), "pipeline": f"p{number}"}])
    except BaseException as error:
        failed = repr(error)
        barrier.abort()
    told.put(failed)


def test_many_processes_at_once_each_write_their_rows(tmp_path: Path) -> None:
    """The first rows make the table: of eight that do so at the same moment Delta refuses some."""
    context, processes, rounds = multiprocessing.get_context("spawn"), 8, 4
    barrier, told = context.Barrier(processes), context.SimpleQueue()
    running = [
        context.Process(target=_write_state, args=(str(tmp_path), number, rounds, barrier, told))
        for number in range(processes)
    ]
    for one in running:
        one.start()
    assert [told.get() for _ in running] == [""] * processes
    for one in running:
        one.join()
    for table in range(rounds):
        store = open_store(project(tmp_path, location=str(tmp_path / str(table))), STATE)
        assert sum(store.rows_by_day().values()) == 2 * processes


# -- a store that loses the answer to a commit ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", ["Failed to commit transaction: Concurrent transaction failed.", "Failed to commit transaction: 15"]
)
@pytest.mark.parametrize("another_follows", [False, True])
def test_an_entry_whose_commit_got_no_answer_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, another_follows: bool
) -> None:
    """As an object store may: it has the commit, its answer is lost, and the commit is made again and refused."""
    ledger, write = open_ledger(project(tmp_path)), deltalake.write_deltalake
    ledger.append(entry(0))

    def without_answer(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(deltalake, "write_deltalake", write)
        write(*args, **kwargs)
        if another_follows:
            open_ledger(project(tmp_path)).append(entry(2))
        raise CommitFailedError(answer)

    monkeypatch.setattr(deltalake, "write_deltalake", without_answer)
    assert ledger.append(entry(1)).sequence == 2
    assert ledger.append(entry(3)).sequence == 3 + another_follows
    read = open_ledger(project(tmp_path))
    assert [head.batch_id for head in read.entries()] == [0, 1, *([2] if another_follows else []), 3]
    assert read.verify() == []
