"""What Spark's progress becomes in the `progress` table, and what the listener does and refuses to do."""

from __future__ import annotations

import json
import logging
import time
import uuid
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from recon.base.errors import ConfigError, EvidenceError, LedgerError
from recon.project import Project
from recon.write.ledger import arrow
from recon.write.ledger.progress import (
    DURATIONS,
    PROGRESS,
    offsets_of,
    read_progress,
    row_of,
)
from recon.write.ledger.store import Filter, open_store
from recon.write.streams.listener import COMPACT_EVERY, MOST_WAITING, ProgressListener
from tests.support.messages import raises

# Recorded from Spark 4.0.0, foreachBatch with a count, a broker of three partitions; `dedupe` 2 and 3 counted twice.
EVENTS = json.loads((Path(__file__).parent / "progress_events.json").read_text())


def event(name: str, batch_id: int, /, **changed: Any) -> dict[str, Any]:
    found = next(e for e in EVENTS if (e["name"], e["batchId"]) == (name, batch_id))
    return {**deepcopy(found), **changed}


def project(folder: Path, *names: str) -> Project:
    pipelines = [
        {"name": name, "checkpoint": f"cp/{name}", "sinks": [{"name": name, "kind": "delta", "target": name}]}
        for name in names or ("p",)
    ]
    return Project.model_validate({"name": "lake", "ledger": "recon", "pipelines": pipelines, "project_dir": folder})


def started(folder: Path, name: str, query_id: str) -> None:
    """What a query's start leaves in its checkpoint."""
    (folder / "cp" / name).mkdir(parents=True)
    (folder / "cp" / name / "metadata").write_text(json.dumps({"id": query_id}))


def told(progress: dict[str, Any]) -> Any:
    """An event as PySpark hands it over."""
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


def rows(of: Project) -> list[dict[str, Any]]:
    store = open_store(of, PROGRESS)
    return arrow.rows(store.read(Filter())) if store.exists() else []


# -- one row -----------------------------------------------------------------------------------------------------------


def test_a_micro_batch_of_kafka_with_lag() -> None:
    row = row_of(event("plain", 1), "orders", cores=2, spark_version="4.0.0")
    assert sorted(row) == sorted(PROGRESS.columns)
    assert (row["pipeline"], row["batch_id"], row["rows"], row["offsets_read"], row["partitions"]) == (
        "orders",
        1,
        60,
        60,
        2,
    )
    assert row["lag"] == 30  # planned up to 60, and Kafka held 75 in both
    assert (row["cores"], row["spark_version"]) == (2, "4.0.0")
    assert row["started_at"] == datetime(2026, 11, 21, 16, 23, 25, 861000, UTC)
    assert [row[column] for column in DURATIONS.values()] == [563, 290, 0, 19, 13, 67, 159]
    assert row["sink_rows"] is None, "foreachBatch says -1: it does not count"
    assert row["state_rows"] is None and row["watermark"] is None and row["rocksdb"] is None
    found = offsets_of(row["sources"])
    assert found is not None
    assert (found.start[("a", 0)], found.end[("a", 1)], found.latest[("a", 1)]) == (30, 60, 75)


def test_the_first_micro_batch_does_not_say_where_it_began() -> None:
    row = row_of(event("plain", 0), "p")
    assert (row["offsets_read"], row["lag"], row["rows"]) == (None, 90, 60)


def test_several_sources_add_up() -> None:
    row = row_of(event("union", 0), "p")
    assert (row["rows"], row["partitions"], row["lag"]) == (200, 3, 0)


def test_state_is_counted_once_though_the_frame_was_computed_twice() -> None:
    once, twice = row_of(event("dedupe", 0), "p"), row_of(event("dedupe", 2), "p")
    assert (once["state_rows"], once["dropped_duplicates"], once["state_names"]) == (60, 40, "dedupe")
    # Spark says 120 rows and 100 duplicates of 50 rows read.
    assert (twice["rows"], twice["state_rows"], twice["dropped_duplicates"]) == (50, 60, 50)
    assert once["watermark"] is None, "1970 is Spark's word for none"
    assert twice["watermark"] == datetime(2026, 11, 21, 16, 22, 32, 591000, UTC)
    assert once["rocksdb"] == 0 and row_of(event("agg", 0), "p")["rocksdb"] == 1


def test_a_join_has_four_stores() -> None:
    assert row_of(event("join", 0), "p")["state_rows"] == 200


def test_a_no_data_micro_batch_reads_nothing() -> None:
    row = row_of(event("agg", 1), "p")
    assert (row["rows"], row["offsets_read"], row["lag"]) == (0, 0, 0)


def test_a_source_that_is_not_kafka_has_no_lag() -> None:
    source = {"description": "Rate", "startOffset": 3, "endOffset": 4, "latestOffset": 4, "numInputRows": 9}
    row = row_of(event("plain", 1, sources=[source]), "p")
    assert (row["rows"], row["offsets_read"], row["lag"], row["partitions"]) == (60, None, None, None)
    assert offsets_of(row["sources"]) is None


def test_nan_and_infinity_are_no_rates() -> None:
    row = row_of(event("plain", 1, inputRowsPerSecond=float("nan"), processedRowsPerSecond=float("inf")), "p")
    assert row["input_rows_per_second"] is None and row["processed_rows_per_second"] is None


def test_what_is_no_progress_is_refused() -> None:
    with raises(EvidenceError):
        row_of({"id": "q"}, "p")


# -- the table ---------------------------------------------------------------------------------------------------------


def test_what_was_kept_is_read_back_once_and_in_order(tmp_path: Path) -> None:
    of = project(tmp_path)
    store = open_store(of, PROGRESS)
    kept = [row_of(event("plain", n), "p") for n in (2, 0, 1)]
    store.append_rows(kept)
    store.append_rows([kept[0], row_of(event("union", 0), "other")])  # a second listener; another pipeline
    assert store.dates() == [date(2026, 11, 21)]
    found = read_progress(open_store(of, PROGRESS), "p", None, None)
    assert [b.batch_id for b in found.batches] == [0, 1, 2]
    assert [b.lag for b in found.batches] == [90, 30, 0]
    assert found.batches[1].seconds == 0.563
    assert sorted(found.offsets) == [0, 1, 2] and found.offsets[2].end == {("a", 0): 75, ("a", 1): 75}
    later = read_progress(store, "p", found.batches[1].at, found.batches[2].at)
    assert [b.batch_id for b in later.batches] == [1]


def test_a_long_list_of_offsets_is_cut_to_the_first_and_the_last(tmp_path: Path) -> None:
    store = open_store(project(tmp_path), PROGRESS)
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    made = [event("plain", 1, batchId=n, timestamp=(begin + timedelta(minutes=n)).isoformat()) for n in range(100)]
    store.append_rows([row_of(one, "p") for one in made])
    found = read_progress(store, "p", None, None, samples=5)
    assert len(found.batches) == 100 and {0, 99} <= set(found.offsets) and len(found.offsets) <= 7


def test_no_table_is_no_progress(tmp_path: Path) -> None:
    assert read_progress(open_store(project(tmp_path), PROGRESS), "p", None, None).batches == []


def test_old_days_are_forgotten_and_their_files_go(tmp_path: Path) -> None:
    store = open_store(project(tmp_path), PROGRESS)
    for day in (1, 2, 20):
        store.append_rows([row_of(event("plain", 1, timestamp=f"2026-11-{day:02}T10:00:00.000Z"), "p")])
    store.forget(date(2026, 11, 2))
    assert store.dates() == [date(2026, 11, 20)]
    assert read_progress(store, "p", None, None).batches[0].at.day == 20
    store.forget(date(2026, 11, 2))  # nothing left to forget
    assert store.dates() == [date(2026, 11, 20)]


def test_a_day_of_200_partitions_stays_small(tmp_path: Path) -> None:
    """8,640 micro-batches of ten seconds; a twentieth of them here."""
    store = open_store(project(tmp_path), PROGRESS)
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    made = []
    for n in range(432):
        starts, ends = ({"t": {str(p): 10**6 + k * 1250 for p in range(200)}} for k in (n, n + 1))
        source = {"description": "K", "startOffset": starts, "endOffset": ends, "latestOffset": ends, "numInputRows": 9}
        at = (begin + timedelta(seconds=10 * n)).isoformat()
        made.append(row_of(event("plain", 1, batchId=n, timestamp=at, sources=[source]), "p"))
    for first in range(0, len(made), 6):
        store.append_rows(made[first : first + 6])
    store.compact()
    size = sum((tmp_path / "recon" / "progress" / uri.split("progress/")[1]).stat().st_size for uri in _files(store))
    assert size * 20 < 60_000_000
    began = time.perf_counter()
    found = read_progress(store, "p", None, None)
    assert len(found.batches) == 432 and time.perf_counter() - began < 2


def _files(store: Any) -> list[str]:
    return list(DeltaTable(store.location).file_uris())


# -- the listener ------------------------------------------------------------------------------------------------------


def test_a_query_is_found_by_its_checkpoint(tmp_path: Path) -> None:
    of = project(tmp_path, "p", "q")
    started(tmp_path, "q", event("plain", 0)["id"])
    listener = ProgressListener(of)
    for n in (0, 1, 2):
        listener.onQueryProgress(told(event("plain", n, name=None)))
    assert rows(of) == [], "appends are gathered"
    listener.onQueryTerminated(SimpleNamespace())
    assert [(r["pipeline"], r["batch_id"]) for r in rows(of)] == [("q", 0), ("q", 1), ("q", 2)]
    assert len(open_store(of, PROGRESS).operations()) == 2, "one commit for the table, one for the rows"


def test_a_query_is_found_by_its_name_and_a_stranger_is_left_alone(tmp_path: Path, caplog: Any) -> None:
    of = project(tmp_path, "plain")
    started(tmp_path, "plain", str(uuid.uuid4()))  # another query's
    listener = ProgressListener(of)
    with caplog.at_level(logging.INFO, "recon"):
        listener.onQueryProgress(told(event("plain", 0)))
        for n in (0, 1):
            listener.onQueryProgress(told(event("dedupe", n)))
    listener.flush()
    assert [r["query_name"] for r in rows(of)] == ["plain"]
    assert [r.message for r in caplog.records if "belongs to no pipeline" in r.message] == [
        f"query {event('dedupe', 0)['id']} (dedupe) belongs to no pipeline of recon.yml; its progress is not recorded"
    ]


def test_without_yaml(tmp_path: Path) -> None:
    listener = ProgressListener(pipeline="orders", ledger=str(tmp_path / "ledger"))
    listener.record(event("plain", 0, name=None))
    listener.record(event("dedupe", 0))  # another name: another query
    listener.flush()
    of = Project.model_validate(
        {
            "name": "x",
            "ledger": str(tmp_path / "ledger"),
            "pipelines": [
                {"name": "orders", "checkpoint": "c", "sinks": [{"name": "s", "kind": "delta", "target": "t"}]}
            ],
        }
    )
    assert [(r["pipeline"], r["query_name"]) for r in rows(of)] == [("orders", None)]


def test_it_says_what_it_needs(tmp_path: Path) -> None:
    with raises(ConfigError):
        ProgressListener(pipeline="orders")
    with raises(ConfigError):
        ProgressListener(project(tmp_path), pipeline="ordres")


def test_an_idle_query_adds_nothing(tmp_path: Path) -> None:
    of = project(tmp_path, "plain")
    listener = ProgressListener(of)
    listener.onQueryProgress(told(event("plain", 2)))
    # Sparks before 3.5 report an idle query as the last micro-batch once more, or as one that ran nothing.
    listener.onQueryProgress(told(event("plain", 2, numInputRows=0)))
    idle = event("plain", 2, batchId=3, numInputRows=0, durationMs={"latestOffset": 2, "triggerExecution": 2})
    for _ in range(5):
        listener.onQueryProgress(told(idle))
        listener.onQueryIdle(SimpleNamespace())
    assert [r["batch_id"] for r in rows(of)] == [2]
    assert len(open_store(of, PROGRESS).operations()) == 2


def test_a_micro_batch_that_runs_again_after_a_restart_is_another_row(tmp_path: Path) -> None:
    of = project(tmp_path, "plain")
    listener = ProgressListener(of)
    listener.record(event("plain", 2))
    listener.record(event("plain", 2, runId=str(uuid.uuid4())))
    listener.flush()
    assert len(rows(of)) == 2


def test_it_appends_when_enough_wait_or_have_waited_long(tmp_path: Path) -> None:
    of = project(tmp_path, "plain")
    listener = ProgressListener(of, every=2)
    listener.record(event("plain", 0))
    assert len(rows(of)) == 0
    listener.record(event("plain", 1))
    assert len(rows(of)) == 2
    patient = ProgressListener(of, seconds=0.0)
    patient.record(event("plain", 2))
    assert len(rows(of)) == 3


def test_nothing_it_meets_reaches_the_stream(tmp_path: Path, caplog: Any) -> None:
    of = project(tmp_path, "plain")
    listener = ProgressListener(of, every=1)
    (tmp_path / "recon").write_text("a file where the ledger's folder should be")
    with caplog.at_level(logging.WARNING, "recon"):
        listener.onQueryProgress(told(event("plain", 0)))
        listener.onQueryProgress(told(event("plain", 1)))
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json="no JSON")))
        listener.onQueryProgress(told({"id": event("plain", 0)["id"], "durationMs": {"addBatch": 1}}))
    said = [r.message for r in caplog.records]
    assert len(said) == 3 and all("further errors of this kind are not logged" in s for s in said)
    assert "LedgerError" in said[0] and "JSONDecodeError" in said[1] and "EvidenceError" in said[2]
    (tmp_path / "recon").unlink()
    listener.onQueryTerminated(SimpleNamespace())
    assert [r["batch_id"] for r in rows(of)] == [0, 1], "what waited is written when it can be"


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    of = project(tmp_path, "plain")
    listener, one_event = ProgressListener(of, every=MOST_WAITING + 7, seconds=3600), event("plain", 1)
    (tmp_path / "recon").write_text("")
    for n in range(MOST_WAITING + 7):
        listener.record({**one_event, "batchId": n})
    (tmp_path / "recon").unlink()
    listener.flush()
    assert [r["batch_id"] for r in rows(of)] == list(range(7, MOST_WAITING + 7))


def test_old_days_go_with_the_first_append_of_a_day(tmp_path: Path) -> None:
    of = project(tmp_path, "plain")
    now = datetime.now(UTC)
    old, new = ((now - timedelta(days=d)).isoformat() for d in (40, 3))
    listener = ProgressListener(of, every=1, keep_days=30)
    listener.record(event("plain", 0, timestamp=old))
    listener.record(event("plain", 1, timestamp=new))
    assert [r["batch_id"] for r in rows(of)] == [1]
    listener.record(event("plain", 2, timestamp=old))
    assert len(rows(of)) == 2, "looked at once a day"


def test_many_small_appends_are_merged(tmp_path: Path) -> None:
    """By the next process, too: a query that is started for every micro-batch appends once in each."""
    of = project(tmp_path, "plain")
    earlier = ProgressListener(of, every=1)
    for n in range(COMPACT_EVERY):
        earlier.record(event("plain", 1, batchId=n))
    assert open_store(of, PROGRESS).small_files() == COMPACT_EVERY
    ProgressListener(of, every=1).record(event("plain", 1, batchId=COMPACT_EVERY))
    assert open_store(of, PROGRESS).small_files() == 1 and len(rows(of)) == COMPACT_EVERY + 1


def test_the_jvm_hands_over_one_json(tmp_path: Path, caplog: Any) -> None:
    of = project(tmp_path, "plain")
    callback: Any = ProgressListener(of)
    callback.onQueryStarted(object())
    callback.onQueryProgress(
        SimpleNamespace(progress=lambda: SimpleNamespace(json=lambda: json.dumps(event("plain", 0))))
    )
    callback.onQueryIdle(object())
    assert len(rows(of)) == 1
    callback.onQueryProgress(SimpleNamespace(progress=lambda: SimpleNamespace(json=lambda: "{}")))
    callback.onQueryProgress(None)
    callback.onQueryTerminated(object())
    assert len(rows(of)) == 1 and [r.message for r in caplog.records if "AttributeError" in r.message]


def test_without_a_jvm_pysparks_own_way_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    monkeypatch.setattr(StreamingQueryListener, "_jlistener", property(lambda self: "pyspark's own"))
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)
    assert ProgressListener(project(tmp_path))._jlistener == "pyspark's own"


def test_a_torn_table_is_told(tmp_path: Path) -> None:
    of = project(tmp_path)
    open_store(of, PROGRESS).append_rows([row_of(event("plain", 0), "p")])
    for file in (tmp_path / "recon" / "progress").rglob("*.parquet"):
        file.write_bytes(b"torn")
    with raises(LedgerError):
        read_progress(open_store(of, PROGRESS), "p", None, None)


def test_a_micro_batch_costs_a_listener_milliseconds(tmp_path: Path) -> None:
    """Appends included: a mean over 100 micro-batches with the offsets of 200 partitions."""
    of = project(tmp_path, "plain")
    listener = ProgressListener(of)
    ends = {"t": {str(p): 10**6 for p in range(200)}}
    source = {"description": "K", "startOffset": ends, "endOffset": ends, "latestOffset": ends, "numInputRows": 9}
    events = [told(event("plain", 1, batchId=n, sources=[source])) for n in range(100)]
    began = time.perf_counter()
    for one in events:
        listener.onQueryProgress(one)
    each = (time.perf_counter() - began) / len(events)
    assert len(rows(of)) == 100 and each < 0.05
