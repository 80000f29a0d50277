"""A lake as a year of 10 s micro-batches leaves it, without running one: ledger, Delta log, checkpoint, broker.

What an audit reads is made to the byte as the real parts make it; what no audit reads (ledger files that compaction
replaced) is not made, and the sink's data files, which are only looked for, are empty.

- The ledger: whole days are appended by recon's own store, a commit a day. The last day's entries are sealed by
  `write.ledger.chain`, its data files written (and merged) by recon's own store, and its 8,640 append and 86 compaction
  commits, each between two claims, written to the log as the hook's housekeeping would, and then shortened by it: the
  last 40 entries are small files, those before are in merged files of about 1,000 entries, the newest first.
- The sink: Spark's commit files of the last day with stamp, statistics and checksum files beside them, and the newest
  checkpoint, in which the earlier days have a file each, as OPTIMIZE leaves them.
- The checkpoint: the last 100 micro-batches.
- Kafka: a real broker with a topic of 200 partitions whose logs are empty and begin at the end offsets, as if
  retention had removed all that was read.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.model.wire.app_ids import MERGE_APP_ID

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from recon.local.kafka import LocalKafka
    from recon.write.ledger.store import DeltalakeStore

BATCHES = 8_640
PARTITIONS = 200
EVERY = timedelta(seconds=10)
OFFSETS = (1_000, 1_500)  # new offsets per topic partition and micro-batch: 25,000 events a second over all
FILES = 4  # data files per commit of the sink
PIPELINE = SINK = "events"
QUERY_ID = "5c1f3a52-90d3-4a6b-9d3c-6f0f6a0f7d11"
RUN_ID = "8f3f2f55-0c0e-4a0e-8d0e-5d9d3c6d2a43"
CHECKPOINT_KEEPS = 100
CHECKPOINT_EVERY = 10  # commits of the sink, Delta's default
COMPACT_EVERY = 100  # appends, as recon.write.ledger does
LOG_KEPT = 2_500  # versions: recon.write.ledger leaves between 2,000 and some 3,100
MERGED = 1_000  # entries of a file that is merged no more while the day grows

_YML = """\
version: 2
name: bench
ledger: _recon
kafka: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - name: events
    checkpoint: checkpoint
    source: {{topics: [{topic}]}}
    data_tests: [offset_continuity, kafka_end_offsets, checkpoint_commits]
    sinks:
      - name: events
        target: table
        data_tests: [delta_history, source_rows]
"""


@dataclass(frozen=True)
class Day:
    """One day of micro-batches in columns: ends[n, p] is where micro-batch n ends in partition p."""

    number: int  # days before it
    start: datetime
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def batch_id(self, n: int) -> int:
        """The batch_id of the day's nth micro-batch."""
        return self.number * BATCHES + n

    def starts(self, n: int) -> npt.NDArray[np.int64]:
        """Start offsets of the nth micro-batch."""
        return self.begins if n == 0 else self.ends[n - 1]


@dataclass
class Lake:
    """A lake in a folder, with one pipeline of one topic."""

    path: Path
    days: int
    topic: str
    topic_id: str
    _live: list[Mapping[str, Any]] = field(default_factory=list, init=False)  # add actions of the sink's data files

    @property
    def ledger(self) -> Path:
        return self.path / "_recon/ledger"

    @property
    def table(self) -> Path:
        return self.path / "table"

    def write_yml(self, bootstrap_servers: str) -> None:
        (self.path / "recon.yml").write_text(_YML.format(bootstrap=bootstrap_servers, topic=self.topic))

    def build(self, last: datetime) -> npt.NDArray[np.int64]:
        """Everything but the broker; `last` is midnight before the last day. Returns the end offsets."""
        import numpy as np

        # The seed makes every lake of a size the same.
        random = np.random.default_rng(20261121)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.write_yml("127.0.0.1:9")
        begins, prev_hash = np.zeros(PARTITIONS, np.int64), ""
        for number in range(self.days):
            widths = random.integers(*OFFSETS, (BATCHES, PARTITIONS))
            ends = begins + np.cumsum(widths, axis=0)
            day = Day(number, last - timedelta(days=self.days - 1 - number), begins, ends)
            texts = self._texts(day)
            rows, stamps = self._sealed(day, texts, prev_hash)
            prev_hash = rows["entry_hash"][-1].as_py()
            if number < self.days - 1:
                self._append_day(rows, number)
            else:
                if self.days > 1:
                    self._sink_log(day, stamps, texts, edge=2)
                    self._audit_before(day)
                _LedgerLog(self.ledger, rows, number).write()
                self._sink_log(day, stamps, texts)
                self._checkpoint(day)
            begins = ends[-1]
        return begins

    # -- the ledger --------------------------------------------------------------------------------

    def _texts(self, day: Day) -> list[str]:
        """recon.model.offsets_text of every micro-batch; one's ends are the next one's starts."""
        partitions = ",".join(map(str, range(PARTITIONS)))
        lists = [",".join(map(str, row)) for row in [day.begins.tolist(), *day.ends.tolist()]]
        named = f"[[0,{json.dumps(self.topic)},{json.dumps(self.topic_id)},[{partitions}],["
        return [f"{named}{a}],[{b}]]]" for a, b in pairwise(lists)]

    def _sealed(self, day: Day, texts: Sequence[str], prev_hash: str) -> tuple[pa.Table, list[str]]:
        """The day's entries as recon's Arrow table, sealed and chained; and the prev_hash of each."""
        import numpy as np
        import pyarrow as pa

        from recon._version import __version__
        from recon.model import EntryHead
        from recon.write.ledger import columns
        from recon.write.ledger.chain import seal

        starts = np.concatenate([day.begins[None, :], day.ends[:-1]])
        written = (day.ends - starts).sum(axis=1).tolist()
        heads = []
        given = self._fingerprints(starts, day.ends)
        for n, text in enumerate(texts):
            at = day.start + n * EVERY
            values: dict[str, Any] = {
                "pipeline": PIPELINE,
                "sink": SINK,
                "sequence": day.batch_id(n) + 1,
                "sink_kind": "delta",
                "target": str(self.table),
                "guarantee": "exactly-once",
                "query_id": QUERY_ID,
                "run_id": RUN_ID,
                "epoch": 0,
                "batch_id": day.batch_id(n),
                "attempt": 1,
                "status": "committed",
                "rows_read": written[n],
                "rows_written": written[n],
                "rows_quarantined": 0,
                "rows_filtered": 0,
                "rows_returned": None,
                "rows_given": written[n],
                "fingerprint_read": None,
                "fingerprint_returned": None,
                "fingerprint_given": given[n],
                "sink_version": day.batch_id(n),
                "started_at": at + timedelta(milliseconds=180 + n % 7),
                "committed_at": at + timedelta(milliseconds=3900 + n % 11, microseconds=n % 1000),
                "spark_version": "4.0.0",
                "recon_version": __version__,
                "checks_fingerprint": "4f0d6b6a58f5a2c1",
                "prev_hash": prev_hash,
            }
            prev_hash = seal(EntryHead(**values, entry_hash=""), text)
            heads.append(EntryHead(**values, entry_hash=prev_hash))
        schema = columns.ENTRIES.schema
        names = [name for name in schema.names if name not in ("offsets", "date")]
        arrays = {name: pa.array([getattr(head, name) for head in heads], schema.field(name).type) for name in names}
        count = BATCHES * PARTITIONS
        spans = {
            "topic": pa.repeat(pa.scalar(self.topic), count),
            "topic_id": pa.repeat(pa.scalar(self.topic_id), count),
            "partition": pa.array(np.tile(np.arange(PARTITIONS, dtype=np.int32), BATCHES)),
            "start_offset": pa.array(starts.ravel()),
            "end_offset": pa.array(day.ends.ravel()),
            "source": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        struct = pa.StructArray.from_arrays(list(spans.values()), fields=list(schema.field("offsets").type.value_type))
        bounds = pa.array(np.arange(0, count + 1, PARTITIONS, dtype=np.int32))
        arrays["offsets"] = pa.ListArray.from_arrays(bounds, struct)
        arrays["date"] = pa.repeat(pa.scalar(day.start.date()), BATCHES)
        table = pa.table({name: arrays[name] for name in schema.names}).cast(schema)
        return table, [head.prev_hash for head in heads]

    def _fingerprints(self, starts: Any, ends: Any) -> list[int]:
        """The fingerprint that the hook counts of each micro-batch's rows."""
        import numpy as np

        from recon.model import RangeTable
        from recon.model.fingerprint import of_entries

        batches, partitions = ends.shape
        table = RangeTable(
            entry=np.repeat(np.arange(batches), partitions),
            topic=np.zeros(batches * partitions, np.int32),
            partition=np.tile(np.arange(partitions, dtype=np.int64), batches),
            start=starts.ravel(),
            end=ends.ravel(),
            topics=[(0, self.topic, self.topic_id)],
        )
        return [int(value) for value in of_entries(table, batches)]

    def _append_day(self, rows: pa.Table, number: int) -> None:
        from recon.write.ledger.ledger import chain_id

        self._open().store.append(rows, chain=chain_id(PIPELINE, SINK), after=number * BATCHES)

    def _open(self) -> Any:
        from recon.project import load
        from recon.write.ledger import open_ledger

        return open_ledger(load(self.path))

    def _audit_before(self, day: Day) -> None:
        """What audits of the days before left: a real one on the eve, its rows kept a day for every day."""
        import pyarrow as pa

        from recon.audits.run import run_audit
        from recon.project import load
        from recon.write.ledger.results import RESULTS, sealed
        from recon.write.ledger.store import Filter

        run = run_audit(load(self.path), from_=day.start - timedelta(minutes=1), to=day.start, no_spark=True)
        store = self._open().results
        rows = store.read(Filter())
        assert {r.check: r.status for r in run.results}["ledger_integrity"] == "pass", run.results
        shutil.rmtree(self.path / "_recon/results")
        store = self._open().results
        for back in range(self.days - 2, -1, -1):
            shifted = []
            for row in rows.to_pylist():
                for name in ("generated_at", "period_from", "period_to", "date"):
                    row[name] -= timedelta(days=back)
                if back:  # the newest is the one that the next audit goes on from
                    row["invocation_id"] = str(uuid.uuid4())
                shifted.append(sealed(row))
            store.append(pa.Table.from_pylist(shifted, schema=RESULTS.schema))

    # -- the sink ----------------------------------------------------------------------------------

    def _sink_log(self, day: Day, prev_hashes: Sequence[str], texts: Sequence[str], edge: int = 0) -> None:
        """Spark's commit files: of the day, or with `edge` stand-ins for the last few of the day before."""
        log = self.table / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        if edge:
            return self._sink_edge(log, day, edge)
        for n in range(BATCHES):
            rows = int((day.ends[n] - day.starts(n)).sum())
            at = int((day.start + n * EVERY).timestamp() * 1000) + 3_700
            lines = list(self._sink_commit(day.batch_id(n), rows, at, prev_hashes[n], texts[n]))
            if day.batch_id(n) == 0:
                lines[1:1] = [_line({"metaData": _METADATA}), _line({"protocol": _PROTOCOL})]
            _spark_file(log, day.batch_id(n), lines, self.topic)
            if (day.batch_id(n) + 1) % CHECKPOINT_EVERY == 0 and n >= BATCHES - CHECKPOINT_EVERY:
                self._sink_checkpoint(day.batch_id(n))
        return None

    def _sink_edge(self, log: Path, day: Day, edge: int) -> None:
        """The last commits before the day, from the ledger's own entries."""
        from recon.model import offsets_text

        for number in range(day.number):
            self._data_file(
                BATCHES * 61 * 250_000, int(day.start.timestamp() * 1000), BATCHES * 250_000, number * BATCHES
            )
        self._sink_checkpoint(day.batch_id(0) - edge - 1)
        for entry in self._open().last(PIPELINE, SINK, edge):
            at = int(entry.committed_at.timestamp() * 1000) - 200
            text = offsets_text(entry.offsets)
            lines = list(self._sink_commit(entry.sink_version, entry.rows_written, at, entry.prev_hash, text))
            _spark_file(log, entry.sink_version, lines, self.topic)

    def _sink_commit(self, batch_id: int, rows: int, at: int, prev_hash: str, text: str) -> Iterator[str]:
        from recon.model import ReconStamp, dump_stamp

        stamp = ReconStamp(
            pipeline=PIPELINE,
            sink=SINK,
            epoch=0,
            batch_id=batch_id,
            query_id=QUERY_ID,
            run_id=RUN_ID,
            prev_hash=prev_hash,
            offsets_text=text,
        )
        sizes = [rows // FILES + (i < rows % FILES) for i in range(FILES)]
        metrics = {"numFiles": str(FILES), "numOutputRows": str(rows), "numOutputBytes": str(rows * 61)}
        yield _line(
            {
                "commitInfo": {
                    "timestamp": at,
                    "userMetadata": dump_stamp(stamp),
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Append", "partitionBy": "[]"},
                    "readVersion": batch_id - 1,
                    "isolationLevel": "Serializable",
                    "isBlindAppend": True,
                    "operationMetrics": metrics,
                    "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.1",
                    "txnId": str(uuid.uuid4()),
                }
            }
        )
        yield _line({"txn": {"appId": f"recon:{PIPELINE}:{SINK}", "version": batch_id + 1, "lastUpdated": at}})
        for size in sizes:
            yield _line({"add": self._data_file(size * 61, at, size, batch_id)})

    def _data_file(self, size: int, at: int, rows: int, batch_id: int) -> Mapping[str, Any]:
        """The add action of an empty file that stands for one of so many rows."""
        name = f"part-{len(self._live) % FILES:05d}-{uuid.uuid4()}-c000.snappy.parquet"
        os.close(os.open(self.table / name, os.O_CREAT | os.O_WRONLY, 0o644))
        add = {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": at,
            "dataChange": True,
            "stats": _stats(rows, batch_id, self.topic),
        }
        self._live.append(add)
        return add

    def _sink_checkpoint(self, version: int) -> None:
        """The sink's newest checkpoint, with every data file so far."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{"protocol": _PROTOCOL}, {"metaData": _METADATA}, *({"add": add} for add in self._live)]
        text, number, names = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
        of_add = {"path": text, "partitionValues": names, "size": number, "modificationTime": number}
        of_add |= {"dataChange": pa.bool_(), "stats": text}
        of_metadata = {"id": text, "schemaString": text, "partitionColumns": pa.list_(text), "configuration": names}
        of_metadata |= {"format": pa.struct({"provider": text, "options": names}), "createdTime": number}
        of_protocol = dict.fromkeys(_PROTOCOL, pa.int32())
        structs = {"add": of_add, "metaData": of_metadata, "protocol": of_protocol}
        schema = pa.schema([(name, pa.struct(list(fields.items()))) for name, fields in structs.items()])
        log = self.table / "_delta_log"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), log / f"{version:020d}.checkpoint.parquet")
        (log / "_last_checkpoint").write_text(_line({"version": version, "size": len(rows)}))

    # -- the checkpoint ----------------------------------------------------------------------------

    def _checkpoint(self, day: Day) -> None:
        folder = self.path / "checkpoint"
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(f'{{"id":"{QUERY_ID}"}}')
        first = {self.topic: {str(p): 0 for p in range(PARTITIONS)}}
        (folder / "sources/0/0").write_bytes(b"\0v1\n" + _line(first).encode())
        meta = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{"spark.sql.shuffle.partitions":"2"}}'
        for n in range(BATCHES - CHECKPOINT_KEEPS, BATCHES):
            planned = int((day.start + n * EVERY).timestamp() * 1000)
            ends = {self.topic: {str(p): int(end) for p, end in enumerate(day.ends[n])}}
            (folder / f"offsets/{day.batch_id(n)}").write_text(f"v1\n{meta % planned}\n{_line(ends)}")
            (folder / f"commits/{day.batch_id(n)}").write_text('v1\n{"nextBatchWatermarkMs":0}')


class _LedgerLog:
    """The last day of the ledger: real data files, and the commits that appends and compactions leave."""

    def __init__(self, table: Path, rows: pa.Table, days_before: int) -> None:
        self.table, self.rows, self.before = table, rows, days_before * BATCHES
        self.day = rows["date"][0].as_py().isoformat()

    def write(self) -> None:
        from deltalake import DeltaTable

        from recon.write.ledger.store import USUAL, short_log

        merged, loose = self._files()
        if not (self.table / "_delta_log").exists():  # the day is the ledger's first
            self._create()
        version = DeltaTable(self.table).version() + 1
        commits = list(self._commits(merged, loose))
        log = self.table / "_delta_log"
        newest = version + len(commits) - 1
        # deltalake leaves one at every 25th version; readers open the newest, and the log begins with the oldest.
        checkpoints = {at // 25 * 25 - 1 for at in (newest - LOG_KEPT, newest)}
        for at, lines in enumerate(commits, version):
            (log / f"{at:020d}.json").write_text("\n".join(lines))
            if at in checkpoints:
                DeltaTable(self.table).create_checkpoint()
        short_log.shorten(self.table, newest, USUAL)

    def _create(self) -> None:
        from recon.write.ledger.columns import ENTRIES
        from recon.write.ledger.store import DeltalakeStore

        # By the store itself, so that description and properties are its own.
        DeltalakeStore(ENTRIES, str(self.table))._create()

    def _files(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The merged files and the small ones after them, written by recon's own store elsewhere and moved here."""
        cut = len(self.rows) // COMPACT_EVERY * COMPACT_EVERY
        scratch = self.table.parent / "scratch"
        merged = [self._merged(scratch, self.rows.slice(n, min(MERGED, cut - n))) for n in range(0, cut, MERGED)]
        store = self._scratch(scratch)
        loose = []
        for n in range(cut, len(self.rows)):
            store.append(self.rows.slice(n, 1))
            loose.append(self._moved(scratch))
        shutil.rmtree(scratch)
        return merged, loose

    def _merged(self, scratch: Path, rows: pa.Table) -> Mapping[str, Any]:
        """A file of rows, the newest first: so delta-rs merges files that were appended one after the other."""
        store, half = self._scratch(scratch), len(rows) // 2
        for part in (rows.slice(0, half), rows.slice(half)):
            store.append(part.take(list(range(len(part)))[::-1]))
        store.compact()
        return self._moved(scratch)

    def _scratch(self, scratch: Path) -> DeltalakeStore:
        from recon.write.ledger.columns import ENTRIES
        from recon.write.ledger.store import DeltalakeStore

        shutil.rmtree(scratch, ignore_errors=True)
        return DeltalakeStore(ENTRIES, str(scratch))

    def _moved(self, scratch: Path) -> Mapping[str, Any]:
        """The add action of the newest file, which is the day's from now on."""
        add = _newest_add(scratch)
        (self.table / f"date={self.day}").mkdir(parents=True, exist_ok=True)
        (scratch / add["path"]).rename(self.table / add["path"])
        return add

    def _commits(self, merged: Sequence[Mapping[str, Any]], loose: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
        """An append per entry, a compaction between two claims after every hundredth."""
        times = [int(at.timestamp() * 1000) for at in self.rows["committed_at"].to_pylist()]
        open_: list[Mapping[str, Any]] = []
        cut = len(self.rows) - len(loose)
        for n, at in enumerate(times):
            if n >= cut:
                add = {**loose[n - cut], "modificationTime": at}
            else:
                path = f"date={self.day}/part-00000-{uuid.uuid4()}-c000.snappy.parquet"
                add = {**loose[0], "path": path, "modificationTime": at}
            open_.append(add)
            yield [
                _line({"commitInfo": {**_WRITE, "timestamp": at}}),
                _line({"add": add}),
                _line({"txn": {"appId": f"chain:{PIPELINE}/{SINK}", "version": self.before + n + 1}}),
            ]
            if (n + 1) % COMPACT_EVERY == 0:
                whole, entries = merged[n // MERGED], n % MERGED + 1
                final = entries == MERGED or n + 1 == cut
                if not final:
                    path = f"date={self.day}/part-00000-{uuid.uuid4()}-c000.zstd.parquet"
                    whole = {**whole, "path": path, "size": whole["size"] * entries // MERGED}
                whole = {**whole, "modificationTime": at}
                yield _claim(at, done=False)
                yield [
                    _line({"commitInfo": {**_OPTIMIZE, "timestamp": at}}),
                    *(_line({"remove": _removed(old, at)}) for old in open_),
                    _line({"add": whole}),
                ]
                yield _claim(at, done=True)
                open_ = [] if final else [whole]


def _claim(at: int, *, done: bool) -> list[str]:
    """The commit of a process that is about to merge small files, or is done with it (write.ledger.store.merging)."""
    version = 2 * (at // 1000) + 1 + done
    return [
        _line(
            {"commitInfo": {**_WRITE, "operationParameters": {"mode": "Append", "partitionBy": "[]"}, "timestamp": at}}
        ),
        _line({"txn": {"appId": MERGE_APP_ID, "version": version}}),
    ]


def _removed(add: Mapping[str, Any], at: int) -> dict[str, Any]:
    return {
        "path": add["path"],
        "dataChange": False,
        "deletionTimestamp": at,
        "extendedFileMetadata": True,
        "partitionValues": add["partitionValues"],
        "size": add["size"],
    }


_WRITE = {
    "operation": "WRITE",
    "operationParameters": {"mode": "Append", "partitionBy": '["date"]'},
    "engineInfo": "delta-rs:py-1.6.6",
    "operationMetrics": {
        "num_added_files": 1,
        "num_removed_files": 0,
        "num_partitions": 0,
        "num_added_rows": 1,
        "execution_time_ms": 2,
        "num_retries": 0,
    },
    "clientVersion": "delta-rs.py-1.6.6",
}
_OPTIMIZE = {
    "operation": "OPTIMIZE",
    "operationParameters": {"predicate": "[]", "targetSize": "104857600"},
    "engineInfo": "delta-rs:py-1.6.6",
    "clientVersion": "delta-rs.py-1.6.6",
    "readVersion": 0,
}
_FIELDS = [
    ("value", "string"),
    ("event_time", "timestamp"),
    ("_source_topic", "string"),
    ("_source_partition", "integer"),
    ("_source_offset", "long"),
    ("_batch_id", "long"),
]
_METADATA = {
    "id": "9f6a3a2e-7d0b-4d3e-8a51-6a7c9f6d1e20",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _FIELDS],
        }
    ),
    "partitionColumns": [],
    "configuration": {},
    "createdTime": 1795000000000,
}
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def _line(action: Any) -> str:
    return json.dumps(action, separators=(",", ":"))


def _newest_add(table: Path) -> dict[str, Any]:
    for commit in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                return dict(action["add"])
    raise ValueError(f"{table} has no data file")


def _stats(rows: int, batch_id: int, topic: str) -> str:
    low = {
        "value": '{"id":"00000000-0000-0000-0000-',
        "event_time": "2026-11-20T00:00:00.000Z",
        "_source_topic": topic,
        "_source_partition": 0,
        "_source_offset": batch_id * 1_250,
        "_batch_id": batch_id,
    }
    high = {**low, "_source_partition": PARTITIONS - 1, "_source_offset": batch_id * 1_250 + 1_250}
    nulls = dict.fromkeys(low, 0)
    return _line({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _spark_file(log: Path, version: int, lines: Sequence[str], topic: str) -> None:
    """A commit file with what Spark leaves beside it on a local disk."""
    name = f"{version:020d}"
    text = "\n".join(lines) + "\n"
    at = os.open(log / f"{name}.json", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(at, text.encode())
    os.close(at)
    checksum = {
        "txnId": "6f1f6b0e-3f51-44f8-b0f4-1d7c0f6a5d11",
        "tableSizeBytes": version * 15_000_000,
        "numFiles": version * FILES,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [{"appId": f"recon:{PIPELINE}:{SINK}", "version": version + 1, "lastUpdated": 0}],
        "domainMetadata": [],
        "metadata": _METADATA,
        "protocol": _PROTOCOL,
    }
    for beside, content in (
        (f"{name}.crc", _line(checksum)),
        (f".{name}.json.crc", "crc\0"),
        (f".{name}.crc.crc", "crc\0"),
    ):
        at = os.open(log / beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.write(at, content.encode())
        os.close(at)


def emptied_topic(broker: LocalKafka, topic: str, ends: Sequence[int]) -> None:
    """Let the (stopped) broker's logs of a topic begin, empty, at these offsets, as retention leaves them."""
    for partition, end in enumerate(ends):
        folder = broker.data_dir / "logs" / f"{topic}-{partition}"
        for file in folder.iterdir():
            if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                file.unlink()
        (folder / f"{end:020d}.log").touch()


@cache
def midnight() -> datetime:
    """The begin of the last whole day, UTC, when the process first asked: a lake is made and measured for one day."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=1)
