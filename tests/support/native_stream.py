"""A query that writes without recon, made by hand and without Spark: its checkpoint and its commits."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

Ends = Mapping[str, Mapping[int, int]]  # topic → partition → offset


@dataclass
class NativeStream:
    """One query; rows carry `kafka_topic`, `kafka_partition` and `kafka_offset`.

    `at` is the time of the next micro-batch, which is planned then and committed a second later. Spark's own sink
    writes it, or with `app_id` a function for foreachBatch, which gives Delta the number or, where it is not
    `numbered`, does not. Where it is not `with_topic`, no column has the topic.
    """

    checkpoint: Path
    table: Path
    at: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(hours=1))
    query_id: str = ""
    batch_id: int = 0
    position: dict[str, dict[int, int]] = field(default_factory=dict)
    app_id: str = ""
    numbered: bool = True
    with_topic: bool = True

    def start(self, starting: Ends) -> NativeStream:
        """A new checkpoint that begins at these offsets."""
        self.query_id, self.batch_id = str(uuid.uuid4()), 0
        self.position = {topic: dict(of) for topic, of in starting.items()}
        for folder in ("offsets", "commits", "sources/0"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.query_id}))
        (self.checkpoint / "sources/0/0").write_bytes(b"\0v1\n" + _text(starting).encode())
        return self

    def batch(
        self,
        ends: Ends,
        rows: Sequence[tuple[str, int, int]] | None = None,
        *,
        commits: bool = True,
        writes: bool = True,
    ) -> int:
        """A micro-batch up to these offsets; by default each offset is a row.

        `commits`: Spark finishes it. `writes`: the table gets its commit.
        """
        number, begin = self.batch_id, self.position
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": int(self.at.timestamp() * 1000), "conf": {}}
        self.position = {topic: {**begin.get(topic, {}), **of} for topic, of in {**begin, **ends}.items()}
        plan = f"v1\n{json.dumps(metadata)}\n{_text(self.position)}"
        (self.checkpoint / "offsets" / str(number)).write_text(plan)
        if rows is None:
            rows = [
                (topic, p, offset)
                for topic, of in self.position.items()
                for p, end in of.items()
                for offset in range(begin.get(topic, {}).get(p, 0), end)
            ]
        if writes:
            self.commit(number, rows)
        if commits:
            (self.checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            self.batch_id += 1
        self.at += timedelta(seconds=10)
        return number

    def commit(self, number: int, rows: Sequence[tuple[str, int, int]], *, mode: Any = "append") -> int:
        """The commit of a micro-batch, as Spark makes it; gives its version."""
        names = ("kafka_topic", "kafka_partition", "kafka_offset")
        types = (pa.string(), pa.int32(), pa.int64())
        columns = {
            name: pa.array([row[i] for row in rows], kind)
            for i, (name, kind) in enumerate(zip(names, types, strict=True))
            if i or self.with_topic
        }
        txn = [Transaction(self.app_id or self.query_id, number)] if self.numbered else None
        write_deltalake(
            str(self.table), pa.table(columns), mode=mode, commit_properties=CommitProperties(app_transactions=txn)
        )
        version = DeltaTable(str(self.table)).version()
        self._as_spark_says_it(version, number)
        return version

    def _as_spark_says_it(self, version: int, number: int) -> None:
        file = self.table / "_delta_log" / f"{version:020d}.json"
        actions = [json.loads(line) for line in file.read_text().splitlines() if line]
        info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
        info["timestamp"] = int((self.at + timedelta(seconds=1)).timestamp() * 1000)
        if not self.app_id:
            info["operation"] = "STREAMING UPDATE"
            info["operationParameters"] = {"outputMode": "Append", "queryId": self.query_id, "epochId": str(number)}
        file.write_text("\n".join(json.dumps(action) for action in actions) + "\n")

    def purge(self, *batch_ids: int) -> None:
        """Removes the plans of micro-batches, as Spark does when there are 100 newer ones."""
        for batch_id in batch_ids:
            (self.checkpoint / "offsets" / str(batch_id)).unlink()
            (self.checkpoint / "commits" / str(batch_id)).unlink(missing_ok=True)


def _text(offsets: Ends) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in of.items()} for topic, of in offsets.items()})
