"""The JDBC sinks on real PostgreSQL and MariaDB servers: what is written, what a retry does, what is refused."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recon.base.errors import EvidenceError, SinkError
from recon.model import ReconStamp, RecordCount, TableCount, Unavailable
from recon.model.fingerprint import of_offsets
from recon.project import load
from recon.spark.frames import local_frame
from recon.write.sinks import BatchSink, open_sink
from recon.write.sinks.jdbc.writers import JdbcPlainAppend, JdbcUpsert
from tests.support.mariadb import LocalMariaDB
from tests.support.messages import raises
from tests.support.postgres import LocalPostgres

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEMA = "id long, status string, amount decimal(10,2), at timestamp"
OURS = "_source_topic string, _source_partition int, _source_offset long, _batch_id long"
POINTS = ("stage_created", "staged", "transaction_open", "before_commit", "committed")
TYPES = {
    "postgres": ("bigint primary key", "varchar(10)", "numeric(10,2)", "timestamptz", "text", "int", "bigint"),
    "mariadb": ("bigint primary key", "varchar(10)", "decimal(10,2)", "datetime(6)", "text", "int", "bigint"),
}


class KilledError(BaseException):
    """Stands for the end of the process: nobody catches it, nobody tidies up."""


@dataclass
class Desk:
    """One table of one server, and sinks that write to it."""

    kind: str
    server: Any
    spark: SparkSession
    folder: Path
    table: str

    def create(self, columns: str | None = None) -> None:
        types = TYPES[self.kind]
        names = ("id", "status", "amount", "at", "_source_topic", "_source_partition", "_source_offset")
        plain = ", ".join(f"{name} {of}" for name, of in zip(names, types, strict=True)) + ", _batch_id bigint"
        self.server.sql(f"CREATE TABLE {self.table} ({columns or plain})")

    def sink(self, kind: str = "jdbc_upsert", *, password: str = "DB_PASSWORD", **keys: Any) -> Any:
        lines = {"keys": ["id"]} if kind == "jdbc_upsert" else {}
        lines |= {"retry": {"attempts": 5, "pause": 0.2, "within": 60}, **keys}
        connection = {"url": self.server.url, "user": self.server.user, **lines.pop("connection", {})}
        said = "".join(f"\n        {key}: {value!r}" for key, value in lines.items() if not isinstance(value, bool))
        said += "".join(
            f"\n        {key}: {str(value).lower()}" for key, value in lines.items() if value in (True, False)
        )
        (self.folder / "recon.yml").write_text(
            f"""\
name: jdbc
ledger: ledger
pipelines:
  - name: p
    checkpoint: checkpoint
    sinks:
      - name: s_{self.table}
        kind: {kind}
        target: {keys.get("target", self.table)}
        connection:
          url: {connection["url"]}
          user: {connection["user"]}
          password: "{{{{ env_var('{password}') }}}}"
"""
            + (f"          driver: {connection['driver']}\n" if "driver" in connection else "")
            + "".join(line + "\n" for line in said.splitlines() if line and "target:" not in line)
        )
        project = load(self.folder)
        return open_sink(project, "p", project.pipelines[0].sinks[0])

    def frame(self, rows: Sequence[tuple[Any, ...]], batch: int, first: int = 0) -> DataFrame:
        """Rows of (id, status, amount, at) with growing offsets."""
        whole = [(*row, "orders", 0, first + n, batch) for n, row in enumerate(rows)]
        data = [(i, s, Decimal(a) if a is not None else None, t, *rest) for i, s, a, t, *rest in whole]
        frame = local_frame(self.spark, data, f"{SCHEMA.replace('at timestamp', 'at string')}, {OURS}")
        return frame.withColumn("at", F.col("at").cast("timestamp"))

    def stamp(self, batch: int, first: int = 0, end: int = 10, epoch: int = 0) -> ReconStamp:
        return ReconStamp(
            number=1000 * epoch + batch + 1,
            pipeline="p",
            sink=f"s_{self.table}",
            epoch=epoch,
            batch_id=batch,
            query_id="q",
            run_id=None,
            prev_hash="",
            offsets_text=f'[[0,"orders",null,[0],[{first}],[{end}]]]',
        )

    def rows(self, columns: str = "id, status, _source_offset, _batch_id") -> list[tuple[Any, ...]]:
        return sorted(self.server.sql(f"SELECT {columns} FROM {self.table}"))

    def entries(self) -> list[tuple[Any, ...]]:
        """(epoch, batch_id, rows_given, rows_written) of recon_ledger."""
        if not self.server.sql("SELECT 1 FROM information_schema.tables WHERE table_name = 'recon_ledger'"):
            return []
        wanted = "SELECT epoch, batch_id, rows_given, rows_written FROM recon_ledger"
        return sorted(self.server.sql(f"{wanted} WHERE sink = 's_{self.table}'"))

    def stages(self) -> list[str]:
        found = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'recon\\_stage\\_%'"
        return [name for (name,) in self.server.sql(found)]


@pytest.fixture(params=["postgres", "mariadb"])
def desk(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    server = request.getfixturevalue(request.param)
    monkeypatch.setenv("DB_PASSWORD", server.password)
    monkeypatch.setenv("WRONG_PASSWORD", "nobody-knows-this")
    made = Desk(request.param, server, spark, tmp_path, f"orders_{uuid.uuid4().hex[:8]}")
    yield made
    server.sql(f"DROP TABLE IF EXISTS {made.table}")
    for stage in made.stages():
        server.sql(f"DROP TABLE {stage}")


NOON = "2026-11-21 12:00:00"
FIRST = [(1, "new", "1.50", NOON), (2, "new", "2", NOON), (2, "paid", "2.25", NOON), (3, "new", None, NOON)]


def test_fresh_update_and_replay(desk: Desk) -> None:
    desk.create()
    sink: BatchSink = desk.sink()
    assert sink.log().commits == ()
    sink.write(desk.frame(FIRST, 0), desk.stamp(0))
    landed = sink.confirm(desk.stamp(0))
    assert (landed.version, landed.rows, landed.given) == (None, 3, 4)
    # Of the two rows with key 2 the one with the greater offset stays.
    assert desk.rows() == [(1, "new", 0, 0), (2, "paid", 2, 0), (3, "new", 3, 0)]

    second = desk.frame([(2, "shipped", "9", NOON), (4, "new", "4", NOON)], 1, first=10)
    sink.write(second, desk.stamp(1, 10, 12))
    assert (sink.confirm(desk.stamp(1, 10, 12)).rows, sink.confirm(desk.stamp(1, 10, 12)).given) == (2, 2)
    expected = [(1, "new", 0, 0), (2, "shipped", 10, 1), (3, "new", 3, 0), (4, "new", 11, 1)]
    assert desk.rows() == expected

    # A replay, by a new process: nothing moves, not even where the rows would differ.
    again = desk.sink()
    replayed = again.landed(desk.stamp(1, 10, 12), None)
    assert replayed is not None and (replayed.rows, replayed.given) == (2, 2)
    again.write(desk.frame([(2, "lost", "9", NOON)], 1, first=10), desk.stamp(1, 10, 12))
    assert desk.rows() == expected and desk.entries() == [(0, 0, 4, 3), (0, 1, 2, 2)]
    assert again.landed(desk.stamp(2, 12, 13), None) is None

    # An empty micro-batch leaves its entry.
    again.write(desk.frame([], 2), desk.stamp(2, 12, 12))
    assert (again.confirm(desk.stamp(2, 12, 12)).rows, desk.stages()) == (0, [])

    remembered = again.log()
    assert remembered.recorded and remembered.exists
    assert [(c.stamp.epoch, c.stamp.batch_id, c.rows) for c in remembered.commits] == [(0, 0, 3), (0, 1, 2), (0, 2, 0)]
    assert remembered.commits[1].stamp == replace(desk.stamp(1, 10, 12), given=2)
    middle = remembered.commits[1].at
    assert [c.stamp.batch_id for c in again.log(since=middle).commits] == [2]

    # What Spark reads back, and of one write alone.
    seen = {(r["id"], r["status"], r["_source_offset"]) for r in again.table(desk.spark).collect()}
    assert seen == {(i, s, o) for i, s, o, _ in expected}
    left = again.rows_of(desk.spark, replayed, desk.stamp(1, 10, 12))
    assert sorted(r["id"] for r in left.collect()) == [2, 4]
    assert again.rows_of(desk.spark, replayed, desk.stamp(1, 11, 12)).count() == 1

    # Another table, or another micro-batch, under the same key is a fault and no replay.
    moved = desk.sink(target="elsewhere")
    assert moved.log().commits == ()
    with raises(SinkError) as told:
        moved.write(second, desk.stamp(1, 10, 12))
    assert f" {desk.table} " in str(told.value)
    with raises(SinkError):
        again.write(second, desk.stamp(1, 50, 60))


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_seam(desk: Desk, point: str) -> None:
    desk.create()
    desk.sink().write(desk.frame(FIRST[:2], 0), desk.stamp(0))
    before = desk.rows()
    sink = desk.sink()

    def failpoint(name: str, stamp: ReconStamp) -> None:
        if name == point:
            raise KilledError

    sink.failpoint = failpoint
    batch = desk.frame([(2, "paid", "5", NOON), (7, "new", "7", NOON)], 1, first=10)
    with pytest.raises(KilledError):
        sink.write(batch, desk.stamp(1, 10, 12))
    assert desk.stages(), "the stage stays behind, as after SIGKILL"
    after = [(1, "new", 0, 0), (2, "paid", 10, 1), (7, "new", 11, 1)]
    assert desk.rows() == (after if point == "committed" else before)
    desk.sink().write(batch, desk.stamp(1, 10, 12))
    assert desk.rows() == after
    assert desk.entries() == [(0, 0, 2, 2), (0, 1, 2, 2)] and desk.stages() == []


def test_two_drivers_on_one_micro_batch(desk: Desk) -> None:
    desk.create()
    sinks = [desk.sink("jdbc_append"), desk.sink("jdbc_append")]
    together, failed = threading.Barrier(2), []

    def run(sink: Any) -> None:
        sink.failpoint = lambda point, _: together.wait(30) if point == "staged" else None
        try:
            sink.write(desk.frame([(1, "a", "1", NOON), (2, "b", "2", NOON)], 0), desk.stamp(0))
            failed.extend([] if sink.confirm(desk.stamp(0)).rows == 2 else [sink])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(sink,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert [i for i, *_ in desk.rows()] == [1, 2] and desk.entries() == [(0, 0, 2, 2)] and desk.stages() == []


def test_a_number_is_taken_once(desk: Desk) -> None:
    """Two drivers that have read the same entries write other records, in other epochs, at the same moment."""
    desk.create()
    sinks = [desk.sink("jdbc_append"), desk.sink("jdbc_append")]
    together, failed = threading.Barrier(2), list[BaseException]()

    def run(sink: Any, first: int, epoch: int) -> None:
        sink.failpoint = lambda point, _: together.wait(30) if point == "staged" else None
        mark = replace(desk.stamp(0, first, first + 2, epoch), number=1)
        try:
            sink.write(desk.frame([(first, "a", "1", NOON), (first + 1, "b", "2", NOON)], 0, first), mark)
        except SinkError as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=args) for args in ((sinks[0], 0, 0), (sinks[1], 10, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (error,) = failed
    assert "has write 1 of this sink, micro-batch 0" in str(error)
    assert len(desk.rows()) == 2 and len(desk.entries()) == 1 and desk.stages() == []
    ((epoch, *_),) = desk.entries()
    assert desk.sink("jdbc_append").newest_number("p", f"s_{desk.table}") == 1
    # The same micro-batch, of another query: it is not ours.
    mark = replace(desk.stamp(0, 10 * epoch, 10 * epoch + 2, epoch), number=1, query_id="another")
    with pytest.raises(SinkError, match="of another query than this micro-batch"):
        desk.sink("jdbc_append").write(desk.frame([(7, "c", "1", NOON)], 0), mark)
    # It has read the ledger before the write of that micro-batch.
    with pytest.raises(SinkError, match="which another driver committed after this one had read the ledger"):
        desk.sink("jdbc_append").write(desk.frame([(7, "c", "1", NOON)], 0), replace(mark, number=2, query_id="q"))
    assert len(desk.rows()) == 2


def test_only_newer_rows_and_some_columns(desk: Desk) -> None:
    desk.create()
    keys = {"newer_wins": "at", "update": ["status"]}
    sink = desk.sink(**keys)
    early, late = "2026-11-21 08:00:00", "2026-11-21 20:00:00"
    sink.write(desk.frame([(1, "noon", "1", NOON), (2, "noon", "2", NOON), (3, "noon", "3", NOON)], 0), desk.stamp(0))
    rows = [(1, "late", "9", late), (1, "early", "9", early), (2, "early", "9", early), (3, "same", "9", NOON)]
    sink.write(desk.frame([*rows, (4, "null", "9", None), (5, "x", "5", None)], 1, 10), desk.stamp(1, 10, 16))
    # Key 1: the latest by `at`, though its offset is the smaller one; key 2 is older than what is there.
    assert desk.rows("id, status, amount, _batch_id") == [
        (1, "late", Decimal("1.00"), 1),
        (2, "noon", Decimal("2.00"), 0),
        (3, "same", Decimal("3.00"), 1),
        (4, "null", Decimal("9.00"), 1),
        (5, "x", Decimal("5.00"), 1),
    ]
    landed = sink.confirm(desk.stamp(1, 10, 16))
    assert (landed.given, landed.rows) == (6, 4)
    # NULL is older than any time, and no older than NULL.
    sink.write(desk.frame([(1, "n", "1", None), (4, "n", "1", None)], 2, 16), desk.stamp(2, 16, 18))
    assert [s for i, s, *_ in desk.rows() if i in (1, 4)] == ["late", "n"]
    assert sink.confirm(desk.stamp(2, 16, 18)).rows == 1


def refused(desk: Desk, sink: Any, frame: DataFrame, batch: int = 0) -> str:
    """The one sentence of a refusal that leaves nothing behind."""
    entries, rows = desk.entries(), None
    if desk.server.sql(f"SELECT 1 FROM information_schema.tables WHERE table_name = '{desk.table}'"):
        rows = desk.rows("count(*)")
    with pytest.raises(SinkError) as caught:
        sink.write(frame, desk.stamp(batch))
    said = str(caught.value)
    assert "\n" not in said and desk.server.password not in said and "nobody-knows-this" not in said
    assert "then restart the query: nothing of the micro-batch is there" in said
    assert (desk.entries(), desk.stages()) == (entries, [])
    if rows is not None:
        assert desk.rows("count(*)") == rows
    return said


def test_bad_rows_are_refused(desk: Desk) -> None:
    desk.create()
    good = desk.frame(FIRST, 0)
    nulls = desk.frame([(None, "new", "1", NOON), (1, "new", "1", NOON), (None, "x", "1", NOON)], 0)
    said = refused(desk, desk.sink(), nulls)
    assert "2 of 3 rows have NULL in the key column id" in said and desk.table in said
    assert "the rows have no column id, which is one of the keys" in refused(desk, desk.sink(), good.drop("id"))
    nested = good.withColumn("status", F.struct("id"))
    assert re.search(
        r"column status is struct<id:bigint>, which a \w+ column cannot hold", refused(desk, desk.sink(), nested)
    )
    assert "to_json(tags)" in refused(desk, desk.sink(), good.withColumn("tags", F.array("id")))
    long = good.withColumn("status", F.lit("much too long a status"))
    assert "a value does not fit its column" in refused(desk, desk.sink(), long)
    assert "no column nothing, which newer_wins names" in refused(desk, desk.sink(newer_wins="nothing"), good)
    unordered = good.drop("_source_topic", "_source_partition", "_source_offset")
    assert "1 rows repeat a key and nothing orders them" in refused(desk, desk.sink(), unordered)
    ordered = desk.sink(order_by="status")
    ordered.write(unordered, desk.stamp(0))
    assert [s for i, s, *_ in desk.rows() if i == 2] == ["paid"]
    assert desk.entries() == [(0, 0, 4, 3)]


def test_bad_tables_are_refused(desk: Desk) -> None:
    good = desk.frame(FIRST, 0)
    said = refused(desk, desk.sink(), good)
    assert f"create {desk.table}, or set create_table: true" in said and "there is no such table" in said
    desk.create("id bigint not null, status varchar(10), amount decimal(10,2)")
    said = refused(desk, desk.sink(), good)
    assert "no primary key or unique index on exactly id" in said
    desk.server.sql(re.search(r"CREATE UNIQUE INDEX [^;,]*\)", said)[0])  # type: ignore[index]
    said = refused(desk, desk.sink(), good)
    assert "no column at, _source_topic, _source_partition, _source_offset, _batch_id; add it: ALTER TABLE" in said
    # The statement that it prints does what it says.
    desk.server.sql(re.search(r"ALTER TABLE .*(?=, then restart)", said)[0])  # type: ignore[index]
    desk.sink().write(good, desk.stamp(0))
    assert desk.rows() == [(1, "new", 0, 0), (2, "paid", 2, 0), (3, "new", 3, 0)]


def test_who_may_not_and_what_is_not_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.create()
    good = desk.frame(FIRST, 0)
    sink = desk.sink(connection={"driver": "com.example.NotThere"})
    assert "com.example.NotThere is not on Spark's class path; add " in refused(desk, sink, good)
    said = refused(desk, desk.sink(password="WRONG_PASSWORD"), good)
    assert "correct url, user or password" in said
    reader = f"reader_{desk.table}"
    monkeypatch.setenv("READER_PASSWORD", "reads-only-9")
    if desk.kind == "postgres":
        desk.server.sql(
            f"CREATE ROLE {reader} LOGIN PASSWORD 'reads-only-9'", f"GRANT SELECT ON {desk.table} TO {reader}"
        )
    else:
        name = f"'{reader[:32]}'@'127.0.0.1'"
        reader = reader[:32]
        desk.server.sql(
            f"CREATE USER {name} IDENTIFIED BY 'reads-only-9'", f"GRANT SELECT ON recon.{desk.table} TO {name}"
        )
    said = refused(desk, desk.sink(connection={"user": reader}, password="READER_PASSWORD"), good)
    assert "permission denied" in said and f"grant user {reader}" in said and "reads-only-9" not in said
    # Nobody listens there: bounded, and told with the number of attempts.
    nowhere = re.sub(r":\d+/", ":1/", desk.server.url)
    retry = {"attempts": 2, "pause": 0.1, "within": 5}
    said = refused(desk, desk.sink(connection={"url": nowhere}, retry=retry), good)
    assert "(2 attempts in " in said and "make the database reachable" in said
    # And none of this stands in the way of the micro-batch afterwards.
    desk.sink().write(good, desk.stamp(0))
    assert desk.entries() == [(0, 0, 4, 3)]


def test_the_table_is_made_on_request(desk: Desk) -> None:
    sink = desk.sink(create_table=True)
    sink.write(desk.frame(FIRST, 0), desk.stamp(0))
    desk.sink(create_table=True).write(desk.frame([(3, "paid", "1", NOON)], 1, 10), desk.stamp(1, 10, 11))
    assert desk.rows() == [(1, "new", 0, 0), (2, "paid", 2, 0), (3, "paid", 10, 1)]
    assert desk.rows("amount")[0] == (Decimal("1.00"),)


def test_append_with_and_without_a_guard(desk: Desk) -> None:
    desk.create("id bigint, status text, amount decimal(10,2), _batch_id bigint")
    batch = desk.frame(FIRST, 0).select("id", "status", "amount", "_batch_id")
    for _ in range(2):
        sink = desk.sink("jdbc_append")
        sink.write(batch, desk.stamp(0))
        assert (sink.confirm(desk.stamp(0)).rows, sink.confirm(desk.stamp(0)).given) == (4, None)
    assert desk.rows("count(*)") == [(4,)] and desk.entries() == [(0, 0, 4, 4)]
    assert sink.sink.promise.label == "exactly-once"

    plain = desk.sink("jdbc_append", guard=False)
    assert isinstance(plain, JdbcPlainAppend) and plain.sink.promise.label == "at-least-once"
    plain.write(batch, desk.stamp(1))
    assert plain.confirm(desk.stamp(1)).rows == 4 and not plain.log().recorded
    plain.write(batch, desk.stamp(1))
    assert desk.rows("count(*)") == [(12,)] and len(desk.entries()) == 1
    with raises(SinkError):
        plain.write(batch.withColumn("nothing", F.lit(1)), desk.stamp(2))


def test_the_rows_of_a_table_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, table = "_source_topic, _source_partition, _source_offset", desk.table
    types = [of.removesuffix(" primary key") for of in TYPES[desk.kind]]
    names = ("id", "status", "amount", "at", "_source_topic", "_source_partition", "_source_offset")
    desk.create(", ".join(f"{name} {of}" for name, of in zip(names, types, strict=True)) + ", _batch_id bigint")
    sink, other = desk.sink("jdbc_append"), desk.sink("jdbc_append")
    other.pipeline = "p2"
    sink.write(desk.frame(FIRST, 0), desk.stamp(0))
    me, them = ("p", f"s_{table}"), ("p2", f"s_{table}")
    written, topics = len(FIRST), frozenset(["orders", "payments"])
    assert sink.count(["Orders", "orders"]).repeated == 0
    rows = {"orders": written}
    offsets = of_offsets("orders", 0, range(written))
    assert sink.count(topics) == TableCount(
        rows=rows,
        numbered=rows,
        topics=topics,
        repeated=0,
        written={me: written},
        fingerprint=offsets,
        newest=1,
        new=((0, 0),),
    )
    assert sink.count(topics, known=1).new == () and sink.count(["others"]).fingerprint == 0

    # Topics that differ in case are two, and rows without a source are counted apart.
    desk.server.sql(
        f"INSERT INTO {table} ({columns}) VALUES ('Orders', 0, 0), ('orders', 0, 0), ('orders', 0, 0), "
        "('Orders', 0, 0), ('orders', NULL, 0), (NULL, 0, 0)"
    )
    counted = sink.count(topics)
    assert counted.rows == {"orders": written + 2, "Orders": 2, None: 2}
    assert counted.numbered == {"orders": written, "Orders": 0, None: 0}
    assert counted.fingerprint == offsets
    assert counted.repeated == 2 and counted.others == () and not counted.has_unique_key

    # Another pipeline's writes: those since an instant, or all where rows are repeated.
    other.write(desk.frame(FIRST, 0, 50), replace(desk.stamp(0, 50, 60), pipeline="p2"))
    later = datetime.now(UTC) + timedelta(days=1)
    counted = sink.count(topics, later)
    assert counted.written == {me: written, them: written}
    assert [commit.stamp.pipeline for commit in counted.others] == ["p2"]
    desk.server.sql(f"DELETE FROM {table} WHERE _batch_id IS NULL")
    # The writes of each sink, by number; one that an earlier audit counted is gone.
    assert sink.record_count(1) == RecordCount(newest=1, writes=1, rows=written, kept=(1, written))
    assert sink.record_count(0).kept == (0, 0)
    assert sink.count(topics, later).others == () and sink.count(topics, later).repeated == 0
    assert [commit.rows for commit in sink.count(topics).others] == [written]
    desk.server.sql(f"CREATE UNIQUE INDEX {table}_key ON {table} (id, _source_offset)")
    assert sink.count(topics).has_unique_key and other.count(topics).has_unique_key

    # A table of that name in another schema may be meant where recon_ledger is elsewhere.
    elsewhere = desk.sink("jdbc_append", work_schema="recon" if desk.kind == "mariadb" else "public")
    assert set(elsewhere.count(topics).written) == {me}

    # One that takes too long is given up, and how many rows there are is known all the same.
    slow = {
        "postgres": "SELECT count(pg_sleep(9))",
        "mariadb": "SELECT SUM(SLEEP(3)) FROM recon_ledger",
    }
    with monkeypatch.context() as patched:
        patched.setattr("recon.write.sinks.jdbc.table._COUNTED_WITHIN_S", 1)
        patched.setattr(type(sink.dialect), "count_repeated", lambda *_: slow[desk.kind])
        began = time.monotonic()
        counted = sink.count(topics)
    assert isinstance(counted.repeated, Unavailable) and "within 1 s" in counted.repeated.reason
    assert counted.fingerprint is not None
    # Nor does a fingerprint that is not to be had keep from counting.
    with monkeypatch.context() as patched:
        patched.setattr(type(sink.dialect), "sum_offsets", lambda *_: "SELECT no_such_column")
        counted = sink.count(topics)
    assert isinstance(counted.fingerprint, Unavailable) and counted.repeated == 0
    assert counted.rows == {"orders": 2 * written} and counted.written == {me: written, them: written}
    assert time.monotonic() - began < 6
    assert not sink.log().gone
    desk.server.sql(f"DROP TABLE {table}")
    assert sink.log().gone and len(sink.log().commits) == 1
    with pytest.raises(EvidenceError, match=r"cannot be counted: .*(does not exist|doesn't exist)"):
        desk.sink("jdbc_append", retry={"attempts": 1, "pause": 0.1, "within": 1}).count(topics)


def test_rows_without_a_source_and_rows_that_are_merged(desk: Desk) -> None:
    desk.create("id bigint, status text, amount decimal(10,2), _batch_id bigint")
    batch = desk.frame(FIRST, 0).select("id", "status", "amount", "_batch_id")
    sink = desk.sink("jdbc_append")
    sink.write(batch, desk.stamp(0))
    topics = ["orders"]
    counted = sink.count(topics)
    assert counted.rows == {None: len(FIRST)} and counted.written == {("p", f"s_{desk.table}"): len(FIRST)}
    assert isinstance(counted.repeated, Unavailable) and "it has no columns _source_topic" in counted.repeated.reason
    plain = desk.sink("jdbc_append", guard=False).count(topics)
    assert plain.rows == {None: len(FIRST)} and plain.written is None
    assert sink.record_count(0).writes == 1 and desk.sink("jdbc_append", guard=False).record_count(0) is None
    assert desk.sink().count(topics) is None


@pytest.mark.parametrize("stage_with", ["jdbc", "copy"])
def test_types_of_postgres(
    postgres: LocalPostgres, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage_with: str
) -> None:
    monkeypatch.setenv("DB_PASSWORD", postgres.password)
    desk = Desk("postgres", postgres, spark, tmp_path, f"types_{stage_with}")
    desk.create(
        '"Id" uuid primary key, doc jsonb, instant timestamptz, wall timestamp, day date, n numeric(20,4), d float8, '
        "yes boolean, bytes bytea, word citext_or_text, small smallint, _batch_id bigint".replace(
            "citext_or_text", "text"
        )
    )
    one, two = str(uuid.uuid4()), str(uuid.uuid4())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        frame = spark.sql(
            f"""SELECT '{one}' AS id, '{{"a": [1, "x,y"]}}' AS doc, timestamp'2026-11-21 12:00:00.123456' AS instant,
            timestamp'2026-11-21 12:00:00.123456' AS wall, date'2026-02-28' AS day, 12.5BD AS n, double('NaN') AS d,
            true AS yes, X'00FF22' AS bytes, 'quote " comma , line \\n end' AS word, 7S AS small, 0L AS _batch_id
            UNION ALL SELECT '{two}', NULL, NULL, NULL, NULL, NULL, double('-Infinity'), NULL, NULL, '', NULL, 0L"""
        )
        sink = desk.sink(keys=["Id"], stage_with=stage_with)
        sink.write(frame, desk.stamp(0))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    wanted = (
        "doc->'a'->>1, to_char(instant at time zone 'UTC', 'HH24:MI:SS.US'), to_char(wall, 'HH24:MI:SS.US'), "
        "day::text, n, d::text, yes, bytes, word, small"
    )
    found = postgres.sql(f"SELECT {wanted} FROM {desk.table} WHERE \"Id\" = '{one}'")
    whole = ("x,y", "06:30:00.123456", "12:00:00.123456", "2026-02-28", Decimal("12.5000"), "NaN", True)
    assert found == [(*whole, b"\x00\xff\x22", 'quote " comma , line \n end', 7)]
    found = postgres.sql(f"SELECT {wanted} FROM {desk.table} WHERE \"Id\" = '{two}'")
    assert found == [(None, None, None, None, None, "-Infinity", None, None, "", None)]
    assert desk.stages() == []


def test_types_of_mariadb(
    mariadb: LocalMariaDB, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", mariadb.password)
    desk = Desk("mariadb", mariadb, spark, tmp_path, "types_mariadb")
    desk.create(
        "id varchar(20) character set utf8mb4 collate utf8mb4_general_ci primary key, doc json, "
        "instant timestamp(6) null, wall datetime(6), yes boolean, bytes varbinary(10), "
        "word text character set utf8mb4, serial bigint auto_increment unique, _source_topic text, "
        "_source_partition int, _source_offset bigint, _batch_id bigint"
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        frame = spark.sql(
            """SELECT i AS id, '{"a": 1}' AS doc, timestamp'2026-11-21 12:00:00.123456' AS instant,
            timestamp'2026-11-21 12:00:00.123456' AS wall, true AS yes, X'00FF' AS bytes, '😀 "x"' AS word,
            'orders' AS _source_topic, 0 AS _source_partition, n AS _source_offset, 0L AS _batch_id
            FROM VALUES ('key', 1L), ('KEY', 2L) AS v(i, n)"""
        )
        # The database decides that the two keys are one; the unique serial is none of ours.
        sink = desk.sink()
        sink.write(frame, desk.stamp(0))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (sink.confirm(desk.stamp(0)).given, sink.confirm(desk.stamp(0)).rows) == (2, 1)
    instant = "CAST(CONVERT_TZ(instant, @@time_zone, '+00:00') AS CHAR), CAST(wall AS CHAR)"
    found = mariadb.sql(f"SELECT id, doc, {instant}, yes, bytes, word, _source_offset FROM {desk.table}")
    at = ("2026-11-21 06:30:00.123456", "2026-11-21 12:00:00.123456")
    assert found == [("KEY", '{"a": 1}', *at, 1, b"\x00\xff", '😀 "x"', 2)]

    mariadb.sql(f"ALTER TABLE {desk.table} ADD UNIQUE KEY twice (_source_offset)")
    said = refused(desk, desk.sink(), frame, batch=1)
    assert "besides the keys it has a unique key on _source_offset" in said
    mariadb.sql(f"ALTER TABLE {desk.table} DROP KEY twice, ENGINE=MyISAM")
    assert "its storage engine is MyISAM, which has no transactions" in refused(desk, desk.sink(), frame, batch=1)
    mariadb.sql(f"DROP TABLE {desk.table}")


@pytest.mark.parametrize("server", [LocalPostgres, LocalMariaDB])
def test_the_server_restarts_within_the_transaction(
    server: Callable[[], Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    request.getfixturevalue("postgres" if server is LocalPostgres else "mariadb")  # skips where it cannot run
    with server() as own:
        monkeypatch.setenv("DB_PASSWORD", own.password)
        desk = Desk("postgres" if server is LocalPostgres else "mariadb", own, spark, tmp_path, "orders")
        desk.create()
        for batch, (point, fault) in enumerate(
            [
                ("transaction_open", "kill"),
                ("before_commit", "stop"),
                ("staged", "kill"),
                ("stage_created", "stop"),
            ]
        ):
            sink, seen = desk.sink("jdbc_append"), []

            def failpoint(
                name: str, stamp: ReconStamp, seen: list[str] = seen, point: str = point, fault: str = fault
            ) -> None:
                seen.append(name)
                if name == point and seen.count(name) == 1:
                    getattr(own, fault)()
                    own.start()

            sink.failpoint = failpoint
            sink.write(desk.frame([(10 * batch, "new", "1", NOON)], batch, batch), desk.stamp(batch, batch, batch + 1))
            assert sink.confirm(desk.stamp(batch, batch, batch + 1)).rows == 1
            # PostgreSQL empties unlogged tables after a crash: the stage was counted, and written again.
            again = 2 if fault == "kill" and server is LocalPostgres else 1
            assert seen.count("staged") == again and seen.count("committed") == 1, (point, seen)
        assert [i for i, *_ in desk.rows()] == [0, 10, 20, 30] and len(desk.entries()) == 4 and desk.stages() == []


def test_a_stage_with_too_many_rows_is_written_again(desk: Desk) -> None:
    desk.create()
    sink, seen = desk.sink("jdbc_append"), []

    def failpoint(name: str, stamp: ReconStamp) -> None:
        # What a task leaves that Spark ran twice, and that committed twice.
        if name == "staged":
            seen.append(name)
            (stage,) = desk.stages()
            if len(seen) == 1:
                desk.server.sql(f"INSERT INTO {stage} SELECT * FROM {stage}")

    sink.failpoint = failpoint
    sink.write(desk.frame(FIRST[:2], 0), desk.stamp(0))
    assert len(seen) == 2 and sink.confirm(desk.stamp(0)).rows == 2
    assert [i for i, *_ in desk.rows()] == [1, 2] and desk.entries() == [(0, 0, 2, 2)] and desk.stages() == []


def test_the_answer_of_a_commit_is_lost(desk: Desk) -> None:
    import sqlalchemy.exc

    desk.create()
    sink: JdbcUpsert = desk.sink("jdbc_append")
    seen: list[str] = []

    def failpoint(name: str, stamp: ReconStamp) -> None:
        seen.append(name)
        if name == "committed":
            raise sqlalchemy.exc.OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))

    sink.failpoint = failpoint
    sink.write(desk.frame(FIRST[:2], 0), desk.stamp(0))
    assert sink.confirm(desk.stamp(0)).rows == 2 and seen.count("staged") == 1
    assert [i for i, *_ in desk.rows()] == [1, 2] and desk.entries() == [(0, 0, 2, 2)] and desk.stages() == []


def test_a_deadlock_is_tried_again(
    postgres: LocalPostgres,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", postgres.password)
    desk = Desk("postgres", postgres, spark, tmp_path, f"dead_{uuid.uuid4().hex[:8]}")
    desk.create()
    sink = desk.sink()
    sink.write(desk.frame([(1, "a", "1", NOON), (2, "a", "1", NOON)], 0), desk.stamp(0))
    other = postgres.connect()
    # The other one waits longer before it looks for a deadlock, so that ours is ended.
    other.execute("SET deadlock_timeout = '30s'")
    other.execute("BEGIN")
    other.execute(f"UPDATE {desk.table} SET status = 'b' WHERE id = 2")
    waiting = threading.Thread(target=lambda: other.execute(f"UPDATE {desk.table} SET status = 'b' WHERE id = 1"))

    def failpoint(name: str, stamp: ReconStamp) -> None:
        if name == "transaction_open" and not waiting.ident:
            # Ours holds key 1 as soon as the upsert began; theirs asks for it a moment later.
            threading.Timer(0.5, waiting.start).start()
        if name == "transaction_open" and waiting.ident:
            waiting.join(10)
            other.execute("COMMIT")

    sink.failpoint = failpoint
    sink.write(desk.frame([(1, "c", "1", NOON), (2, "c", "1", NOON)], 1, 2), desk.stamp(1, 2, 4))
    other.close()
    assert [r.message for r in caplog.records if "deadlock detected; trying again" in r.message]
    assert desk.rows() == [(1, "c", 2, 1), (2, "c", 3, 1)] and desk.stages() == []
    postgres.sql(f"DROP TABLE {desk.table}")
