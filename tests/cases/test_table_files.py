"""Fault cases 48, 84, 85 and 87 on real parts: the table's files, its id, and rows that a cleaned log lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from recon import explain
from recon.audits.accept import accept, open_findings
from recon.base.storage import Storage
from recon.model import LiveFiles, RunResult
from recon.witness import delta_log
from tests.cases.lake import Lake, failing, findings, ranges, statuses

MakeLake = Callable[..., Lake]
WrittenEarlier = Callable[[timedelta], AbstractContextManager[None]]


def _ran(lake: Lake, batches: int) -> None:
    """So many micro-batches of ten records, in one run of the query."""
    lake.produce(10 * batches)
    lake.run(per_trigger=10)


def _is_stopped(lake: Lake) -> None:
    """The next start stops before it writes."""
    entries = len(lake.entries())
    lake.produce(10)
    with pytest.raises(StreamingQueryException, match="TableReplacedError"):
        lake.run()
    assert len(lake.entries()) == entries


def _accepts_another_table(lake: Lake) -> None:
    """`on_new_epoch: warn` for one start; later starts know the new table."""
    before, lake.sink = lake.sink, {"on_new_epoch": "warn"}
    lake.run()
    lake.sink = before


def _files(lake: Lake) -> list[Path]:
    return [Path(unquote(uri)) for uri in DeltaTable(str(lake.table)).file_uris()]


def _file_of(lake: Lake, version: int) -> Path:
    """One of the two files of a micro-batch, each with the rows of a partition."""
    file, _ = delta_log.added_files(Storage(str(lake.table)), version)
    return Path(file)


def cleaned_up(lake: Lake) -> None:
    """The log's files behind a new checkpoint are gone, as after `delta.logRetentionDuration`."""
    table = DeltaTable(str(lake.table))
    table.create_checkpoint()
    for file in (lake.table / "_delta_log").glob("*.json"):
        if file.stem.isdecimal() and int(file.stem) < table.version():
            file.unlink()
            for beside in (file.with_suffix(".crc"), file.with_name(f".{file.name}.crc")):
                beside.unlink(missing_ok=True)


def _refuted(run: RunResult, *codes: str) -> bool:
    return run.pipelines[0].answer == "not complete" and failing(run) == set(codes)


@pytest.mark.case(84, "MUTATED", "GAP")
def test_84_a_data_file_is_removed_from_the_store(make_lake: MakeLake) -> None:
    """That of a micro-batch; then one of several, whose statistics name no range: the rows that are left do."""
    lake = make_lake(partitions=2)
    for partition in (0, 1):
        lake.produce(30, partition)
    lake.run(per_trigger=20)
    assert lake.audit(keep=False).pipelines[0].answer == "complete"
    file, away = _file_of(lake, 1), lake.path / "away.parquet"
    file.rename(away)
    run = lake.audit(keep=False)
    assert _refuted(run, "MUTATED", "GAP")
    assert ranges(findings(run, "GAP")) in ({(0, 10, 20)}, {(1, 10, 20)})
    assert statuses(run)["source_rows"] == "fail", "the rows that are left were read"

    away.rename(file)
    lake.sql("OPTIMIZE {table}")
    assert lake.audit().pipelines[0].answer == "complete"
    (file,) = _files(lake)
    file.unlink()
    run = lake.audit()
    assert _refuted(run, "MUTATED", "GAP")
    assert {(0, 0, 30), (1, 0, 30)} <= ranges(findings(run, "GAP"))


@pytest.mark.case(85, "MUTATED", "GAP")
def test_85_rows_are_deleted_and_the_log_is_cleaned_up(make_lake: MakeLake) -> None:
    lake = make_lake()
    _ran(lake, 3)
    lake.sql("DELETE FROM {table} WHERE _source_offset BETWEEN 5 AND 8")
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        lake.sql("VACUUM {table} RETAIN 0 HOURS")
    finally:
        lake.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    _ran(lake, 1)
    cleaned_up(lake)
    run = lake.audit()
    assert _refuted(run, "MUTATED", "GAP")
    assert (0, 5, 9) in ranges(findings(run, "GAP"))
    without_rows = lake.audit(no_spark=True)
    assert without_rows.pipelines[0].answer == "not complete"


@pytest.mark.case(39, "ATTESTED_ONLY")
def test_39_the_log_is_cleaned_up_and_nothing_is_gone(make_lake: MakeLake) -> None:
    """Deletion vectors, OPTIMIZE and a cleaned log: the count is right, and the rows show that none was replaced."""
    lake = make_lake()
    _ran(lake, 2)
    lake.sql("ALTER TABLE {table} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    nothing = ", ".join(f"CAST(NULL AS BIGINT) AS {column}" for column in ("_batch_id", "_source_offset"))
    lake.sql(
        f"INSERT INTO {{table}} BY NAME SELECT * EXCEPT (_batch_id, _source_offset), {nothing} FROM {{table}} LIMIT 4"
    )
    lake.sql("DELETE FROM {table} WHERE _batch_id IS NULL")
    files = delta_log.read(Storage(str(lake.table)), files=True).files
    assert isinstance(files, LiveFiles) and files.rows == 20 and not files.gone
    lake.sql("OPTIMIZE {table}")
    _ran(lake, 1)
    cleaned_up(lake)
    assert lake.audit(no_spark=True).pipelines[0].answer == "could not be proved"
    run = lake.audit()
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert findings(run, "ATTESTED_ONLY")


@pytest.mark.long
@pytest.mark.case(49, "DUPLICATE")
def test_49_a_stranger_adds_records_that_the_query_reads_when_the_log_is_cleaned_up(
    make_lake: MakeLake, written_earlier: WrittenEarlier
) -> None:
    """The audit that saw the commit found each record once; the next one has nothing but what that one remembers.

    It does not look at the ledger's first entry any more, from which on the table's rows could be counted.
    """
    lake = make_lake()
    with written_earlier(timedelta(hours=2)):
        _ran(lake, 1)
    _ran(lake, 1)
    lake.produce(10)
    lake.sql(
        "INSERT INTO {table} BY NAME SELECT * EXCEPT (_batch_id, _source_offset), CAST(NULL AS BIGINT) AS _batch_id, "
        "_source_offset + 20 AS _source_offset FROM {table} WHERE _source_offset BETWEEN 3 AND 5"
    )
    run = lake.audit()
    assert run.pipelines[0].answer == "complete" and findings(run, "UNSTAMPED"), run.pipelines[0].because
    lake.run()
    cleaned_up(lake)
    assert lake.audit(no_spark=True).pipelines[0].answer == "could not be proved"
    for full in (False, True):
        run = lake.audit(full=full)
        assert _refuted(run, "DUPLICATE"), run.pipelines[0].because
        assert ranges(findings(run, "DUPLICATE")) == {(0, 23, 26)}
    lake.sql("DELETE FROM {table} WHERE _batch_id IS NULL")
    assert findings(lake.audit(), "REPAIRED")


def accepted(lake: Lake) -> str:
    """Everything that is open is accepted; gives the next audit's answer."""
    for known in {one.id for one in open_findings(lake.project) if one.accepted is None}:
        accept(lake.project, known, reason="known", by="Ada")
    return lake.audit().pipelines[0].answer


@pytest.mark.long
def test_rows_are_deleted_from_a_table_made_anew_at_a_version_that_the_former_one_had(make_lake: MakeLake) -> None:
    lake = make_lake()
    _ran(lake, 5)
    assert lake.audit().pipelines[0].answer == "complete"
    schema = lake.spark.read.format("delta").load(str(lake.table)).schema
    shutil.rmtree(lake.table)
    lake.spark.createDataFrame([], schema).write.format("delta").save(str(lake.table))
    _is_stopped(lake)
    _accepts_another_table(lake)
    run = lake.audit()
    assert _refuted(run, "MUTATED", "GAP") and ranges(findings(run, "GAP")) == {(0, 0, 50)}
    assert accepted(lake) == "complete"
    _ran(lake, 1)
    assert lake.audit().pipelines[0].answer == "complete", "it is told once"
    lake.sql("DELETE FROM {table} WHERE _source_offset = 55")
    run = lake.audit()
    assert _refuted(run, "MUTATED", "GAP"), run.pipelines[0].because


@pytest.mark.case(87, "MUTATED", "GAP")
def test_87_the_tables_folder_is_removed_and_the_query_restarted(make_lake: MakeLake) -> None:
    lake = make_lake()
    _ran(lake, 3)
    shutil.rmtree(lake.table)
    _is_stopped(lake)
    explained = explain(lake.project, "p")
    assert (explained.next, explained.sinks[0].action) == ("replay", "stop")
    assert "there is no Delta table" in explained.sinks[0].sentence
    _accepts_another_table(lake)
    _ran(lake, 1)
    run = lake.audit()
    assert _refuted(run, "MUTATED", "GAP")
    assert ranges(findings(run, "GAP")) == {(0, 0, 30)}
