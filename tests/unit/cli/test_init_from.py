"""recon init --from: a recon.yml of a query that runs, which audits at once."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from recon.audits.run import run_audit
from recon.project import load
from recon.witness.kafka_admin import UnreachableError
from tests.support.broker import Broker
from tests.support.column_mapping import rename_columns
from tests.support.messages import same_message
from tests.support.native_stream import NativeStream
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

Recon = Callable[..., Ended]
BROKER = ("--kafka", "localhost:1")


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> NativeStream:
    monkeypatch.chdir(tmp_path)
    broker.refuses = UnreachableError("Kafka at localhost:1 cannot be reached")
    place = tmp_path / "lake" / "bronze" / "orders"
    return NativeStream(tmp_path / "checkpoints" / "orders", place).start({"orders": {0: 0}})


def plain(text: str, stream: NativeStream, folder: Path) -> str:
    return text.replace(stream.query_id, "QUERY").replace(str(folder), "FOLDER")


def test_what_is_written_audits_at_once(stream: NativeStream, recon: Recon, tmp_path: Path) -> None:  # noqa: F811
    stream.batch({"orders": {0: 10}})
    stream.batch({"orders": {0: 25}})
    ended = recon("init", "--from", "checkpoints/orders", *BROKER)
    assert ended.code == 0 and "micro-batches 0 to 1" in ended.out
    assert same_message(plain(ended.out.split("Kafka did not answer")[0], stream, tmp_path))
    project = load(tmp_path)
    (pipeline,) = project.pipelines
    assert (pipeline.name, pipeline.write, pipeline.checkpoint) == ("orders", "native", "checkpoints/orders")
    assert pipeline.sinks[0].target == "lake/bronze/orders" and pipeline.rows.filters is False
    assert pipeline.source_names(pipeline.sinks[0]) is not None
    run = run_audit(project.model_copy(update={"kafka": {}}), no_spark=True, exclude=["test_name:kafka_end_offsets"])
    assert run.pipelines[0].answer == "complete", [(r.name, r.message) for r in run.results]


def test_a_function_for_foreach_batch_is_found_by_its_transactions(
    stream: NativeStream,
    recon: Recon,  # noqa: F811
    tmp_path: Path,
) -> None:
    stream.app_id = "writer of 'orders'"
    stream.batch({"orders": {0: 10}})
    stream.batch({"orders": {0: 25}})
    ended = recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER)
    assert ended.code == 0 and "a function of its own writes the table" in ended.out, ended
    project = load(tmp_path)
    (pipeline,) = project.pipelines
    assert pipeline.write == "foreach_batch" and pipeline.sinks[0].observed_app_id == stream.app_id
    assert pipeline.rows.filters is False and pipeline.source_names(pipeline.sinks[0]) is not None
    run = run_audit(project.model_copy(update={"kafka": {}}), no_spark=True, exclude=["test_name:kafka_end_offsets"])
    assert run.pipelines[0].answer == "complete", [(r.name, r.message) for r in run.results]


def test_a_function_that_puts_no_number_on_its_commits_is_found_by_its_rows(
    stream: NativeStream,
    recon: Recon,  # noqa: F811
    tmp_path: Path,
) -> None:
    stream.app_id, stream.numbered = "none", False
    stream.batch({"orders": {0: 10}})
    stream.batch({"orders": {0: 25}})
    ended = recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER)
    assert ended.code == 0 and "a function of its own writes the table" in ended.out, ended
    project = load(tmp_path)
    (pipeline,) = project.pipelines
    assert pipeline.write == "foreach_batch" and pipeline.placed_by_rows and pipeline.rows.filters is False
    run = run_audit(project.model_copy(update={"kafka": {}}), no_spark=True, exclude=["test_name:kafka_end_offsets"])
    assert run.pipelines[0].answer == "complete", [(r.name, r.message) for r in run.results]


@pytest.mark.parametrize("numbered", [True, False])
def test_columns_that_have_other_names_in_the_files(
    stream: NativeStream,
    recon: Recon,  # noqa: F811
    tmp_path: Path,
    numbered: bool,
) -> None:
    """As in a table with column mapping, born with it or with columns renamed later."""
    stream.app_id, stream.numbered = "" if numbered else "none", numbered
    stream.batch({"orders": {0: 10}})
    stream.batch({"orders": {0: 25}})
    rename_columns(stream.table, {"kafka_partition": "source_partition", "kafka_offset": "_offset"})
    ended = recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER)
    assert ended.code == 0, ended
    project = load(tmp_path)
    (pipeline,) = project.pipelines
    names = pipeline.source_names(pipeline.sinks[0])
    assert names is not None and (names.partition, names.offset) == ("source_partition", "_offset")
    run = run_audit(project.model_copy(update={"kafka": {}}), no_spark=True, exclude=["test_name:kafka_end_offsets"])
    assert run.pipelines[0].answer == "complete", [(r.name, r.message) for r in run.results]


@pytest.mark.parametrize("why", ["no longer in the store", "carry other offsets", "no micro-batch"])
def test_why_columns_are_not_taken(stream: NativeStream, recon: Recon, tmp_path: Path, why: str) -> None:  # noqa: F811
    rows = {"carry other offsets": [("orders", 0, 100)], "no micro-batch": []}.get(why)
    stream.batch({"orders": {0: 1}}, rows)
    if rows is None:
        next(stream.table.glob("*.parquet")).unlink()
    assert recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER).code == 0
    (pipeline,) = load(tmp_path).pipelines
    assert pipeline.source_names(pipeline.sinks[0]) is None
    (line,) = [
        line for line in (tmp_path / "recon.yml").read_text().splitlines() if "By their names, columns say" in line
    ]
    assert why in line and same_message(line)


@pytest.mark.parametrize("other", ["second app", ""], ids=["two fit", "none has one"])
def test_a_function_without_an_application_id_of_its_own_is_not_observed(
    stream: NativeStream,
    recon: Recon,  # noqa: F811
    tmp_path: Path,
    other: str,
) -> None:
    """Nor do rows say which micro-batch a commit is of, where they have offsets that it did not read."""
    stream.app_id = "first app"
    stream.batch({"orders": {0: 10}}, [("orders", 0, offset) for offset in range(10, 20)])
    if other:
        stream.app_id = other
        stream.commit(0, [("orders", 0, 13)])
    else:
        file = next((stream.table / "_delta_log").glob("*.json"))
        file.write_text("\n".join(line for line in file.read_text().splitlines() if '"txn"' not in line) + "\n")
    ended = recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER)
    assert ended.code == 0 and load(tmp_path).pipelines[0].write == "recon"
    assert "let recon write it" in ended.out


def test_fewer_rows_than_offsets_declare_nothing(stream: NativeStream, recon: Recon, tmp_path: Path) -> None:  # noqa: F811
    stream.batch({"orders": {0: 10}}, [("orders", 0, 3)])
    assert recon("init", "--from", "checkpoints/orders", "--target", "lake/bronze/orders", *BROKER).code == 0
    assert load(tmp_path).pipelines[0].rows.filters is None
    assert load(tmp_path).pipelines[0].source_names(load(tmp_path).pipelines[0].sinks[0]) is not None


def test_micro_batches_that_read_nothing_declare_nothing(stream: NativeStream, recon: Recon, tmp_path: Path) -> None:  # noqa: F811
    stream.batch({"orders": {0: 0}}, [])
    assert recon("init", "--from", "checkpoints/orders", *BROKER).code == 0
    (pipeline,) = load(tmp_path).pipelines
    assert pipeline.rows.filters is None and pipeline.source_names(pipeline.sinks[0]) is None


def test_columns_whose_values_are_no_offsets_are_not_taken(stream: NativeStream, recon: Recon, tmp_path: Path) -> None:  # noqa: F811
    stream.batch({"orders": {0: 3}}, [("orders", 0, 100), ("orders", 0, 101), ("orders", 0, 102)])
    assert recon("init", "--from", "checkpoints/orders", *BROKER).code == 0
    (pipeline,) = load(tmp_path).pipelines
    assert pipeline.source_names(pipeline.sinks[0]) is None


@pytest.mark.parametrize("place", ["beside", "file sink", "iceberg", "files", "nothing"])
def test_what_is_no_delta_table_is_named(stream: NativeStream, recon: Recon, tmp_path: Path, place: str) -> None:  # noqa: F811
    """The command that the message ends with makes a recon.yml, which needs the sink's kind alone."""
    stream.batch({"orders": {0: 3}}, writes=False)
    folder = tmp_path / "lake" / "out"
    if place in ("beside", "file sink"):
        for name, entry, seconds in (("out", "0", 5), ("of another time", "0", 15), ("further", "7", 5)):
            log = tmp_path / "lake" / name / "_spark_metadata"
            log.mkdir(parents=True)
            (log / entry).write_text("v1\n")
            then = stream.at.timestamp() - seconds  # it was planned ten seconds before
            os.utime(log / entry, (then, then))
    elif place == "iceberg":
        (folder / "metadata").mkdir(parents=True)
        (folder / "metadata" / "v1.metadata.json").write_text("{}")
    elif place == "files":
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_text("PAR1")
    ended = recon("init", "--from", "checkpoints/orders", *(() if place == "beside" else ("--target", "lake/out")))
    assert ended.code == 2 and same_message(plain(ended.err, stream, tmp_path))
    command = shlex.split(ended.err.split("`")[1])
    assert recon(*command[1:]).code == 0
    file = tmp_path / "recon.yml"
    file.write_text(file.read_text().replace("kind: delta", "kind: parquet").replace("delta_history", "sink_commits"))
    (pipeline,) = load(tmp_path).pipelines
    assert (pipeline.source.topics, pipeline.checkpoint) == (("orders",), "checkpoints/orders")


@pytest.mark.parametrize(
    "case",
    [
        "no checkpoint",
        "no micro-batch",
        "other source",
        "no table",
        "not found",
        "other query",
        "both",
        "there already",
    ],
)
def test_bad_input(case: str, stream: NativeStream, recon: Recon, tmp_path: Path) -> None:  # noqa: F811
    arguments = ["--from", "checkpoints/orders", *BROKER]
    if case == "no checkpoint":
        arguments[1] = "checkpoints/nowhere"
    if case != "no micro-batch":
        stream.batch({"orders": {0: 3}}, writes=case != "not found")
    if case == "other source":
        (stream.checkpoint / "offsets/0").write_text('v1\n{}\n{"logOffset":3}')
        (stream.checkpoint / "sources/0/0").unlink()
    if case == "no table":
        arguments += ["--target", "lake/nothing"]
    if case == "other query":
        (stream.checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
        arguments += ["--target", "lake/bronze/orders"]
    if case == "both":
        arguments += ["--topic", "orders"]
    if case == "there already":
        (tmp_path / "recon.yml").write_text("mine")
    ended = recon("init", *arguments)
    assert ended.code == 2 and same_message(plain(ended.err, stream, tmp_path))
    mine = tmp_path / "recon.yml"
    assert mine.read_text() == "mine" if case == "there already" else not mine.exists()
