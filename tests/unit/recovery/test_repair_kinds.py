"""What a repair can do for each kind of sink."""

from __future__ import annotations

from typing import Any

import pytest

from recon.model import Code, Finding
from recon.model.proof import OpenFinding
from recon.project.sinks import sink_class, sink_kinds
from recon.project.sinks.repairs import RepairAbility
from recon.recovery.repair.plan import RepairPlan, planned
from recon.testing.evidence import NOW, TOPIC, kafka
from tests.support.witnesses import regular_ledger

NEEDS: dict[str, dict[str, Any]] = {
    "delta_merge": {"keys": ["k"]},
    "iceberg": {"target": "lake.sales.t"},
    "iceberg_merge": {"target": "lake.sales.t", "keys": ["k"]},
    "jdbc_upsert": {"keys": ["k"], "connection": {"url": "jdbc:postgresql://db/shop"}},
    "jdbc_append": {"connection": {"url": "jdbc:postgresql://db/shop"}},
    "custom": {"write": "jobs:write", "declares": "at-least-once"},
}


def of(kind: str, **keys: Any) -> RepairAbility:
    sink = sink_class(kind)(**{"name": "s", "kind": kind, "target": "t", **NEEDS.get(kind, {}), **keys})
    return sink.repair_ability


@pytest.mark.parametrize("kind", sink_kinds())
def test_every_kind_says_what_a_repair_can_do(kind: str) -> None:
    able = of(kind)
    files = ("parquet", "json", "csv")
    assert bool(able.refused) == (kind not in ("delta", "delta_merge", "jdbc_append", "jdbc_upsert", "kafka", *files))
    assert bool(able.only_unread) == (kind in ("delta_merge", "jdbc_upsert", "kafka"))
    assert kind in ("delta", "jdbc_append") or able.refused or able.no_removal
    sql_server = of("jdbc_append", connection={"url": "jdbc:sqlserver://db:1433;databaseName=shop"})
    assert sql_server.no_removal and not sql_server.refused


@pytest.mark.parametrize(
    ("kind", "keys", "why"),
    [
        ("delta_merge", {"delete_when": "op = 'd'", "newer_wins": "at"}, "it has delete_when: a deleted key"),
        ("delta_merge", {"delete_when": "op = 'd'", "scd2": {"effective": "at"}}, "it has delete_when: a deleted key"),
        ("delta_merge", {"insert_when": "s.v > 0", "newer_wins": "at"}, "it has insert_when: what becomes"),
        ("delta_merge", {"update_when": "s.v > t.v", "newer_wins": "at"}, "it has update_when: what becomes"),
        ("delta_merge", {"order_by": "at"}, "it has order_by: it ranks rows within a micro-batch alone"),
        ("delta_merge", {"order_by": "at", "newer_wins": "v"}, ""),
        ("delta_merge", {"order_by": "v", "scd2": {"effective": "at"}}, ""),
        ("jdbc_upsert", {"update": ["v"], "newer_wins": "at"}, "it has update: of the other columns"),
        ("jdbc_upsert", {"order_by": "at"}, "it has order_by: it ranks rows within a micro-batch alone"),
        ("jdbc_upsert", {"order_by": "at", "newer_wins": "v"}, ""),
        ("jdbc_append", {"guard": False}, "it has guard: false"),
        ("parquet", {"mode": "append"}, "it has mode: append"),
        ("kafka", {"mode": "at_least_once"}, "it has mode: at_least_once"),
        ("kafka", {"stamp_source_offsets": False}, "it has stamp_source_offsets: false"),
        ("csv", {}, ""),
    ],
)
def test_where_nothing_orders_records_a_repair_is_refused(kind: str, keys: dict[str, Any], why: str) -> None:
    assert of(kind, **keys).refused[: len(why)] == why
    assert bool(of(kind, **keys).refused) == bool(why)


def plan(check: str, code: Code, span: tuple[int, int], able: RepairAbility) -> RepairPlan:
    """The plan for one open finding about offsets of partition 0, which has micro-batches [0, 100), [100, 200), …"""
    where = {"topic": TOPIC, "partition": 0, "start_offset": span[0], "end_offset": span[1]}
    found = Finding(code=code, message="m", pipeline="p", sink="s", **where)  # type: ignore[arg-type]
    waiting = OpenFinding(finding=found, check=check, first_seen=NOW, last_seen=NOW)
    return planned(regular_ledger(3, 1), 3, [waiting], kafka(0, 500), able=able)


def test_where_rows_replace_others_only_unread_offsets_are_read_again() -> None:
    able = of("delta_merge")
    read = plan("offset_continuity", Code.GAP, (300, 400), able)
    assert [(one.action, one.start_offset, one.end_offset) for one in read.ranges] == [("read", 300, 400)]
    lost = plan("source_rows", Code.GAP, (100, 200), able)
    assert [one.action for one in lost.ranges] == ["unknown"] and not lost.does_something
    assert lost.ranges[0].why.startswith("rows of this sink are replaced by later ones")
    twice = plan("source_rows", Code.DUPLICATE, (100, 200), able)
    assert [one.action for one in twice.ranges] == ["unknown"]
    assert twice.ranges[0].why.startswith("the sink has one row of a key")
    for appended in (of("delta"), of("jdbc_append")):
        assert [one.action for one in plan("source_rows", Code.GAP, (100, 200), appended).ranges] == ["read"]


def test_a_topic_takes_offsets_that_nobody_read_and_gives_no_record_back() -> None:
    able = of("kafka")
    (read,) = plan("offset_continuity", Code.GAP, (300, 400), able).ranges
    assert read.action == "read" and read.why.endswith("; consumers get them behind records of later offsets")
    for check, code, why in [
        ("source_rows", Code.GAP, "retention takes records out of a topic"),
        ("source_rows", Code.DUPLICATE, "a record of a topic cannot be taken back"),
    ]:
        done = plan(check, code, (100, 200), able)
        assert [one.action for one in done.ranges] == ["unknown"] and not done.does_something
        assert done.ranges[0].why.startswith(why)


def test_the_plan_of_a_route_reads_every_offset_without_a_row() -> None:
    able = RepairAbility(reads="; rows of other routes among them are left out")
    (one,) = plan("source_rows", Code.GAP, (100, 200), able).ranges
    assert one.action == "read" and one.why.endswith("; rows of other routes among them are left out")
    (twice,) = plan("source_rows", Code.DUPLICATE, (100, 200), able).ranges
    assert twice.action == "remove" and "other routes" not in twice.why
