"""What audits read of a real quarantine table, without a JVM: the commits behind those judged, and the rows' counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from recon.audits.collect import collect
from recon.audits.options import Options
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.checks.binding import bind
from recon.checks.evidence.source_rows import SourceRows
from recon.judge.history.quarantine_log import QuarantineJudged
from recon.model import Code, LedgerSlice, QuarantinedRows, ReconStamp, TableLog, Unavailable, Witnesses
from recon.model.wire.stamp import dump_stamp
from recon.project import Project, load
from recon.recovery.forget import Forgetting
from recon.testing.evidence import NOW, kafka
from recon.write.ledger import open_ledger
from tests.support.broker import Broker
from tests.support.ledger_entries import entry
from tests.support.witnesses import after, sink_proof
from tests.unit.audits.test_collect import RECON_YML

DAY = timedelta(days=1)
SCHEMA = pa.schema(
    [
        ("amount", pa.int64()),
        ("_batch_id", pa.int64()),
        ("_recon_id", pa.string()),
        ("_recon_reasons", pa.list_(pa.string())),
        ("_recon_epoch", pa.int64()),
        ("_recon_release", pa.int64()),
    ]
)


class Kept:
    """A sink whose micro-batch 0 quarantined three rows, days ago; release 0 took one of them."""

    def __init__(self, folder: Path) -> None:
        (folder / "recon.yml").write_text(RECON_YML.replace("delta_history,", "delta_history, source_rows,"))
        self.project: Project = load(folder)
        self.place = folder / "_recon" / "quarantine" / "orders" / "orders"
        ledger = open_ledger(self.project)
        self.ends = [ledger.append(entry(0, at=NOW - 4 * DAY, rows_quarantined=3, rows_written=17))]
        release = {"epoch": -1, "status": "released", "rows_read": 1, "rows_written": 1, "offsets": ()}
        self.ends += [ledger.append(entry(0, at=NOW - 3 * DAY, **release))]
        self.ends += [ledger.append(entry(number, at=NOW - (3 - number) * DAY)) for number in (1, 2, 3)]
        self.append(0, *[(None, "a"), (None, "b"), (0, "c")])
        self.judged: QuarantineJudged | None = None

    def append(self, batch_id: int, *rows: tuple[int | None, str], stamped: bool = True) -> None:
        made = [
            {"amount": 1, "_batch_id": batch_id, "_recon_id": name, "_recon_epoch": 0, "_recon_release": release}
            for release, name in rows
        ]
        stamp = ReconStamp(
            pipeline="orders",
            sink="orders",
            epoch=0,
            batch_id=batch_id,
            query_id="q-1",
            run_id=None,
            prev_hash="",
            offsets_text="[]",
        )
        marked = CommitProperties(custom_metadata={"userMetadata": dump_stamp(stamp)}) if stamped else None
        write_deltalake(
            str(self.place), pa.Table.from_pylist(made, SCHEMA), mode="append", commit_properties=marked
        )  # fmt: skip

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.place))

    def audited(self) -> tuple[Witnesses, list[Code]]:
        """The daily audit of today: what it reads, and what it finds about quarantine; the next one goes on from it."""
        ledger = open_ledger(self.project)
        state = sink_proof(
            self.judged,
            pipeline="orders",
            sink="orders",
            at=NOW - DAY,
            position=self.ends[-2].sequence,
            chain_head=self.ends[-2].entry_hash,
            committed_at=NOW - DAY,
        )
        length = ledger.proofs.length("orders", "orders")
        assert ledger.proofs.append(state, after=length, prev_hash="", cause="audit", at=NOW)
        bounds = [bound for bound in bind(self.project) if bound.check.test == "source_rows"]
        (pipeline,) = self.project.pipelines
        sources = Sources(self.project, pipeline, AuditSession(self.project, True, None))
        evidence = collect(sources, bounds, Options(), NOW)
        seen = evidence.seen_by(bounds[0])
        slice_ = seen.ledger
        assert isinstance(slice_, LedgerSlice) and not any(head.rows_quarantined for head in slice_.heads)
        self.judged = after(QuarantineJudged, seen)
        about = ("quarantine", "wait in", "waited")
        found = [f.code for f in SourceRows().judge(seen).findings if any(word in f.message for word in about)]
        return seen, found


@pytest.fixture
def kept(tmp_path: Path, broker: Broker) -> Kept:
    broker.has(kafka(0, 40))
    return Kept(tmp_path)


def log_of(seen: Witnesses) -> TableLog:
    assert not isinstance(seen.quarantine, Unavailable)
    return seen.quarantine["orders"]


def counted(seen: Witnesses) -> dict[Any, int] | None:
    rows = seen.quarantine_rows.get("orders")
    return dict(rows.rows) if isinstance(rows, QuarantinedRows) else None


def versions(seen: Witnesses) -> Sequence[int]:
    return sorted(log_of(seen).commits)


def test_each_audit_reads_the_commits_behind_those_of_the_one_before(kept: Kept) -> None:
    seen, found = kept.audited()  # the state is one of an older version of recon
    assert (versions(seen), counted(seen), found) == ([0], {(0, 0, None): 2, (0, 0, 0): 1}, [])
    assert kept.judged == QuarantineJudged(table_id=str(kept.table.metadata().id), version=0)
    seen, found = kept.audited()
    assert (versions(seen), counted(seen), found) == ([], None, [])
    kept.append(9, (None, "d"))  # a micro-batch in flight
    kept.table.optimize.compact()
    kept.table.create_checkpoint()
    seen, found = kept.audited()
    assert (versions(seen), counted(seen), found) == ([1, 2], None, [])
    assert kept.judged is not None and kept.judged.version == 2


def test_rows_that_wait_and_are_deleted(kept: Kept) -> None:
    kept.audited()
    kept.table.delete("_recon_release = 0")
    seen, found = kept.audited()
    assert (versions(seen), counted(seen), found) == ([0, 1], {(0, 0, None): 2}, [])
    kept.table.delete("_recon_id = 'a'")
    assert kept.audited()[1] == [Code.GAP] and kept.judged is not None and kept.judged.missing == 1
    assert kept.audited()[1] == []
    kept.table.delete("true")
    assert kept.audited()[1] == [Code.GAP] and kept.judged.missing == 2
    kept.table.restore(1)
    seen, found = kept.audited()
    assert (versions(seen), found, kept.judged.missing) == ([0, 1, 2, 3, 4], [], 0), "what was deleted is there again"


def test_rows_that_are_replaced_by_as_many_others(kept: Kept) -> None:
    kept.audited()
    kept.append(0, (None, "a2"), stamped=False)
    assert kept.audited()[1] == [Code.UNSTAMPED]
    kept.table.delete("_recon_id = 'a'")
    assert kept.audited()[1] == [Code.INCONCLUSIVE], "the table has as many rows as before"


def test_a_person_is_forgotten(kept: Kept) -> None:
    kept.audited()
    forgetting = Forgetting(kept.project, "_recon_id = 'a'")
    forgetting.erase(forgetting.found(), by="Ada", reason="request 7")
    seen, found = kept.audited()
    assert (versions(seen), counted(seen), found) == ([1], None, [])
    kept.table.update(predicate="_recon_id = 'b'", updates={"amount": "9"})
    assert kept.audited()[1] == [Code.MUTATED]


def test_a_log_that_was_cleaned_up_and_a_table_that_is_gone(kept: Kept) -> None:
    kept.audited()
    kept.append(9, (None, "d"))
    kept.append(9, (None, "e"))
    kept.table.create_checkpoint()
    for version in (0, 1):
        (kept.place / "_delta_log" / f"{version:020d}.json").unlink()
    seen, found = kept.audited()
    assert versions(seen) == [2] and found == [] and counted(seen) is not None
    kept.place.rename(kept.place.with_name("elsewhere"))
    assert kept.audited()[1] == [Code.GAP]
    assert kept.judged == QuarantineJudged(missing=2)


def test_a_data_file_that_is_gone(kept: Kept) -> None:
    kept.audited()
    next(kept.place.glob("*.parquet")).unlink()
    assert kept.audited()[1] == [Code.MUTATED]
    kept.judged = None
    found = kept.audited()[1]
    assert sorted(found) == [Code.INCONCLUSIVE, Code.MUTATED] and kept.judged is None
