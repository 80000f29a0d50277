"""recon compliance sample: the choice can be made again by anybody, and a path says no more than what was looked at."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from recon.base.errors import ConfigError, EvidenceError, LedgerError
from recon.base.storage import Storage
from recon.model import REMOVALS, CommitRows, ReconStamp, dump_stamp, offsets_text
from recon.model.delta_offsets import offset_of, topic_of
from recon.model.offsets import OffsetSpan
from recon.model.sample import Frame, Sample, SampledPath, choose, chosen, key_of
from recon.project import DeltaMergeSink, FileSink, Project
from recon.project.model import Rows
from recon.recovery.sample import sample
from recon.reports import sample as reports
from recon.testing.evidence import kafka
from recon.witness import commit_rows
from recon.write.ledger import open_ledger
from tests.support import ledger_entries
from tests.support.broker import Broker, Range
from tests.support.ledger_entries import AT

PERIOD = ("2026-11-20", "2026-11-20")
FRAMES = (Frame("a", 0, "t", None, 0, 5, 25), Frame("a", 0, "t", None, 1, 0, 3), Frame("b", 0, "u", "id", 0, 100, 200))


# -- the choice ------------------------------------------------------------------------------------------------------


def test_the_choice_is_that_of_the_method() -> None:
    """Written from the text of METHOD, not from the code."""
    population = [(f.pipeline, f.topic, f.partition, o) for f in FRAMES for o in range(f.start_offset, f.end_offset)]
    indexes: list[int] = []
    i = 0
    while len(indexes) < 7:
        index = int(hashlib.sha256(f"the key:{i}".encode()).hexdigest(), 16) % len(population)
        indexes += [] if index in indexes else [index]
        i += 1
    records = choose("the key", FRAMES, 7)
    assert [(r.pipeline, r.topic, r.partition, r.offset) for r in records] == [population[i] for i in sorted(indexes)]


def test_more_than_there_are_takes_all_and_every_offset_has_the_same_chance() -> None:
    assert len(choose("k", FRAMES, 1000)) == 123
    counts = [0] * 10
    for n in range(2000):
        for index in chosen(f"key {n}", 10, 3):
            counts[index] += 1
    assert all(500 < count < 700 for count in counts), counts  # 600 expected, 20 standard deviation


def test_strata_share_and_give_what_they_have() -> None:
    by_pipeline = [r.pipeline for r in choose("k", FRAMES, 60, stratified=True)]
    assert (by_pipeline.count("a"), by_pipeline.count("b")) == (23, 37)
    assert len(choose("k", FRAMES, 1, stratified=True)) == 1
    assert len(choose("k", FRAMES, 999, stratified=True)) == 123


# -- the paths -------------------------------------------------------------------------------------------------------


def reading(project: Project, isolation_level: Any) -> Project:
    (pipe,) = project.pipelines
    source = pipe.source.model_copy(update={"isolation_level": isolation_level})
    return project.model_copy(update={"pipelines": (pipe.model_copy(update={"source": source}),)})


class Lake:
    """A ledger and a Delta table, without Spark; micro-batch n has offsets [10n, 10n+10) of orders-0."""

    def __init__(self, folder: Path, project: Project | None = None) -> None:
        self.project = project or reading(ledger_entries.project(folder), "read_committed")
        self.table = str(folder / "orders")
        self.ledger = open_ledger(self.project)

    def write(
        self,
        batch_id: int,
        rows: Sequence[int] | None = None,
        *,
        epoch: int = 0,
        topic_id: str = "id-1",
        columns: Sequence[str] = ("_batch_id", "_source_topic", "_source_partition", "_source_offset"),
        schema_mode: Any = None,
        **head: Any,
    ) -> None:
        offsets = range(10 * batch_id, 10 * batch_id + 10) if rows is None else rows
        ranges = (OffsetSpan("orders", topic_id, 0, 10 * batch_id, 10 * batch_id + 10),)
        stamp = ReconStamp(
            pipeline="orders", sink="orders", epoch=epoch, batch_id=batch_id, query_id="q-1", run_id=None,
            prev_hash="", offsets_text=offsets_text(ranges),
        )  # fmt: skip
        values = {
            "_batch_id": pa.array([batch_id] * len(offsets), pa.int64()),
            "_source_topic": pa.array(["orders"] * len(offsets), pa.string()),
            "_source_partition": pa.array([0] * len(offsets), pa.int32()),
            "_source_offset": pa.array(list(offsets), pa.int64()),
        }
        metadata = CommitProperties(custom_metadata={"userMetadata": dump_stamp(stamp)})
        rows_written = pa.table({name: values[name] for name in columns})
        write_deltalake(self.table, rows_written, mode="append", schema_mode=schema_mode, commit_properties=metadata)
        counts = {
            "epoch": epoch,
            "rows_read": 10,
            "rows_written": len(offsets),
            "sink_version": DeltaTable(self.table).version(),
        }
        self.ledger.append(ledger_entries.entry(batch_id, **{"offsets": ranges, **counts, **head}))

    def draw(self, n: int = 999, seed: str = "s", **more: Any) -> Sample:
        return sample(self.project, *PERIOD, n=n, seed=seed, **more)

    def paths(self) -> dict[int, SampledPath]:
        return {one.record.offset: one.paths[0] for one in self.draw().records}

    def outcomes(self) -> dict[int, str]:
        return {offset: path.outcome for offset, path in self.paths().items() if path.outcome != "found"}


def stray(lake: Lake, offset: int, batch_id: int) -> None:
    """A row that no write of recon's put there."""
    columns = {
        "_batch_id": pa.array([batch_id], pa.int64()),
        "_source_topic": pa.array(["orders"]),
        "_source_partition": pa.array([0], pa.int32()),
        "_source_offset": pa.array([offset], pa.int64()),
    }
    write_deltalake(lake.table, pa.table(columns), mode="append")


@pytest.fixture
def lake(tmp_path: Path, broker: Broker) -> Lake:
    """A lake whose broker does not answer until a test says what the topic is."""
    broker.refuses = EvidenceError("Kafka cannot be reached")
    return Lake(tmp_path)


def kafka_has(
    broker: Broker, uncommitted: Sequence[Range], committed: Sequence[Range] | None = None, **topic: Any
) -> None:
    """The broker answers: these offsets of the topic have a record."""
    broker.has(kafka(topic="orders", **{"topic_id": "id-1", **topic}))
    broker.holds(uncommitted, committed)


def test_a_record_is_followed_to_its_commit_and_its_file(lake: Lake) -> None:
    lake.write(0)
    lake.write(1)
    drawn = lake.draw(n=5)
    assert (drawn.size, len(drawn.records), drawn.outcomes()) == (20, 5, {"found": 5})
    path = lake.paths()[13]
    (write,) = path.writes
    assert (write.batch_id, write.version, write.confirmed, write.status) == (1, 1, True, "committed")
    assert write.at is not None and "query q-1" in write.by and "carries this micro-batch's stamp" in write.said
    assert path.said == "the sink has 1 row of it (_batch_id 1)"
    assert [Path(lake.table, place).is_file() for place in path.places] == [True]


def test_the_same_seed_and_ledger_give_the_same_sample_and_others_do_not(lake: Lake) -> None:
    lake.write(0)
    lake.write(1)

    def records(**more: Any) -> list[int]:
        return [one.record.offset for one in lake.draw(n=5, **more).records]

    first = records()
    assert records() == first and records(seed="t") != first
    later = AT.replace(day=22)
    lake.write(2, committed_at=later, started_at=later)  # behind the period
    assert records() == first
    lake.write(3)
    drawn = lake.draw(n=5)
    assert [one.record.offset for one in drawn.records] != first
    assert drawn.key == key_of("s", drawn.heads) and drawn.heads[0].entries == 4


def test_a_row_that_was_written_and_deleted_since(lake: Lake) -> None:
    lake.write(0)
    DeltaTable(lake.table).delete("_source_offset = 4")
    assert lake.outcomes() == {4: "removed"}
    path = lake.paths()[4]
    assert "version 0 wrote a row" in path.said and path.places


def test_what_kafka_says_of_an_offset_without_a_row(lake: Lake, broker: Broker) -> None:
    lake.write(0, [0, 1, 2, 3, 4, 5], rows_read=9)
    kafka_has(broker, [(0, 9)], [(0, 8)])  # 8 is aborted, 9 a marker, 6 and 7 are records
    assert lake.outcomes() == {6: "missing", 7: "missing", 8: "aborted", 9: "control record"}
    kafka_has(broker, [(0, 9)], [(0, 8)], policy="compact")
    assert lake.outcomes()[9] == "compacted or control record"


def test_a_query_that_reads_uncommitted_has_read_what_was_aborted(lake: Lake, broker: Broker) -> None:
    kafka_has(broker, [(0, 9)], [(0, 8)])  # 8 is aborted, 9 a marker
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7], rows_read=9)
    assert lake.outcomes() == {8: "aborted", 9: "control record"}
    lake.project = reading(lake.project, "read_uncommitted")
    assert lake.outcomes() == {8: "missing", 9: "control record"}


@pytest.mark.parametrize("topic", [{"topic_id": "id-2"}, {"exists": False}, {"log_start": 8}])
def test_a_topic_that_is_another_now_decides_nothing(lake: Lake, broker: Broker, topic: Any) -> None:
    lake.write(0, [0, 1, 2, 3, 4, 5], rows_read=9)
    kafka_has(broker, [] if "log_start" in topic else [(0, 10)], **topic)
    outcomes = lake.outcomes()
    assert {outcomes[6], outcomes[7]} == {"not decided"}


def test_without_a_broker_nothing_is_said_but_what_was_counted(lake: Lake) -> None:
    lake.write(0, [0, 1], rows_read=9)
    assert set(lake.outcomes().values()) == {"not read"}
    assert "Kafka could not be asked: Kafka cannot be reached" in lake.paths()[5].said
    lake.write(1, [10, 11], rows_read=10)  # each offset was a record
    assert {lake.outcomes()[offset] for offset in range(12, 20)} == {"missing"}


def test_which_rows_were_filtered_is_not_known_from_their_number(lake: Lake, broker: Broker) -> None:
    kafka_has(broker, [(0, 10)])
    lake.write(0, [0, 1, 2, 3], rows_filtered=6)
    assert set(lake.outcomes().values()) == {"not decided"}


@pytest.mark.parametrize(
    ("more", "second", "outcome"), [(0, None, "filtered"), (1, None, "not decided"), (0, "job:odd", "not decided")]
)
def test_filtered_is_said_only_where_the_commit_has_exactly_what_the_transform_returned(
    lake: Lake, more: int, second: str | None, outcome: str
) -> None:
    """And where no second call of the hook, in the same run, had another transform."""
    lake.write(0, [0, 1, 2, 3], rows_filtered=6)
    of_commit = commit_rows.read(Storage(lake.table), [0])[0]
    assert isinstance(of_commit, CommitRows) and of_commit.held.fingerprint is not None
    # The same with a ledger of its own, whose entry has what was counted during the write.
    other = lake.project.ledger.model_copy(update={"location": "_other"})
    lake.project = lake.project.model_copy(update={"ledger": other})
    lake.ledger = open_ledger(lake.project)
    counted = {"rows_given": 4, "fingerprint_given": of_commit.held.fingerprint + more, "rows_filtered": 6}
    ranges = (OffsetSpan("orders", "id-1", 0, 0, 10),)
    of_call = {"offsets": ranges, "rows_read": 10, "run_id": "r-1", **counted}
    lake.ledger.append(ledger_entries.entry(0, transform="job:even", **of_call))
    if second is not None:
        again = {"status": "already_committed", "attempt": 2, "transform": second}
        lake.ledger.append(ledger_entries.entry(0, **again, **of_call))
    assert lake.outcomes() == dict.fromkeys(range(4, 10), outcome)
    said = lake.paths()[5].said
    assert ("the transform dropped 6 rows, and the commit has exactly" in said) is (outcome == "filtered")
    assert ("the hook was called twice" in said) is (second is not None)


def test_a_row_of_a_later_entry_is_found(lake: Lake) -> None:
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7, 8])
    ranges = (OffsetSpan("orders", "id-1", 0, 9, 10),)
    later = AT.replace(day=25)
    stray(lake, 9, batch_id=4)
    assert lake.outcomes() == {9: "not decided"}
    lake.ledger.append(ledger_entries.entry(4, offsets=ranges, at=later))
    assert lake.outcomes() == {} and lake.paths()[9].said == "the sink has 1 row of it (_batch_id 4)"


def test_the_population_is_what_was_read_in_the_period(lake: Lake) -> None:
    before = AT.replace(day=19)
    lake.write(0, committed_at=before, started_at=before)
    lake.write(1)
    for number, start in enumerate((10, 50)):  # of doubled rows that were removed: nothing was read for it
        ranges = (OffsetSpan("orders", "id-1", 0, start, start + 10),)
        lake.ledger.append(ledger_entries.entry(number, epoch=REMOVALS, offsets=ranges))
    lake.write(1, status="already_committed", attempt=2)
    drawn = lake.draw()
    assert [tuple(frame)[3:] for frame in drawn.population] == [("id-1", 0, 10, 20)]
    assert [len(path.writes) for path in lake.paths().values()] == [2] * 10


def test_rows_of_a_delta_table_are_not_offsets_to_choose_from(lake: Lake) -> None:
    table = (OffsetSpan(topic_of("5ec0a1f2"), None, 0, offset_of(3, 0), offset_of(4, 0)),)
    lake.ledger.append(ledger_entries.entry(7, offsets=table))
    with pytest.raises(ConfigError):
        lake.draw()
    lake.write(0)
    drawn = lake.draw(n=2)
    assert [tuple(frame)[3:] for frame in drawn.population] == [("id-1", 0, 0, 10)]
    assert drawn.left_out == ("orders",)
    for form in (reports.as_html(drawn), reports.as_markdown(drawn)):
        assert "Not sampled" in form


def test_rows_in_quarantine(lake: Lake) -> None:
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7])
    place = lake.project.project_dir / "_recon" / "quarantine" / "orders" / "orders"
    columns = {
        "_batch_id": pa.array([0, 0], pa.int64()),
        "_source_topic": pa.array(["orders"] * 2),
        "_source_partition": pa.array([0, 0], pa.int32()),
        "_source_offset": pa.array([8, 9], pa.int64()),
        "_recon_release": pa.array([None, 3], pa.int64()),
    }
    place.mkdir(parents=True)
    write_deltalake(place, pa.table(columns))
    assert lake.outcomes() == {8: "quarantined", 9: "missing"}


def test_nothing_is_found_that_was_not_looked_at(lake: Lake) -> None:
    lake.write(0)
    for file in Path(lake.table).glob("*.parquet"):
        file.unlink()
    assert set(lake.outcomes().values()) == {"not read"} and len(lake.outcomes()) == 10
    assert "cannot be read without Spark" in lake.paths()[0].said


def test_a_row_with_a_batch_id_that_no_entry_has_is_not_taken_for_it(lake: Lake) -> None:
    lake.write(0, [0, 1], rows_filtered=8)
    stray(lake, 5, batch_id=77)
    assert lake.paths()[5].outcome == "not decided" and "which no entry of it has" in lake.paths()[5].said


def test_a_row_of_the_topic_that_was_created_again_is_not_taken_for_one_of_the_old(lake: Lake) -> None:
    """Batch ids began anew with the topic: rows of the old one are gone, and those of the new one look like them."""
    lake.write(0)
    lake.write(0, epoch=1, topic_id="id-2")
    assert lake.outcomes() == {}, "each has its row"
    rows = DeltaTable(lake.table).to_pyarrow_table().slice(0, 10)
    write_deltalake(lake.table, rows, mode="overwrite")
    drawn = lake.draw().records
    assert len(drawn) == 20 and {one.paths[0].outcome for one in drawn} == {"not decided"}
    lake.write(1)
    assert {one.paths[0].outcome for one in lake.draw().records if one.record.offset >= 10} == {"found"}


def test_a_sink_that_keeps_one_row_per_key_never_misses_a_row(tmp_path: Path, broker: Broker) -> None:
    project = ledger_entries.project(tmp_path)
    (pipe,) = project.pipelines
    merge = DeltaMergeSink(kind="delta_merge", name="orders", target="orders", keys=("id",))
    lake = Lake(tmp_path, project.model_copy(update={"pipelines": (pipe.model_copy(update={"sinks": (merge,)}),)}))
    kafka_has(broker, [(0, 10)])
    lake.write(0, [0, 1])
    assert set(lake.outcomes().values()) == {"not decided"}


def test_sinks_that_only_spark_reads_are_not_read(tmp_path: Path) -> None:
    project = ledger_entries.project(tmp_path)
    (pipe,) = project.pipelines
    files = FileSink(kind="csv", name="orders", target="orders", mode="append")
    lake = Lake(tmp_path, project.model_copy(update={"pipelines": (pipe.model_copy(update={"sinks": (files,)}),)}))
    lake.write(0)
    (path, *_) = lake.paths().values()
    assert path.outcome == "not read" and "read by Spark alone" in path.said
    assert path.writes[0].confirmed is None and "the ledger alone says so" in path.writes[0].said


def test_a_commit_that_is_another_one_now(lake: Lake) -> None:
    lake.write(0)
    lake.write(1, sink_version=0)
    lake.write(2, sink_version=9)
    writes = {path.writes[0].batch_id: path.writes[0] for path in lake.paths().values()}
    assert [writes[n].confirmed for n in range(3)] == [True, False, False]
    assert "is another commit" in writes[1].said and "the log has no version 9" in writes[2].said


def test_bad_input(tmp_path: Path) -> None:
    project = ledger_entries.project(tmp_path)
    with pytest.raises(LedgerError):
        sample(project, *PERIOD, seed="s")
    with pytest.raises(ConfigError):
        sample(project, *PERIOD, n=0, seed="s")
    with pytest.raises(ConfigError):
        sample(project, "2026-11-20", "2026-11-19", seed="s")


# -- the forms -------------------------------------------------------------------------------------------------------

HOSTILE = '=HYPERLINK("x")<script>alert(1)</script>|`[x](y)\x1b[31m'


@pytest.fixture
def hostile(lake: Lake) -> Sample:
    lake.write(0)
    drawn = lake.draw(n=2)
    path = replace(drawn.records[0].paths[0], said=HOSTILE, target=HOSTILE, places=(HOSTILE,))
    record = drawn.records[0].record._replace(topic=HOSTILE)
    return replace(drawn, seed=HOSTILE, records=(replace(drawn.records[0], record=record, paths=(path,)),))


def test_the_forms_are_inert(hostile: Sample) -> None:
    page, markdown = reports.as_html(hostile), reports.as_markdown(hostile)
    assert "<script>alert" not in page + markdown and "\x1b" not in page + markdown
    assert "[x](y)" not in markdown
    (row,) = csv.DictReader(io.StringIO(reports.as_csv(hostile)))
    assert row["topic"].startswith("'=") and row["why"].startswith("'=") and row["places"].startswith("'=")
    assert (row["checked"], row["remarks"], row["outcome"]) == ("", "", "found")
    assert "\x1b" not in str(reports.table(hostile))


def test_json_has_all_that_the_choice_needs(lake: Lake) -> None:
    lake.write(0)
    drawn = lake.draw(n=3)
    document = json.loads(reports.as_json(drawn))
    lines = [document["seed"], *(f"{h['pipeline']}\t{h['sink']}\t{h['entry_hash']}" for h in document["heads"])]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == document["key"]
    frames = [Frame(**frame) for frame in document["population"]]
    assert [r.offset for r in choose(document["key"], frames, 3)] == [r["offset"] for r in document["records"]]


def test_a_page_has_room_for_the_auditors_mark(lake: Lake) -> None:
    lake.write(0)
    drawn = lake.draw(n=2)
    assert reports.as_html(drawn).count('type="checkbox"') == 4
    assert reports.as_markdown(drawn).count("| [ ] |") == 2


# -- the same as the account of an audit -----------------------------------------------------------------------------


def test_the_isolation_level_is_that_of_the_query_that_read_the_offset(lake: Lake, broker: Broker) -> None:
    """Recon.yml may have another one, or none."""
    kafka_has(broker, [(0, 9)], [(0, 8)])  # 8 is aborted, 9 a marker
    lake.project = reading(lake.project, "read_uncommitted")
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7], rows_read=8, isolation_level="read_committed")
    assert lake.outcomes() == {8: "aborted", 9: "control record"}


def test_a_transform_that_makes_several_rows_of_a_record_may_have_dropped_another(lake: Lake, broker: Broker) -> None:
    kafka_has(broker, [(0, 10)])
    lake.write(0, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    assert lake.outcomes() == dict.fromkeys(range(5, 10), "missing")
    (pipe,) = lake.project.pipelines
    pipe = pipe.model_copy(update={"rows": Rows(explodes=True)})
    lake.project = lake.project.model_copy(update={"pipelines": (pipe,)})
    assert lake.outcomes() == dict.fromkeys(range(5, 10), "not decided")


def test_a_stateful_operator_may_have_dropped_a_record(lake: Lake, broker: Broker) -> None:
    kafka_has(broker, [(0, 10)])
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7], rows_read=8)
    assert lake.outcomes() == {8: "missing", 9: "missing"}
    folder = Path(lake.project.resolve(lake.project.pipelines[0].checkpoint))
    (folder / "state" / "0" / "0").mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "q-1"}')
    assert lake.outcomes() == {8: "not decided", 9: "not decided"}


def test_a_restored_entry_has_the_counts_of_its_replay(lake: Lake, broker: Broker) -> None:
    kafka_has(broker, [(0, 10)])
    lake.write(0, [0, 1, 2, 3, 4, 5, 6, 7], status="rebuilt", rows_read=None, rows_filtered=None)
    assert lake.outcomes() == {8: "not decided", 9: "not decided"}
    ranges = (OffsetSpan("orders", "id-1", 0, 0, 10),)
    counts = {"rows_read": 10, "rows_written": 8, "rows_filtered": 0}
    lake.ledger.append(ledger_entries.entry(0, status="already_committed", attempt=2, offsets=ranges, **counts))
    assert lake.outcomes() == {8: "missing", 9: "missing"}
