"""A real stream and its audits, as OpenLineage, Prometheus and OpenTelemetry are told of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from recon.audits.run import run_audit
from recon.project import Project
from recon.project.telemetry import OpenLineage, OpenTelemetry, Prometheus
from recon.write.hook import foreach_batch
from tests.cases.lake import Lake
from tests.support.http import receiver

MakeLake = Callable[..., Lake]


def samples(folder: Path) -> dict[tuple[str, str | None], float]:
    """Values by (metric, the label that is neither project, pipeline nor sink)."""
    found = {}
    for file in folder.glob("*.prom"):
        for family in text_string_to_metric_families(file.read_text()):
            for sample in family.samples:
                more = [value for label, value in sample.labels.items() if label not in ("project", "pipeline", "sink")]
                found[sample.name, more[0] if more else None] = sample.value
    return found


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_stream_and_its_audits_are_reported(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    with receiver() as collector:
        project: Project = lake.project.model_copy(
            update={
                "openlineage": OpenLineage(file="lineage.jsonl"),
                "prometheus": Prometheus(textfile="metrics"),
                "otel": OpenTelemetry(endpoint=collector.url),
            }
        )
        hook = foreach_batch(project, pipeline="p", sink="s")
        lake.run(hook, per_trigger=15)
        assert hook.emitter.close(60) == ()
        size = sum(file.stat().st_size for file in lake.table.glob("*.parquet"))
        complete = run_audit(project, spark=lake.spark)
        reported = samples(lake.path / "metrics")
        lake.sql("DELETE FROM {table} WHERE _source_offset = 7")
        refuted = run_audit(project, spark=lake.spark)
        bodies = [request.body for request in collector.requests if request.path == "/v1/traces"]
    assert [run.pipelines[0].answer for run in (complete, refuted)] == ["complete", "not complete"]
    assert not [note for run in (complete, refuted) for note in run.notes if "did not" in note]

    assert reported["recon_hook_micro_batches_total", None] == 2
    assert reported["recon_hook_rows_written_total", None] == 30
    assert reported["recon_hook_bytes_written_total", None] == size
    overhead, whole = (reported[f"recon_hook_{name}_seconds_total", None] for name in ("overhead", "duration"))
    assert 0 < overhead < whole
    assert reported["recon_pipeline_answer", "complete"] == 1
    assert reported["recon_sink_lag_offsets", lake.topic] == 0
    later = samples(lake.path / "metrics")
    assert later["recon_pipeline_answer", "not complete"] == 1
    assert later["recon_sink_open_offsets", "removed"] == 1
    for name in ("recon_sink_proved_commit_timestamp_seconds", "recon_pipeline_complete_timestamp_seconds"):
        assert later[name, None] == reported[name, None]

    told = lines(lake.path / "lineage.jsonl")
    assert [event["eventType"] for event in told] == ["START", "COMPLETE"] * 4
    first, second = told[1], told[3]
    (table,) = second["outputs"]
    assert (table["namespace"], table["name"]) == ("file", str(lake.table))
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 15
    ends = [event["inputs"][0]["inputFacets"]["recon_offsets"]["ranges"][0]["endOffset"] for event in (first, second)]
    assert ends == [15, 30]
    assert first["inputs"][0]["namespace"] == f"kafka://{lake.kafka.bootstrap_servers}"
    of_sink = {one["name"]: one["inputFacets"] for one in told[7]["inputs"]}[str(lake.table)]
    failed = [one["assertion"] for one in of_sink["dataQualityAssertions"]["assertions"] if not one["success"]]
    assert "source_rows" in failed or "delta_history" in failed
    assert told[7]["run"]["facets"]["recon_answer"]["answer"] == "not complete"

    names = [
        span.name
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert names.count("micro-batch s") == 2
    assert names.count("audit") == names.count("audit p") == 2
