"""Quarantine without Spark: which checks can quarantine rows, where the table lies, what the command line says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.base.storage import Storage
from recon.checks import registry
from recon.checks.binding import bind_post_batch
from recon.model import ReconStamp, SinkCommit, dump_stamp
from recon.project import CheckConfig, CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, QuarantineConfig
from recon.testing.evidence import Entry
from recon.write.hook import foreach_batch
from recon.write.ledger.quarantined import location, rows_by_batch
from recon.write.ledger.rebuild import entry_of
from recon.write.quarantine.rows import RowChecks, names_rows
from recon.write.quarantine.table import open_quarantine
from tests.support.messages import raises
from tests.support.witnesses import commit
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401 - fixtures


def made(*tests: CheckSpec, ledger: LedgerConfig | None = None, **sink: Any) -> Project:
    out = DeltaSink(name="s", target="lake/s", post_batch=tests, **sink)
    pipe = Pipeline(name="p", checkpoint="c", sinks=(out,))
    return Project(
        name="x", ledger=ledger or LedgerConfig(location="lake/_recon"), pipelines=(pipe,), project_dir=Path("/x")
    )


def spec(test: str, on_failure: Any = "quarantine", **arguments: Any) -> CheckSpec:
    return CheckSpec(test=test, arguments=arguments, config=CheckConfig(on_failure=on_failure))


NOT_NULL = spec("not_null", column_name="a")


def test_row_checks_are_told_from_the_others() -> None:
    lake = made(NOT_NULL, spec("not_null", "stop", column_name="b"), spec("unique", "stop", column_name="a"))
    checks = RowChecks(bind_post_batch(lake, "p", "s"))
    assert [b.check.test for b in checks.bounds] == ["not_null", "not_null"]
    assert [b.check.test for b in checks.others] == ["unique"]
    assert checks.quarantines and checks.stops
    alone = RowChecks(bind_post_batch(made(spec("unique", "stop", column_name="a")), "p", "s"))
    assert not alone.bounds and not alone.quarantines and not alone.stops


@pytest.mark.parametrize(
    "check", [spec("unique", column_name="a"), spec("unique_combination_of_columns", combination_of_columns=("a", "b"))]
)
def test_a_check_without_failing_rows_cannot_quarantine(check: CheckSpec) -> None:
    with raises(ConfigError):
        foreach_batch(made(check), pipeline="p")


@pytest.mark.parametrize("name", sorted(registry.REGISTRY))
def test_every_check_is_one_or_the_other(name: str) -> None:
    """A check that names failing rows must not need more than the row to be judged."""
    found = registry.check_class(name)
    if found.kind == "data":
        fields = {f.name: f.default for f in dataclasses.fields(found)}
        blank = object.__new__(found)
        blank.__dict__.update(fields)
        assert names_rows(blank) in (True, False)  # type: ignore[arg-type]
        assert not (names_rows(blank) and (blank.judges_empty or blank.remembers))  # type: ignore[arg-type, attr-defined]


def test_where_the_table_lies() -> None:
    lake = made(NOT_NULL)
    assert location(lake, "p", lake.pipelines[0].sinks[0]) == "/x/lake/_recon/quarantine/p/s"
    other = made(NOT_NULL, quarantine=QuarantineConfig(target="lake/failing"))
    assert location(other, "p", other.pipelines[0].sinks[0]) == "/x/lake/failing"


def test_a_catalog_ledger_needs_a_target() -> None:
    catalog = LedgerConfig(table="a.b.c", writer="spark")
    with raises(ConfigError):
        foreach_batch(made(NOT_NULL, ledger=catalog), pipeline="p")
    foreach_batch(made(NOT_NULL, ledger=catalog, quarantine=QuarantineConfig(target="lake/q")), pipeline="p")
    foreach_batch(made(spec("not_null", "stop", column_name="a"), ledger=catalog), pipeline="p")


def test_the_sinks_own_table_is_no_place_for_quarantine() -> None:
    lake = made(NOT_NULL, quarantine=QuarantineConfig(target="/x/lake/s/"))
    with raises(ConfigError):
        open_quarantine(lake, lake.pipelines[0], lake.pipelines[0].sinks[0])


@pytest.mark.parametrize("target", ["lake/failing/", "lake/_recon/quarantine/p/s"])
def test_two_sinks_do_not_share_a_quarantine(target: str) -> None:
    first = made(NOT_NULL, quarantine=QuarantineConfig(target="lake/failing" if "failing" in target else None))
    other = DeltaSink(name="t", target="lake/t", post_batch=(NOT_NULL,), quarantine=QuarantineConfig(target=target))
    both = first.model_copy(
        update={"pipelines": (*first.pipelines, Pipeline(name="q", checkpoint="d", sinks=(other,)))}
    )
    with raises(ConfigError):
        open_quarantine(both, both.pipelines[1], other)
    with raises(ConfigError):
        foreach_batch(both, pipeline="p")


def test_quarantined_rows_are_counted_by_pipeline_and_sink(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for version, (sink, rows) in enumerate([("s", 3), ("other", 5)]):
        stamp = ReconStamp(pipeline="p", sink=sink, epoch=0, batch_id=0, query_id="q", run_id=None, prev_hash="",
                           offsets_text="[]")  # fmt: skip
        actions = (
            {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": dump_stamp(stamp)}},
            {"add": {"path": f"f{version}", "dataChange": True, "stats": json.dumps({"numRecords": rows})}},
        )
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    assert rows_by_batch(Storage(str(tmp_path)), "p", "s") == {(0, 0): 3}
    assert rows_by_batch(Storage(str(tmp_path)), "q", "s") == {}


def test_a_restored_entry_says_what_the_quarantine_says() -> None:
    of_delta = commit(3, Entry(1, (0, 10), rows_written=7))
    assert of_delta.stamp is not None
    stamped = SinkCommit(version=3, stamp=of_delta.stamp, rows=7, at=of_delta.timestamp)
    restored = entry_of(stamped, DeltaSink(name="s", target="t"), target="t", quarantined=3)
    assert (restored.status, restored.rows_written, restored.rows_quarantined) == ("rebuilt", 7, 3)


def test_show_where_nothing_was_put_aside(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    empty = recon("quarantine", "show")
    assert (empty.code, empty.out, empty.err.count("\n")) == (0, "", 1)
    assert recon("quarantine", "show", "--output", "json").out == "[]\n"


def test_show_counts_by_reason_and_micro_batch(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    import pyarrow as pa
    from deltalake import write_deltalake

    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    rows = [
        {"value": b"\xff", "_batch_id": 1, "_recon_reasons": ["a", "b"], "_recon_release": None},
        {"value": b"text", "_batch_id": 2, "_recon_reasons": ["a"], "_recon_release": None},
        {"value": b"gone", "_batch_id": 2, "_recon_reasons": ["it's"], "_recon_release": 0},
    ]
    own = {"_recon_epoch": 0, "_recon_quarantined_at": at, "_recon_id": "x"}
    schema = pa.schema(
        [
            ("value", pa.binary()),
            ("_batch_id", pa.int64()),
            ("_recon_reasons", pa.list_(pa.string())),
            ("_recon_release", pa.int64()),
            ("_recon_epoch", pa.int64()),
            ("_recon_quarantined_at", pa.timestamp("us", tz="UTC")),
            ("_recon_id", pa.string()),
        ]
    )
    place = project / "_recon" / "quarantine" / "orders" / "orders"
    write_deltalake(str(place), pa.Table.from_pylist([{**row, **own} for row in rows], schema))
    hidden = recon("quarantine", "show", "--pipeline", "orders").out
    assert '"_batch_id": 2' in hidden and '"value"' not in hidden, "samples: keys, and value is none"
    with (project / "recon.yml").open("a") as file:
        file.write("defaults: {samples: full}\n")
    said = recon("quarantine", "show", "--pipeline", "orders").out
    assert "orders.orders: 2 rows pending, 1 released" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["a", "2", "0"] in lines and ["b", "1", "0"] in lines and ["it's", "0", "1"] in lines
    assert ["0", "2", "1", "1"] in lines and ["0", "1", "1", "0"] in lines
    assert '"value": "ff"' in said and '"value": "text"' in said and "gone" not in said
    (told,) = json.loads(recon("quarantine", "show", "--reason", "it's", "--output", "json").out)
    assert (told["pending"], told["released"], told["samples"]) == (0, 1, [])
    (few,) = json.loads(recon("quarantine", "show", "--limit", "1", "--output", "json").out)
    assert len(few["samples"]) == 1 and [b["batch_id"] for b in few["batches"]] == [2]


def test_mistakes_on_the_command_line(recon: Callable[..., Ended], project: Path) -> None:  # noqa: F811
    wrong = recon("quarantine", "release", "--pipeline", "orders", "--set", "amount")
    assert wrong.code == 2 and "is not of the form" in wrong.err
    assert recon("quarantine", "release", "--pipeline", "nope").code == 2
