"""`source: {files: …}`: what recon.yml may say of a folder that a query reads, and which commands refuse it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon import foreach_batch, read_kafka
from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.model.offsets import OffsetSpan
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
    checkpoint: checkpoints/orders
    source: {files: landing/orders}
    data_tests: [offset_continuity, {source_files: {arguments: {warn_after: {count: 5, period: minute}}}}]
    sinks:
      - name: orders
        target: lake/orders
"""


def test_the_folder_is_named_as_it_stands_there(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    (pipeline,) = project.pipelines
    assert (pipeline.source.names, pipeline.source.beginning) == (("files:landing/orders",), 0)
    assert not pipeline.of_kafka
    assert not pipeline.sinks[0].stamp_source_offsets
    assert pipeline.source_names(pipeline.sinks[0]) is None
    assert [bound.check.test for bound in bind(project)] == ["offset_continuity", "source_files", "ledger_integrity"]
    listing = pipeline.source.listing
    assert (listing.format, listing.max_age, listing.pattern) == ("parquet", timedelta(days=7), None)


@pytest.mark.parametrize(
    ("options", "max_age"),
    [
        ("{MAXFILEAGE: 12h}", timedelta(hours=12)),
        ("{maxFileAge: '60000'}", timedelta(minutes=1)),
        ("{latestFirst: 'true'}", timedelta(days=7)),
        ("{latestFirst: 'true', maxFilesPerTrigger: '10'}", None),
        ("{latestFirst: 'true', maxBytesPerTrigger: '10', maxFileAge: 1d}", None),
    ],
)
def test_how_old_files_may_be(tmp_path: Path, options: str, max_age: timedelta | None) -> None:
    source = loaded(tmp_path, YAML, "orders}", f"orders, format: json, options: {options}}}").pipelines[0].source
    assert (source.listing.format, source.listing.max_age) == ("json", max_age)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{files: landing/orders}", "{files: landing/orders, topics: [orders]}"),
        ("{files: landing/orders}", "{files: landing/orders, delta: bronze/orders}"),
        ("{files: landing/orders}", "{delta: bronze/orders, format: json}"),
        ("{files: landing/orders}", "{files: landing/orders, format: excel}"),
        ("{files: landing/orders}", "{files: landing/*/orders}"),
        ("{files: landing/orders}", "{files: landing/orders, options: {maxFileAge: soon}}"),
        ("{files: landing/orders}", "{files: landing/orders, options: {fileNameOnly: 'yes'}}"),
        ("{files: landing/orders}", "{files: landing/orders, options: {maxFilesAge: 30d}}"),
        ("        target: lake/orders", "        target: lake/orders\n        stamp_source_offsets: true"),
        ("        target: lake/orders", "        target: lake/orders\n        kind: delta_merge\n        keys: [id]"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with raises(ConfigError):
        loaded(tmp_path, YAML, old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[offset_continuity,", "[offset_continuity, kafka_end_offsets,"),
        ("[offset_continuity,", "[offset_continuity, source_table,"),
        ("{files: landing/orders}", "{topics: [orders]}"),
    ],
)
def test_a_check_of_another_kind_of_source(tmp_path: Path, old: str, new: str) -> None:
    with raises(ConfigError):
        bind(loaded(tmp_path, YAML, old, new))


def test_an_archive_is_relative_to_recon_yml(tmp_path: Path) -> None:
    options = "{cleanSource: archive, sourceArchiveDir: archive}"
    project = loaded(tmp_path, YAML, "orders}", f"orders, options: {options}}}")
    listing = project.listing(project.pipelines[0].source)
    assert listing.options["sourcearchivedir"] == str(tmp_path / "archive")


def test_commands_about_kafka(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    spark: Any = None
    with raises(ConfigError):
        read_kafka(spark, project, "orders")
    assert (
        "reads files of landing/orders"
        in ability_of(project, project.pipelines[0], project.pipelines[0].sinks[0]).refused
    )


def test_no_new_query_begins_at_a_position(tmp_path: Path) -> None:
    project = loaded(tmp_path, YAML)
    open_ledger(project).append(entry(0, offsets=(OffsetSpan("files:query-1", "query-1", 0, 0, 3),)))
    with raises(ConfigError):
        starting_offsets(project, "orders")


def test_without_a_project(tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("checkpoint", "target", "ledger")}
    hook = foreach_batch(pipeline="orders", source_files=str(tmp_path / "landing"), **places)
    assert hook.pipeline.source.kind == "a folder of files"
    with raises(ConfigError):
        foreach_batch(pipeline="orders", source_files="landing", source_table="bronze", **places)
