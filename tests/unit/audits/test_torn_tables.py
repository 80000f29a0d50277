"""Tables beside the ledger that are torn, edited or of a later recon: `recon audit` never says "complete"."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from recon.model.wire.app_ids import chain_id
from recon.project import Project, load
from recon.reports import run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.proofs import resealed, sealed_state
from recon.write.ledger.store import Store
from tests.support.messages import same_message
from tests.support.native_stream import NativeStream
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

RECON = """\
name: lake
ledger: ledger
pipelines:
  - name: orders
    write: native
    checkpoint: checkpoint
    source: {topics: [orders]}
    rows: {filters: false}
    sinks:
      - name: lake
        target: table
        source_columns: {topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}
        data_tests: [ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]
"""


class Lake:
    """A stream into a table, with two audits whose results and proof are files."""

    def __init__(self, folder: Path, run: Callable[..., Ended]) -> None:
        self.folder, self.run = folder, run
        (folder / "recon.yml").write_text(RECON)
        self.stream = NativeStream(folder / "checkpoint", folder / "table").start({"orders": {0: 0}})
        for _ in range(2):
            self.micro_batch()
            assert self.audited() == (0, "complete", [])
        self.micro_batch()

    def micro_batch(self) -> None:
        self.stream.batch({"orders": {0: 10 * (self.stream.batch_id + 1)}})

    @property
    def project(self) -> Project:
        return load(self.folder)

    def store(self, table: str) -> Store:
        ledger = open_ledger(self.project)
        return ledger.proofs.store if table == "proof" else ledger.results

    def newest_file(self, table: str) -> Path:
        """The data file that the last audit added."""
        place = Path(self.store(table).location)
        log = DeltaTable(str(place))
        (path,) = (
            action["add"]["path"]
            for line in (place / "_delta_log" / f"{log.version():020d}.json").read_text().splitlines()
            if "add" in (action := json.loads(line))
        )
        return place / path

    def newest_commit(self, table: str) -> Path:
        return max((Path(self.store(table).location) / "_delta_log").glob("*.json"))

    def audited(self) -> tuple[int, str, list[str]]:
        """Exit code, answer, and what failed or could not be evaluated."""
        ended = self.run("audit", "--no-spark")
        assert "Traceback" not in ended.out + ended.err and "unexpected" not in ended.err, ended
        run = run_results.read(self.folder / "target" / "run_results.json")
        (facts,) = run.pipelines
        messages = [f.message for r in run.results if r.status in ("fail", "error") for f in r.findings]
        assert all("\n" not in message for message in messages), messages
        return ended.code, facts.answer, messages


@pytest.fixture
def lake(tmp_path: Path, recon: Callable[..., Ended]) -> Lake:  # noqa: F811
    return Lake(tmp_path, recon)


def cut(lake: Lake, table: str) -> None:
    file = lake.newest_file(table)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(lake: Lake, table: str) -> None:
    lake.newest_file(table).write_bytes(b"")


def gone(lake: Lake, table: str) -> None:
    lake.newest_file(table).unlink()


def flipped(lake: Lake, table: str) -> None:
    """Bytes of the first columns' pages."""
    file = lake.newest_file(table)
    content = bytearray(file.read_bytes())
    content[300:364] = bytes(64)
    file.write_bytes(content)


def rewritten(lake: Lake, table: str) -> None:
    """Another value in the file itself: the table's log does not know of it."""
    file = lake.newest_file(table)
    rows = pq.read_table(file, partitioning=None).to_pylist()
    name = {"proof": "state", "results": "evidence"}[table]
    changed = [{**row, name: row[name].replace("1", "2")} for row in rows]
    pq.write_table(pa.Table.from_pylist(changed, schema=pq.read_schema(file)), file)


def updated(lake: Lake, table: str) -> None:
    """A value changed by a statement."""
    changes = {"proof": {"prev_hash": "'x'"}, "results": {"status": "'skipped'"}}[table]
    DeltaTable(lake.store(table).location).update(updates=changes)


def log_cut(lake: Lake, table: str) -> None:
    file = lake.newest_commit(table)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def newer_protocol(lake: Lake, table: str) -> None:
    """A later Delta wrote the table, with a feature that every reader must know."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    commit = lake.newest_commit(table)
    later = commit.with_name(f"{int(commit.stem) + 1:020d}.json")
    later.write_text(json.dumps({"protocol": protocol}) + "\n")


TORN: dict[str, Callable[[Lake, str], None]] = {
    one.__name__: one for one in (cut, emptied, gone, flipped, rewritten, updated, log_cut, newer_protocol)
}


@pytest.mark.parametrize("damage", TORN)
@pytest.mark.parametrize("table", ["proof", "results"])
def test_a_torn_table(lake: Lake, table: str, damage: str) -> None:
    TORN[damage](lake, table)
    for _ in range(2):
        code, answer, messages = lake.audited()
        assert (code, answer != "complete") == (1, True) and messages
        lake.micro_batch()


def later_state(lake: Lake, change: Callable[[dict[str, Any]], object] = lambda state: None, **columns: Any) -> None:
    """Stores a state behind the newest, sealed and chained, as a later version of recon would."""
    proofs = open_ledger(lake.project).proofs
    before = proofs.newest("orders", "lake")
    assert before is not None
    row = sealed_state(before, number=before.sequence + 1, prev_hash=before.entry_hash, cause="audit", at=before.at)
    state = json.loads(row["state"])
    change(state)
    row = resealed({**row, "state": json.dumps(state), **columns})
    proofs.store.append(
        pa.Table.from_pylist([row], schema=proofs.store.schema), chain=chain_id("orders", "lake"), after=before.sequence
    )


def wider(lake: Lake) -> None:
    """A state of a later version, in a column that only that version knows."""
    later_state(lake, recon_version="99.0.0")
    place = lake.store("proof").location
    rows = DeltaTable(place).to_pyarrow_table().slice(0, 1)
    more = rows.append_column("of_later", pa.array(["x"]))
    write_deltalake(place, more.slice(0, 0), mode="append", schema_mode="merge")


LATER: dict[str, Callable[[Lake], object]] = {
    "a field of the state": lambda lake: later_state(lake, lambda state: state.update(sampled=True)),
    "a field of a span": lambda lake: later_state(lake, lambda state: state["coverage"][0].update(share=0.5)),
    "a code of an open finding": lambda lake: later_state(lake, lambda state: state["open"].append(FINDING)),
    "its version alone": lambda lake: later_state(lake, recon_version="99.0.0"),
    "a field less": lambda lake: later_state(lake, lambda state: state.pop("position")),
    "a column of the table": lambda lake: wider(lake),
}
FINDING = {
    "finding": {"code": "SAMPLED", "message": "m", "pipeline": "orders", "sink": "lake"},
    "check": "source_rows",
    "first_seen": "2026-11-01T00:00:00Z",
    "last_seen": "2026-11-01T00:00:00Z",
}


@pytest.mark.parametrize("what", LATER)
def test_a_table_of_a_later_version(lake: Lake, what: str) -> None:
    LATER[what](lake)
    for audits in range(2):
        code, answer, messages = lake.audited()
        assert (code, answer != "complete") == (1, True)
        assert audits or same_message(messages[0])
        lake.micro_batch()


def test_what_a_later_version_left_is_gone_on_from_with_that_version(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit of this version stores no state behind it, so that nothing which is open in it is forgotten."""
    later_state(
        lake,
        lambda state: state["open"].append({**FINDING, "finding": {**FINDING["finding"], "code": "GAP"}}),
        recon_version="99.0.0",
    )
    proofs = open_ledger(lake.project).proofs
    for _ in range(2):
        assert lake.audited()[1] == "could not be proved" and proofs.length("orders", "lake") == 3
    for command in (("findings",), ("ledger", "verify")):
        ended = lake.run(*command)
        assert ended.code == 2 and "was stored by recon 99.0.0" in ended.err and ended.err.count("\n") == 1, ended
    monkeypatch.setattr("recon.write.ledger.proofs.__version__", "99.0.0")
    assert lake.audited()[1] == "not complete"
