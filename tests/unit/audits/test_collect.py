"""In which order the evidence is read, what is read again, and what is not read at all; no Spark, no Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from recon.audits import summary
from recon.audits.collect import Evidence, collect
from recon.audits.options import Options
from recon.audits.run import audit
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.base.errors import EvidenceError
from recon.checks.base import EvidenceCheck
from recon.checks.binding import bind
from recon.model import (
    CheckpointWitness,
    Code,
    CommitRows,
    KafkaWitness,
    LedgerSlice,
    QuarantinedRows,
    RunResult,
    TableLog,
    Unavailable,
    Verdict,
    Witnesses,
    why_unknown,
)
from recon.project import Project, load
from recon.testing.evidence import NOW, Entry, checkpoint, kafka, planned
from recon.write.ledger import open_ledger
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.results import RESULTS, sealed
from recon.write.ledger.store import Store
from tests.support.ledger_entries import entry
from tests.support.witnesses import commit, delta

RECON_YML = """
version: 2
name: lake
ledger: _recon
kafka: {bootstrap.servers: "localhost:1"}
pipelines:
  - name: orders
    checkpoint: cp
    source: {topics: [orders]}
    data_tests: [offset_continuity, kafka_end_offsets, checkpoint_commits]
    sinks:
      - name: orders
        kind: delta
        target: orders
        data_tests: [ledger_integrity, delta_history, not_null: {column_name: a}]
"""


class Readers:
    """What there is to read, and a note of who was read; the query may write an entry while the Delta log is read.

    `answers` gives the checkpoint, the Delta log, Kafka's topics and the rows of commits at each reading, or raises.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.order: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.log: TableLog = delta()
        self.answers: dict[str, Callable[[], Any]] = {
            "checkpoint": checkpoint,
            "delta": lambda: (self.meanwhile(), self.log)[1],
            "kafka": lambda: kafka(0, 30),
        }

    def answer(self, witness: str) -> Any:
        self.order.append(witness)
        return self.answers[witness]()

    def collect(self, *checks: str, **options: Any) -> Evidence:
        bounds = [bound for bound in bind(self.project) if bound.check.test in checks]
        session = AuditSession(self.project, True, None)
        (pipeline,) = self.project.pipelines
        return collect(NotedSources(self.project, pipeline, session, readers=self), bounds, Options(**options), NOW)

    def audit(self, *select: str, keep: bool = False) -> RunResult:
        sources: Any = partial(NotedSources, readers=self)
        return audit(self.project, Options(no_spark=True, keep=keep, select=select, sources=sources))


@dataclass(frozen=True)
class NotedSources(Sources):
    readers: Readers = field(kw_only=True)

    @override
    def ledger(self) -> Ledger:
        ledger = super().ledger()
        return NotedLedger(ledger.store, ledger.results, ledger.proofs.store, self.readers.order)

    @override
    def checkpoint(self) -> CheckpointWitness:
        return self.readers.answer("checkpoint")

    @override
    def history(self, *_: Any, **__: Any) -> TableLog:
        return self.readers.answer("delta")

    @override
    def kafka(self, *_: Any) -> KafkaWitness:
        return self.readers.answer("kafka")

    @override
    def commit_rows(self, *_: Any) -> Mapping[int, CommitRows | Unavailable]:
        return self.readers.answer("rows")


class NotedLedger(Ledger):
    def __init__(self, entries: Store, results: Store, proofs: Store, order: list[str]) -> None:
        super().__init__(entries, results, proofs)
        self._order = order

    @override
    def slice(self, *of: Any, **more: Any) -> LedgerSlice:
        self._order.append("ledger")
        return super().slice(*of, **more)


@pytest.fixture
def readers(tmp_path: Path) -> Readers:
    (tmp_path / "recon.yml").write_text(RECON_YML)
    project = load(tmp_path)
    open_ledger(project).append(entry(0, at=NOW))
    return Readers(project)


def batches(evidence: Evidence) -> Sequence[int]:
    ledgers = evidence.witnesses.ledgers
    assert not isinstance(ledgers, Unavailable)
    return [head.batch_id for head in ledgers["orders"].heads]


def stamped(batch_id: int) -> Any:
    made = commit(batch_id, Entry(batch_id, (0, 10)), timestamp=NOW)
    assert made.stamp is not None
    return replace(made, stamp=replace(made.stamp, sink="orders"))


def test_each_witness_is_read_once_in_the_order_that_makes_no_false_alarm(readers: Readers) -> None:
    readers.collect("checkpoint_commits", "kafka_end_offsets", "delta_history", "offset_continuity")
    assert readers.order == ["checkpoint", "ledger", "delta", "kafka"]


def test_what_no_selected_check_looks_at_is_not_read(readers: Readers) -> None:
    evidence = readers.collect("ledger_integrity")
    assert readers.order == ["ledger"]
    assert isinstance(evidence.witnesses.kafka, Unavailable) and list(evidence.unavailable()) == []
    readers.order.clear()
    assert batches(readers.collect("not_null")) == [0] and readers.order == ["ledger"]


def test_the_ledger_is_read_again_where_a_commit_has_no_entry_in_it(readers: Readers) -> None:
    readers.log = delta(stamped(0), stamped(1))
    readers.meanwhile = lambda: open_ledger(readers.project).append(entry(1, at=NOW))
    evidence = readers.collect("delta_history", "kafka_end_offsets")
    assert readers.order == ["checkpoint", "ledger", "delta", "ledger", "kafka"], "Kafka's end offsets come after it"
    assert batches(evidence) == [0, 1]


def test_the_log_of_a_quarantine_table_is_read_whatever_the_period_quarantined(tmp_path: Path) -> None:
    """Rows that wait in quarantine since last week are deleted: they are in no table, and a daily audit looks at none.

    A log alone does not say whether released rows were deleted, which is allowed, or pending ones.
    """
    (tmp_path / "recon.yml").write_text(RECON_YML.replace("delta_history,", "delta_history, source_rows,"))
    project = load(tmp_path)
    ledger, day = open_ledger(project), timedelta(days=1)
    ledger.append(entry(0, at=NOW - 3 * day, rows_quarantined=3))
    ledger.append(entry(1, at=NOW - 2 * day))
    ledger.append(entry(2, at=NOW))
    readers = Readers(project)
    readers.log = delta(exists=False)
    evidence = readers.collect("source_rows", from_=NOW - day)
    assert batches(evidence) == [1, 2], "micro-batch 0 was judged by an earlier audit"
    assert not isinstance(evidence.witnesses.quarantine, Unavailable) and "orders" in evidence.witnesses.quarantine
    counted = evidence.witnesses.quarantine_rows["orders"]
    assert isinstance(counted, QuarantinedRows) and counted.rows == {} and counted.entered[0, 0] == 3


def test_once_more_is_enough(readers: Readers) -> None:
    readers.log = delta(stamped(0), stamped(7))
    readers.collect("delta_history")
    assert readers.order == ["checkpoint", "ledger", "delta", "ledger"]
    readers.order.clear()
    readers.collect("delta_history", to=NOW)
    assert readers.order == ["checkpoint", "ledger", "delta"], "what is committed after the period needs no entry in it"


@pytest.mark.parametrize(("since", "newest"), [((), 0), ((1,), 1)])
def test_a_checkpoint_that_the_ledger_outruns_is_read_again(
    readers: Readers, since: tuple[int, ...], newest: int
) -> None:
    """The query goes on while the audit reads; a checkpoint that is behind even then is an older copy."""
    open_ledger(readers.project).append(entry(1, at=NOW))
    before = planned(0, (0, 10))
    plans = iter([checkpoint(before), checkpoint(before, *(planned(i, (10, 20)) for i in since))])
    readers.answers["checkpoint"] = lambda: next(plans)
    read = readers.collect("checkpoint_commits").witnesses.checkpoint
    assert readers.order == ["checkpoint", "ledger", "delta", "checkpoint", "kafka"]
    assert isinstance(read, CheckpointWitness) and read.newest_later == newest
    assert [batch.batch_id for batch in read.batches] == [0], "what was planned since is lag"


def test_a_checkpoint_that_is_replaced_while_it_is_read_proves_nothing(readers: Readers) -> None:
    open_ledger(readers.project).append(entry(1, at=NOW))
    plans = iter(checkpoint(planned(0, (0, 10)), query_id=query_id) for query_id in ("q-1", "q-2"))
    readers.answers["checkpoint"] = lambda: next(plans)
    read = readers.collect("checkpoint_commits").witnesses.checkpoint
    assert isinstance(read, Unavailable) and "was replaced while the audit read it" in read.reason


def test_a_check_sees_only_what_it_names(readers: Readers) -> None:
    evidence = readers.collect("ledger_integrity", "delta_history", "checkpoint_commits", "kafka_end_offsets")
    integrity = next(bound for bound in bind(readers.project) if bound.check.test == "ledger_integrity")
    seen = evidence.seen_by(integrity)
    assert seen.sink == "orders" and not isinstance(seen.ledgers, Unavailable)
    assert all(isinstance(w, Unavailable) for w in (seen.checkpoint, seen.kafka, seen.delta, seen.rows))


@dataclass(frozen=True, kw_only=True)
class LooksAtVersionThree(EvidenceCheck):
    """A check of one's own that asks for the rows of a commit."""

    test: ClassVar[str] = "looks_at_version_three"

    @override
    def judge(self, witnesses: Witnesses) -> Verdict:
        (rows,) = witnesses.with_commit_rows([3]).commit_rows.values()
        return Verdict(message=why_unknown(rows))


def test_rows_of_commits_are_read_when_a_check_asks_for_them_and_never_end_the_audit(readers: Readers) -> None:
    readers.answers["rows"] = lambda: {3: Unavailable("commit_rows", "no file")}
    (bound,) = [bound for bound in bind(readers.project) if bound.check.test == "delta_history"]
    evidence = readers.collect("delta_history")
    seen = evidence.seen_by(bound)
    assert "rows" not in readers.order
    assert LooksAtVersionThree().judge(seen).message == "no file"
    readers.answers["rows"] = lambda: 1 // 0
    assert LooksAtVersionThree().judge(seen).message.startswith("ZeroDivisionError")
    assert evidence.of_sink("orders").commit_rows.keys() == {3}


def test_a_witness_that_cannot_be_read_is_a_note_where_a_check_looks_at_it(readers: Readers) -> None:
    def broken(error: Exception) -> Callable[..., Any]:
        def read(*_: object, **__: object) -> Any:
            raise error

        return read

    readers.answers["checkpoint"] = broken(EvidenceError("no checkpoint there"))
    run = readers.audit()
    status = {result.check: (result.status, result.message) for result in run.results}
    assert status["checkpoint_commits"] == ("error", "no checkpoint there")

    # An error that recon does not know: a check that only uses the witness is not judged without it either.
    readers.answers["kafka"] = broken(RuntimeError("unforeseen"))
    run = readers.audit()
    status = {result.check: (result.status, result.message) for result in run.results}
    for check in ("checkpoint_commits", "kafka_end_offsets"):
        assert status[check] == ("error", "the check could not be evaluated: RuntimeError: unforeseen")
    assert status["ledger_integrity"][0] == "pass", "the others still run"
    assert [note.split(": ")[1].split()[0] for note in run.notes] == ["checkpoint", "kafka"]
    alone = readers.audit("test_name:ledger_integrity")
    assert alone.notes == ()


def results_row(readers: Readers, **changes: Any) -> None:
    """A row of an earlier audit beside the ledger, as an audit writes it but for the changes."""
    row: dict[str, Any] = {
        "invocation_id": "run-1",
        "generated_at": NOW,
        "project": "lake",
        "pipeline": "orders",
        "sink": "orders",
        "unique_id": "test.lake.ledger_integrity",
        "name": "ledger_integrity",
        "check": "ledger_integrity",
        "kind": "evidence",
        "status": "pass",
        "evidence": "{}",
        "period_to": NOW,
    }
    columns = RESULTS.columns
    open_ledger(readers.project).results.append_rows([sealed({**dict.fromkeys(columns), **row, **changes})])


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": "{"},
        {"evidence": "[1]"},
        {"evidence": '{"chain_head": 7}'},
        {"evidence": '{"log_ends": [["orders", "0", 5]]}'},
        {"evidence": '{"log_starts": {"orders": 1}}'},
        {"evidence": '{"ledger_version": 1e400}'},
        {"evidence": "[" * 100_000},
        {"period_to": None},
        {"invocation_id": None},
    ],
    ids=str,
)
def test_a_malformed_result_of_an_earlier_audit_is_no_missing_audit(readers: Readers, changes: Any) -> None:
    """The audit goes on without it, says so, and proves nothing by it."""
    results_row(readers, **changes)
    run = readers.audit("test_name:ledger_integrity")
    (result,) = run.results
    assert (result.status, [f.code for f in result.findings]) == ("error", [Code.INCONCLUSIVE])
    assert [note.split(": ")[1] for note in run.notes] == ["the results of earlier audits could not be read"]
    assert [facts.answer for facts in run.pipelines] == ["could not be proved"]


def test_whatever_breaks_is_not_known_and_the_audit_ends_with_a_result(readers: Readers) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("unforeseen")

    sink_facts = summary.sink_facts

    def facts_of_entries(*of: Any) -> Any:
        return sink_facts(*of) if isinstance(of[2].ledgers, Unavailable) else broken()

    places: dict[str, Callable[..., Any]] = {
        "recon.audits.collect.previous_audit": broken,
        "recon.audits.session.open_ledger": broken,
        "recon.audits.summary.sink_facts": facts_of_entries,
        "recon.audits.store.append_run": broken,
    }
    for place, stand_in in places.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, stand_in)
            run = readers.audit(keep=True)
        assert len(run.results) == 6
        assert [facts.answer for facts in run.pipelines] != ["complete"]
