"""Spans and metrics of OpenTelemetry, in memory by the process's own providers, and over OTLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import opentelemetry.metrics._internal as meters
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from recon.base.errors import ReconError
from recon.events.exporters.metrics import HOOK_WRITTEN, OFFSETS, updates
from recon.events.exporters.otel import OpenTelemetryExporter
from tests.support import telemetry as events
from tests.support.http import Receiver, receiver


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class Own:
    """The process's own providers, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
        monkeypatch.setattr(meters, "_METER_PROVIDER", MeterProvider([self.reader]))

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def points(self) -> dict[tuple[str, frozenset[tuple[str, Any]]], float]:
        data = self.reader.get_metrics_data()
        found = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        found[metric.name, frozenset(point.attributes.items())] = point.value
        return found


@pytest.fixture
def own(monkeypatch) -> Own:
    return Own(monkeypatch)


def exporter(folder, otel: str = "") -> OpenTelemetryExporter:
    return OpenTelemetryExporter(events.project_with(folder, f"otel: {otel}\n"))


def test_an_audit_is_a_span_with_one_per_pipeline_and_check(tmp_path, own):
    finished = events.audit_finished()
    exporter(tmp_path).take([finished])
    (audit,) = [span for span in own.spans if span.parent is None]
    assert audit.name == "audit"
    assert audit.start_time == int(finished.started_at.timestamp() * 1_000_000) * 1000
    assert not audit.status.is_ok
    pipelines = {span.name: span for span in own.spans if span.parent and span.parent.span_id == audit.context.span_id}
    assert set(pipelines) == {"audit orders", "audit payments", "audit clicks"}
    assert pipelines["audit orders"].status.is_ok or pipelines["audit orders"].status.is_unset
    assert pipelines["audit payments"].attributes["recon.answer"] == "not complete"
    checks = [s for s in own.spans if s.parent and s.parent.span_id == pipelines["audit payments"].context.span_id]
    timed = [r for r in finished.run.results if r.pipeline == "payments" and r.started_at is not None]
    assert {span.name for span in checks} == {f"check {result.name}" for result in timed}
    (gap,) = [span for span in checks if span.attributes["recon.check"] == "offset_continuity"]
    assert gap.attributes["recon.codes"] == ("GAP", "OVERLAP", "NEW_EPOCH")
    assert not gap.status.is_ok
    assert "recon.column" not in gap.attributes
    assert {span.context.trace_id for span in own.spans} == {audit.context.trace_id}


def test_a_micro_batch_is_a_span(tmp_path, own):
    exporter(tmp_path).take([events.batch_written(4), events.batch_failed(5)])
    written, failed = own.spans
    assert written.attributes["recon.batch_id"] == 4
    assert written.attributes["recon.offsets"] == 20
    assert written.end_time - written.start_time == 2_000_000_000
    assert failed.status.description == "SinkError: the table is gone"
    assert written.context.trace_id != failed.context.trace_id


def test_metrics_are_those_of_prometheus(tmp_path, own):
    told = [events.audit_finished(), events.batch_written(0), events.batch_written(1)]
    exporter(tmp_path).take(told)
    points = own.points()
    where = frozenset({"project": "lake", "pipeline": "orders", "sink": "orders"}.items())
    assert points[HOOK_WRITTEN.dotted, where] == 40
    expected = {
        (sample.metric.dotted, frozenset(sample.labels.items()))
        for event in told
        for update in updates(event)
        for sample in update.samples
    }
    assert set(points) == expected
    of_lost = {"project": "lake", "pipeline": "payments", "sink": "payments", "harm": "lost"}
    assert points[OFFSETS.dotted, frozenset(of_lost.items())] == 4104


def test_a_collector_gets_spans_and_metrics_as_protobuf(tmp_path, collector, monkeypatch):
    monkeypatch.setenv("OTEL_TOKEN", "Bearer s3cret-otel")
    headers = "{authorization: \"{{ env_var('OTEL_TOKEN') }}\"}"
    exporter(tmp_path, f"{{endpoint: '{collector.url}', headers: {headers}}}").take([events.batch_written()])
    bodies = {request.path: request.body for request in collector.requests}
    assert {request.headers["authorization"] for request in collector.requests} == {"Bearer s3cret-otel"}
    spans = ExportTraceServiceRequest.FromString(bodies["/v1/traces"]).resource_spans[0]
    assert spans.scope_spans[0].spans[0].name == "micro-batch orders"
    named = {each.key: each.value.string_value for each in spans.resource.attributes}
    assert named["service.name"] == "recon"
    metrics = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"]).resource_metrics[0].scope_metrics[0].metrics
    (written,) = [metric for metric in metrics if metric.name == HOOK_WRITTEN.dotted]
    (point,) = written.sum.data_points
    assert (point.as_int or point.as_double) == 20
    assert written.sum.is_monotonic


def test_an_audit_of_many_checks_is_sent_in_several_requests(tmp_path, collector):
    from tests.support.sample_run import large_run

    run = large_run(pipelines=12, checks=1_200)
    exporter(tmp_path, f"{{endpoint: '{collector.url}'}}").take([events.audit_finished(run=run)])
    sent = [ExportTraceServiceRequest.FromString(r.body) for r in collector.requests if r.path == "/v1/traces"]
    names = [s.name for one in sent for r in one.resource_spans for scope in r.scope_spans for s in scope.spans]
    timed = sum(result.started_at is not None for result in run.results)
    assert len(sent) > 1
    assert len(names) == timed + len(run.pipelines) + 1


def test_the_standard_variables_are_used_where_recon_yml_says_nothing(tmp_path, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake-audits")
    exporter(tmp_path).take([events.batch_written()])
    assert {request.path for request in collector.requests} == {"/v1/traces", "/v1/metrics"}
    (traces,) = [request.body for request in collector.requests if request.path == "/v1/traces"]
    resource = ExportTraceServiceRequest.FromString(traces).resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "lake-audits"


def test_a_collector_that_takes_no_spans_gets_metrics(tmp_path, collector):
    collector.status = 404
    with pytest.raises(ReconError, match="did not take spans"):
        exporter(tmp_path, f"{{endpoint: '{collector.url}'}}").take([events.batch_written()])
    assert {request.path for request in collector.requests} == {"/v1/traces", "/v1/metrics"}


def test_a_collector_that_is_not_there_is_said_once_and_by_recon_alone(tmp_path, collector, caplog):
    collector.close()
    with pytest.raises(ReconError, match="did not take spans"):
        exporter(tmp_path, f"{{endpoint: '{collector.url}', timeout: 0.2}}").take([events.batch_written()])
    assert not caplog.records


def test_a_collector_that_hangs_is_given_up(tmp_path, collector):
    collector.hangs = True
    with pytest.raises(ReconError, match=r"did not take spans within 0\.2 s"):
        exporter(tmp_path, f"{{endpoint: '{collector.url}', timeout: 0.2}}").take([events.batch_written()])


def test_counters_go_on_from_call_to_call(tmp_path, collector):
    exporting = exporter(tmp_path, f"{{endpoint: '{collector.url}'}}")
    for n in range(3):
        exporting.take([events.batch_written(n)])
    last = [request.body for request in collector.requests if request.path == "/v1/metrics"][-1]
    metrics = ExportMetricsServiceRequest.FromString(last).resource_metrics[0].scope_metrics[0].metrics
    (written,) = [metric for metric in metrics if metric.name == HOOK_WRITTEN.dotted]
    assert [point.as_int or point.as_double for point in written.sum.data_points] == [60]
