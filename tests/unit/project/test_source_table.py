"""`source: {delta: …}`: what recon.yml may say of a Delta table that a query reads, and which commands refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recon import read_kafka
from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.model.delta_offsets import BEGINNING, offset_of
from recon.model.offsets import OffsetSpan
from recon.project import Project
from recon.recovery.repair.witnesses import ability_of
from recon.recovery.starting_offsets import starting_offsets
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import entry
from tests.support.messages import raises
from tests.support.recon_yml import loaded

YAML = """\
version: 2
name: lake
ledger: _recon
pipelines:
  - name: orders
    checkpoint: checkpoints/silver
    source: {delta: bronze/orders}
    data_tests: [offset_continuity, {source_table: {arguments: {warn_after: {count: 5, period: minute}}}}]
    sinks:
      - name: orders
        target: silver/orders
"""


def test_the_table_is_named_as_it_stands_there(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    (pipeline,) = project.pipelines
    assert (pipeline.source.names, pipeline.source.beginning) == (("delta:bronze/orders",), BEGINNING)
    assert not pipeline.of_kafka
    assert not pipeline.sinks[0].stamp_source_offsets  # rows of a table carry no offsets of Kafka
    assert pipeline.source_names(pipeline.sinks[0]) is None
    assert [bound.check.test for bound in bind(project)] == ["offset_continuity", "source_table", "ledger_integrity"]


def test_options_say_how_the_query_reads(tmp_path: Path) -> None:
    options = "{delta: bronze/orders, options: {SkipChangeCommits: 'TRUE', startingversion: '7'}}"
    source = loaded(tmp_path, YAML, "{delta: bronze/orders}", options).pipelines[0].source
    assert source.passes == "skip"
    assert source.beginning == offset_of(7, 0)


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ("{}", ""),
        ("{ignoreChanges: 'false', failOnDataLoss: 'true'}", ""),
        ("{ignoreDeletes: 'true'}", "deletes"),
        ("{ignoreDeletes: 'true', ignoreChanges: 'true'}", "changes"),
        ("{ignoreChanges: 'true', skipChangeCommits: 'true'}", "skip"),
        ("{skipChangeCommits: 'true', readChangeFeed: 'true'}", "feed"),
    ],
)
def test_what_the_query_does_with_commits_that_remove_files(tmp_path: Path, options: str, passes: str) -> None:
    with_options = f"{{delta: bronze/orders, options: {options}}}"
    assert loaded(tmp_path, YAML, "{delta: bronze/orders}", with_options).pipelines[0].source.passes == passes


def test_a_table_of_a_catalog_is_looked_up(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML, "bronze/orders}", "main.bronze.orders}")
    assert project.catalog_tables() == ["main.bronze.orders"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{delta: bronze/orders}", "{delta: bronze/orders, topics: [orders]}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, isolation_level: read_committed}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, options: {excludeRegex: '_tmp'}}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, options: {skipChangeCommit: 'true'}}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, options: {startingVersion: latest}}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, options: {ignoreDeletes: 'yes'}}"),
        ("{delta: bronze/orders}", "{delta: bronze/orders, options: {startingTimestamp: '2026-01-01'}}"),
        ("        target: silver/orders", "        target: silver/orders\n        stamp_source_offsets: true"),
        ("        target: silver/orders", "        target: silver/orders\n        trim_replayed_offsets: true"),
        (
            "        target: silver/orders",
            "        target: silver/orders\n        kind: delta_merge\n        keys: [order_id]",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with raises(ConfigError):
        loaded(tmp_path, YAML, old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[offset_continuity,", "[offset_continuity, kafka_end_offsets,"),
        ("[offset_continuity,", "[offset_continuity, lag_trend,"),
        ("{delta: bronze/orders}", "{topics: [orders]}"),
    ],
)
def test_a_check_of_another_kind_of_source(tmp_path: Path, old: str, new: str) -> None:
    with raises(ConfigError):
        bind(loaded(tmp_path, YAML, old, new))


def test_commands_about_kafka(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    spark: Any = None
    with raises(ConfigError):
        read_kafka(spark, project, "orders")
    assert (
        "reads the Delta table bronze/orders"
        in ability_of(project, project.pipelines[0], project.pipelines[0].sinks[0]).refused
    )


def appended(project: Project, *ends: int) -> None:
    start = BEGINNING
    for batch_id, end in enumerate(ends):
        made = entry(batch_id, offsets=(OffsetSpan("delta:id-1", "id-1", 0, start, end),))
        open_ledger(project).append(made)
        start = end


def test_where_a_new_query_begins(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    appended(project, offset_of(3, 0), offset_of(7, 0))
    assert starting_offsets(project, "orders") == '{"startingVersion":7}'


def test_in_the_middle_of_a_version_nothing_begins(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    appended(project, offset_of(3, 2))
    with raises(ConfigError):
        starting_offsets(project, "orders")
