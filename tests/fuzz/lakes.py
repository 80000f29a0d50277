"""A world of the truth machine whose checkpoint and sink are files on a disk, read by recon's own readers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from recon.audits import summary
from recon.audits.collect import collect
from recon.audits.options import Options
from recon.audits.run import facts_of
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.audits.store import append_proof
from recon.base.storage import Storage
from recon.checks.binding import bind
from recon.checks.engine import runner
from recon.model import (
    Answer,
    CheckpointBatch,
    CheckpointWitness,
    CommitRows,
    RunResult,
    SinkLog,
    TableCommit,
    TableLog,
    Unavailable,
)
from recon.model.wire.manifests import DataFile, Manifest, dump_manifest, manifest_path
from recon.model.wire.stamp import dump_stamp
from recon.project import CheckSpec, LedgerConfig, Pipeline, Project, Sink, Source
from recon.project.sinks.files import FileSink
from recon.witness import checkpoint, delta_log, manifests
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.results import hash_of, rows_of
from tests.truth.judge import WorldSources, project
from tests.truth.world import PIPELINE, SINK, TOPIC, Row, World


class Lake(WorldSources):
    """The witnesses of a world: checkpoint and sink from files, all else from memory."""

    def __init__(self, world: World, folder: Path, *, files: bool = False) -> None:
        super().__init__(world)
        if files:
            of = _of_files()
            Sources.__init__(self, of, of.pipelines[0], AuditSession(of, no_spark=True, spark=None))
        object.__setattr__(self, "folder", folder)
        write_checkpoint(world, folder / "cp")
        write_manifests(world, folder / "orders") if files else write_log(world, folder / "orders" / "_delta_log")

    folder: Path
    rows_read: bool = False  # whether a judge looked at them

    @override
    def checkpoint(self) -> CheckpointWitness:
        return checkpoint.read(Storage(str(self.folder / "cp")))

    @override
    def history(self, sink: Sink, from_version: int | None, *, files: bool = False) -> TableLog:
        return delta_log.read(Storage(str(self.folder / "orders")), from_version=from_version, files=files)

    @override
    def commit_rows(self, sink: Sink, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        """The data files are empty, so that the sink's rows are read where counts do not say all."""
        return dict.fromkeys(versions, Unavailable("commit_rows", "data files are no longer in the store"))

    @override
    def live_rows(self, sink: Sink) -> Sequence[Row]:
        """The rows of the files that the log names."""
        object.__setattr__(self, "rows_read", True)
        rows = super().live_rows(sink)
        if not sink.is_delta:
            return rows
        commits = self.history(sink, None).commits
        return [row for row in rows if row.version in commits and commits[row.version].rows_added != 0]

    @override
    def sink_log(self, sink: Sink, since: datetime | None, topics: Collection[str], known: object = None) -> SinkLog:
        return manifests.log(Storage(str(self.folder / "orders")), since)

    def answer(self, ledger: Ledger | None = None) -> Answer:
        """What an audit says of it; a report is made of it, too."""
        evidence_of = self if ledger is None else _WithLedger(self, ledger)
        bounds = [bound for bound in bind(self.project) if bound.kind == "evidence"]
        now = self.world.now
        evidence = collect(evidence_of, bounds, Options(), now)
        results = list(runner.run_evidence(bounds, evidence.seen_by, lambda: now))
        return facts_of(self.project, self.pipeline, evidence, results).answer


class _WithLedger(Lake):
    """The same with another ledger."""

    def __init__(self, lake: Lake, ledger: Ledger) -> None:
        vars(self).update(vars(lake))
        object.__setattr__(self, "replaced", ledger)

    replaced: Ledger

    @override
    def ledger(self) -> Ledger:
        return self.replaced


def _of_files() -> Project:
    names = ("ledger_integrity", "sink_commits", "source_rows")
    sink = FileSink(name=SINK, kind="parquet", target="orders", data_tests=tuple(CheckSpec(test=n) for n in names))
    pipeline = replace_sinks(project("read_committed").pipelines[0], sink)
    return Project(name="truth", ledger=LedgerConfig(location="_recon"), pipelines=(pipeline,), project_dir=Path())


def replace_sinks(pipeline: Pipeline, sink: Sink) -> Pipeline:
    return Pipeline(
        name=PIPELINE,
        checkpoint="cp",
        source=Source(topics=(TOPIC,), isolation_level="read_committed"),
        data_tests=pipeline.data_tests,
        sinks=(sink,),
    )


def remembered(world: World, sources: Sources) -> RunResult:
    """An audit of the world, which its results and its proof remember."""
    bounds = [bound for bound in bind(sources.project) if bound.kind == "evidence"]
    evidence = collect(sources, bounds, Options(), world.now)
    results = tuple(runner.run_evidence(bounds, evidence.seen_by, lambda: world.now))
    run = RunResult(
        invocation_id="run-1",
        project="truth",
        recon_version="0",
        generated_at=world.now,
        period_from=None,
        period_to=world.now,
        elapsed_time=0.0,
        results=results,
        pipelines=(summary.pipeline_facts(sources.project, sources.pipeline, evidence.witnesses, results),),
    )
    rows = rows_of(run)
    world.ledger.results.append_rows(rows)
    append_proof(world.ledger.proofs, SINK, evidence.witnesses, results, run, hash_of(rows))
    return run


def write_checkpoint(world: World, folder: Path) -> None:
    """The files that Spark would have written of the world's query."""
    _put(folder / "metadata", json.dumps({"id": world.query.query_id}))
    first: CheckpointBatch = world.query.planned[0]
    _put(folder / "sources" / "0" / "0", "\0v1\n" + _offsets(first, "start_offset"))
    for batch in world.query.planned:
        assert batch.planned_at is not None
        meta = {"batchWatermarkMs": 0, "batchTimestampMs": int(batch.planned_at.timestamp() * 1000), "conf": {}}
        _put(folder / "offsets" / str(batch.batch_id), f"v1\n{_text(meta)}\n{_offsets(batch, 'end_offset')}")
        if batch.committed:
            _put(folder / "commits" / str(batch.batch_id), 'v1\n{"nextBatchWatermarkMs":0}')


def _offsets(batch: CheckpointBatch, which: str) -> str:
    topics: dict[str, dict[str, int]] = {}
    for span in batch.ranges:
        topics.setdefault(span.topic, {})[str(span.partition)] = getattr(span, which)
    return _text(topics)


def write_log(world: World, folder: Path) -> None:
    """The commit files of the world's table, and its data files, which are empty."""
    for version, commit in world.commits.items():
        if commit.rows_added:
            _put(folder.parent / f"part-{version}.parquet", "")
        _put(folder / f"{version:020d}.json", "\n".join(map(_text, _actions(commit))) + "\n")


def _actions(commit: TableCommit) -> Sequence[Mapping[str, Any]]:
    millis = int(commit.timestamp.timestamp() * 1000)
    info: dict[str, Any] = {
        "timestamp": millis,
        "operation": commit.operation,
        "operationParameters": dict(commit.operation_parameters),
        "operationMetrics": dict(commit.operation_metrics),
    }
    if commit.stamp is not None:
        info["userMetadata"] = dump_stamp(commit.stamp)
    file = {"path": f"part-{commit.version}.parquet", "partitionValues": {}, "dataChange": True}
    listed: list[Mapping[str, Any]] = [{"commitInfo": info}]
    listed += [{"txn": {"appId": app, "version": version}} for app, version in commit.txn.items()]
    if commit.rows_added:
        stats = _text({"numRecords": commit.rows_added})
        listed.append({"add": {**file, "size": 9, "modificationTime": millis, "stats": stats}})
    if commit.rows_removed:
        stats = _text({"numRecords": commit.rows_removed})
        listed.append({"remove": {**file, "path": "part-0.parquet", "deletionTimestamp": millis, "stats": stats}})
    return listed


def write_manifests(world: World, target: Path) -> None:
    """The manifests of the world's micro-batches, as a file sink would have written them."""
    for commit in world.commits.values():
        if commit.stamp is None:
            continue
        file = DataFile("part-0.parquet", 9, commit.rows_added)
        manifest = Manifest(
            stamp=commit.stamp, attempt="a1", at=commit.timestamp, rows=commit.rows_added, layout="l", files=(file,)
        )
        _put(target / manifest_path(commit.stamp.epoch, commit.stamp.batch_id), dump_manifest(manifest))


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
