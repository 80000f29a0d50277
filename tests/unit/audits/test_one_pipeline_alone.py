"""What is wrong with a witness of one pipeline leaves the audit of the other as it is: real files, no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recon.audits.compliance import compliance
from recon.base.storage import Storage
from recon.model import KafkaPartition, KafkaTopic, PipelineFacts, RunResult
from recon.project import Project, load
from recon.reports import run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.proofs import ProofTable
from recon.write.ledger.results import sealed
from tests.support.broker import Broker
from tests.support.native_stream import NativeStream
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

BROKEN, WHOLE = "broken", "whole"
RECON = "name: lake\nledger: ledger\npipelines:\n" + "".join(
    f"""\
  - name: {name}
    write: native
    checkpoint: {name}/checkpoint
    source: {{topics: [{name}]}}
    rows: {{filters: false}}
    data_tests: [offset_continuity, kafka_end_offsets, checkpoint_commits]
    sinks:
      - name: lake
        target: {name}/table
        source_columns: {{topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}}
        data_tests: [ledger_integrity, delta_history, source_rows]
"""
    for name in (BROKEN, WHOLE)
)


class Lake:
    """Two streams into two tables, audited once before the next micro-batch of each."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, run: Callable[..., Ended]) -> None:
        self.folder, self.patch, self.run = folder, patch, run
        (folder / "recon.yml").write_text(RECON)
        self.streams = {
            name: NativeStream(folder / name / "checkpoint", folder / name / "table").start({name: {0: 0}})
            for name in (BROKEN, WHOLE)
        }
        self.end = 10
        self.topics: dict[str, Any] = Broker(patch).topics
        self.micro_batches()
        first = self.audited()
        assert set(self.answers(first).values()) == {"complete"}, [facts.because for facts in first.pipelines]
        self.micro_batches()

    def micro_batches(self) -> None:
        for name, stream in self.streams.items():
            stream.batch({name: {0: self.end}})
            self.topics[name] = topic(name, self.end)
        self.end += 10

    @property
    def project(self) -> Project:
        return load(self.folder)

    def table(self, kind: str) -> DeltaTable:
        ledger = open_ledger(self.project)
        return DeltaTable({"proof": ledger.proofs.store, "results": ledger.results}.get(kind, ledger.store).location)

    def file(self, path: str) -> Path:
        return self.folder / BROKEN / path

    def newest_commit(self) -> Path:
        return max((self.folder / BROKEN / "table" / "_delta_log").glob("*.json"))

    def audited(self) -> RunResult:
        """`recon audit --no-spark`; its results, which a report has been made of."""
        page = self.folder / "target" / "report.html"
        page.unlink(missing_ok=True)
        ended = self.run("audit", "--no-spark")
        assert "Traceback" not in ended.err + ended.out and ended.code in (0, 1), ended
        run = run_results.read(self.folder / "target" / "run_results.json")
        assert ended.code == run.exit_code and BROKEN in page.read_text()
        return run

    def answers(self, run: RunResult) -> dict[str, str]:
        return {facts.name: facts.answer for facts in run.pipelines}

    def raises(self, place: str, when: Callable[..., bool] = lambda *_, **__: True, of: Any = None) -> list[str]:
        """Lets a function raise what recon does not know, where it is called for the broken pipeline."""
        called: list[str] = []
        module, _, name = place.rpartition(".")
        owner = of or __import__(module, fromlist=[name])
        before = getattr(owner, name)

        def stand_in(*args: Any, **given: Any) -> Any:
            if not when(*args, **given):
                return before(*args, **given)
            called.append(place)
            raise RuntimeError("nobody foresaw this")

        self.patch.setattr(owner, name, stand_in)
        return called


def topic(name: str, end: Any) -> KafkaTopic:
    partition = KafkaPartition(partition=0, log_start=0, log_end=end, high_watermark=end, last_stable=end)
    return KafkaTopic(topic=name, exists=True, partitions={0: partition})


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recon: Callable[..., Ended]) -> Lake:  # noqa: F811
    return Lake(tmp_path, monkeypatch, recon)


def lies_there(storage: Storage, *_: Any, **__: Any) -> bool:
    return f"/{BROKEN}/" in storage.uri


def of_pipeline(_: Any, name: Any, *__: Any, **___: Any) -> bool:
    return bool(name == BROKEN)


def replaced(file: Path, name: str, value: Any) -> None:
    """Puts another value behind a name, wherever it is in the JSON lines of a file."""
    lines = []
    for line in file.read_text().split("\n"):
        document = json.loads(line) if line.startswith("{") else None
        for owner in (document, *(document or {}).values()):
            if isinstance(owner, dict) and name in owner:
                owner[name] = value
        lines.append(line if document is None else json.dumps(document))
    file.write_text("\n".join(lines))


def malformed_entry(lake: Lake, **values: Any) -> None:
    """Appends a copy of an entry with other values, as recon appends: no other entry of the table is touched."""
    store, table = open_ledger(lake.project).store, lake.table("ledger")
    row = next(row for row in table.to_pyarrow_table().to_pylist() if row["pipeline"] == BROKEN)
    malformed = pa.Table.from_pylist([{**row, "sequence": row["sequence"] + 1, **values}], schema=store.schema)
    write_deltalake(store.location, malformed, mode="append")


def result_of_another_shape(lake: Lake) -> None:
    (row,) = [
        row
        for row in lake.table("results").to_pyarrow_table().to_pylist()
        if (row["pipeline"], row["check"]) == (BROKEN, "ledger_integrity")
    ]
    content = {name: value for name, value in row.items() if name not in ("row_hash", "date")}
    open_ledger(lake.project).results.append_rows([sealed({**content, "evidence": '{"chain_head": 7}'})])


DAMAGES: dict[str, Callable[[Lake], object]] = {
    "a plan of the checkpoint": lambda lake: lake.file("checkpoint/offsets/1").write_text("v1\n{}\n[[7]]"),
    "the number of an offset": lambda lake: lake.file("checkpoint/offsets/1").write_text(
        'v1\n{"batchTimestampMs":1}\n{"broken":{"0":"x"}}'
    ),
    "the metadata of the checkpoint": lambda lake: lake.file("checkpoint/metadata").write_bytes(b"\xff{"),
    "a commit of the table": lambda lake: lake.newest_commit().write_text('{"commitInfo":'),
    "the time of a commit": lambda lake: replaced(lake.newest_commit(), "timestamp", "2026-13-45"),
    "a file of a commit": lambda lake: replaced(lake.newest_commit(), "add", [7]),
    "an entry without ranges": lambda lake: malformed_entry(lake, offsets=None),
    "the number of an entry": lambda lake: malformed_entry(lake, sequence=2**63 - 1),
    "the time of an entry": lambda lake: malformed_entry(lake, committed_at=None),
    "the offsets of an entry": lambda lake: malformed_entry(lake, offsets=[{"topic": None, "end_offset": -(2**63)}]),
    "the Kafka state of an entry": lambda lake: malformed_entry(lake, kafka_state='{"asked_at": 7}'),
    "a result": result_of_another_shape,
    "an edited result": lambda lake: lake.table("results").update(
        updates={"evidence": "'{'"}, predicate=f"pipeline = '{BROKEN}'"
    ),
    "the state of the proof": lambda lake: lake.table("proof").update(
        updates={"state": "'{'"}, predicate=f"pipeline = '{BROKEN}'"
    ),
    "the number of a state": lambda lake: lake.table("proof").update(
        updates={"sequence": "NULL"}, predicate=f"pipeline = '{BROKEN}'"
    ),
    "what the broker says of the log's end": lambda lake: lake.topics.update(broken=topic(BROKEN, None)),
    "what the broker says of the topic": lambda lake: lake.topics.update(broken=7),
}
RAISING: dict[str, tuple[str, Callable[..., bool], Any]] = {
    "the checkpoint": ("recon.witness.checkpoint.read", lies_there, None),
    "the Delta log": ("recon.witness.delta_log.read", lies_there, None),
    "stamps": ("recon.witness.observed.with_stamps", lambda *of: of[3] == BROKEN, None),
    "the ledger": (".slice", of_pipeline, Ledger),
    "the ledger's positions": (".position_before", of_pipeline, Ledger),
    "the results": ("recon.audits.collect.previous_audit", of_pipeline, None),
    "the number of states": (".length", of_pipeline, ProofTable),
    "the proof": (".newest", of_pipeline, ProofTable),
    "the broker": ("recon.witness.kafka.read", lambda _, topics, **__: BROKEN in topics, None),
    "the order of reading": (
        "recon.audits.collect._period_from",
        lambda _, pipeline, *__: pipeline.name == BROKEN,
        None,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_malformed_witness(lake: Lake, damage: str) -> None:
    DAMAGES[damage](lake)
    run = lake.audited()
    assert lake.answers(run)[WHOLE] == "complete", run.notes
    assert lake.answers(run)[BROKEN] != "complete"
    assert lake.answers(lake.audited())[WHOLE] == "complete", "the next audit goes on from the proof of this one"


@pytest.mark.parametrize("witness", RAISING)
def test_a_witness_whose_reader_raises(lake: Lake, witness: str) -> None:
    place, when, of = RAISING[witness]
    called = lake.raises(place, when, of)
    run = lake.audited()
    assert called and lake.answers(run) == {BROKEN: "could not be proved", WHOLE: "complete"}, run.notes
    said = [*run.notes, *(result.message for result in run.results if result.pipeline == BROKEN)]
    assert any("nobody foresaw this" in text for text in said), said


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("files: broken/landing", "recon.witness.source_files.read"),
        ("delta: broken/source", "recon.witness.source_table.read"),
    ],
)
def test_a_source_whose_reader_raises(lake: Lake, source: str, place: str) -> None:
    text = (lake.folder / "recon.yml").read_text().replace("topics: [broken]", source)
    text = text.replace(
        "        source_columns: {topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}\n", "", 1
    )
    check = "source_files" if source.startswith("files") else "source_table"
    (lake.folder / "recon.yml").write_text(text.replace("kafka_end_offsets", check, 1))
    called = lake.raises(place)
    assert lake.answers(lake.audited()) == {BROKEN: "could not be proved", WHOLE: "complete"} and called


def facts_of(run: RunResult, name: str) -> PipelineFacts:
    return next(facts for facts in run.pipelines if facts.name == name)


def test_figures_that_cannot_be_computed(lake: Lake) -> None:
    """Neither from the ledger, nor from the proof: the answer says so, and the other pipeline's figures are there."""
    lake.raises("recon.audits.summary.sink_facts", lambda _, target, *__: f"/{BROKEN}/" in target)
    run = lake.audited()
    assert lake.answers(run) == {BROKEN: "could not be proved", WHOLE: "complete"}
    assert facts_of(run, BROKEN).because.startswith("the report's figures cannot be computed: RuntimeError")
    assert facts_of(run, WHOLE).sinks[0].batches == 2


@pytest.mark.parametrize("place", ["recon.audits.run.items_of", "recon.audits.books.lines.Harmed.named"])
def test_books_that_cannot_be_computed(lake: Lake, place: str) -> None:
    if place.endswith("items_of"):
        called = lake.raises(place, lambda witnesses, *_: witnesses.pipeline == BROKEN)
    else:
        called = lake.raises(".lines", lambda book, *_: book.pipeline.name == BROKEN, _sink_book())
    run = lake.audited()
    assert called and [note for note in run.notes if "books" in note.lower() and BROKEN in note]
    assert {line.pipeline for line in run.books} == {WHOLE}
    assert lake.answers(run)[WHOLE] == "complete"


def _sink_book() -> Any:
    from recon.audits.books.lines import SinkBook

    return SinkBook


def test_checks_of_rows_that_cannot_be_evaluated(lake: Lake) -> None:
    """What they share breaks for one table: they are errors, and those of the other table are evaluated."""
    text = (lake.folder / "recon.yml").read_text()
    (lake.folder / "recon.yml").write_text(text.replace("source_rows]", "source_rows, not_null: {column_name: a}]"))
    lake.patch.setattr("recon.audits.session.AuditSession.for_rows", lambda _: object())
    called = lake.raises("recon.audits.run.ScanContext", lambda *_, **__: len(asked) == 1)
    asked: list[str] = []
    lake.patch.setattr("recon.audits.run.Samples.of", lambda _, sink: asked.append(sink.target))
    run = lake.audited()
    (broken, whole) = (result for result in run.results if result.check == "not_null")
    assert called and asked == [f"{BROKEN}/table", f"{WHOLE}/table"]
    assert (broken.status, broken.message.split(": ")[-1]) == ("error", "nobody foresaw this")
    assert (whole.status, whole.message.split(" cannot be read")[0]) == (
        "error",
        f"table {lake.folder}/{WHOLE}/table",
    ), "there is no session, and that is what it says"
    assert set(lake.answers(run).values()) == {"complete"}


def test_results_of_earlier_audits_that_were_edited_are_those_of_one_pipeline(lake: Lake) -> None:
    lake.audited()
    DAMAGES["an edited result"](lake)
    past = lake.audited().past
    assert past is not None and past.unknown == "" and past.recent[1].edited
    assert [spell.state for strip in past.pipelines if strip.name == WHOLE for spell in strip.days] == ["complete"]


def test_the_whole_pipeline_is_in_the_compliance_report(lake: Lake) -> None:
    DAMAGES["the state of the proof"](lake)
    lake.audited()
    report = compliance(lake.project, datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC))
    assert {sink.pipeline: sink.batches_proved for sink in report.sinks}[WHOLE] == 2
