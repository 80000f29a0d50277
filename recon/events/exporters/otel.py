"""Spans and metrics for OpenTelemetry: by the process's own providers, or by OTLP over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from recon._version import __version__
from recon.base.errors import ConfigError, ReconError
from recon.base.requirements import how_to_install
from recon.events.exporters.metrics import METRICS, Metric, updates
from recon.events.exporters.reasons import quiet
from recon.events.exporters.spans import Span, span_of
from recon.events.model import Event
from recon.project import Project
from recon.project.telemetry import OpenTelemetry

try:
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExportResult
except ImportError as error:
    raise ConfigError(
        f"otel: needs the OpenTelemetry SDK and its OTLP exporter, which are not installed; {how_to_install('otel')}"
    ) from error

_MOST_SPANS = 512  # of one request


class OpenTelemetryExporter:
    """Makes spans and metrics of events.

    Where the process has set its own providers, these decide what becomes of them. Otherwise recon sends them itself.
    """

    name = "otel"
    kinds = frozenset({"audit.finished", "audit.failed", "micro_batch.*"})
    every = None

    def __init__(self, project: Project) -> None:
        """Sends nothing; providers are looked for at the first event, when the process has set its own."""
        assert project.otel is not None
        self._config = project.otel
        self._mask = project.mask
        self._sends: tuple[Callable[[], None], ...] | None = None

    def take(self, events: Sequence[Event]) -> None:
        """Makes the spans and metrics, and sends them where that is recon's to do.

        Raises:
            ReconError: the endpoint did not take them.
        """
        if not events:
            return
        if self._sends is None:
            self._sends = (*self._open_traces(), *self._open_metrics())
        for event in events:
            span = span_of(event)
            if span is not None:
                _start(self._tracer, span, None)
            for update in updates(event):
                for metric, labels, value in update.samples:
                    self._record[metric](value, labels)
        with quiet(OTLPSpanExporter.__module__, OTLPMetricExporter.__module__):
            errors = [error for send in self._sends if (error := _error_of(send)) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Nothing waits: `take` has sent everything, or the process's own providers do."""

    def _open_traces(self) -> Sequence[Callable[[], None]]:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider):
            self._tracer = provider.get_tracer("recon", __version__)
            return ()
        config, ended = self._config, _Ended()
        exporter = OTLPSpanExporter(
            endpoint=_endpoint(config, "v1/traces"), headers=_headers(config), timeout=config.timeout
        )
        own = TracerProvider(resource=_resource(config), shutdown_on_exit=False)
        own.add_span_processor(ended)
        self._tracer = own.get_tracer("recon", __version__)

        def send() -> None:
            spans = ended.drained()
            for first in range(0, len(spans), _MOST_SPANS):
                result = exporter.export(spans[first : first + _MOST_SPANS])
                self._require("spans", result is SpanExportResult.SUCCESS)

        return (send,)

    def _open_metrics(self) -> Sequence[Callable[[], None]]:
        provider = metrics.get_meter_provider()
        if type(provider).__name__ != "_ProxyMeterProvider":  # as the API's own set_meter_provider looks at it
            self._record = _instruments(provider.get_meter("recon", __version__))
            return ()
        config = self._config
        exporter = OTLPMetricExporter(
            endpoint=_endpoint(config, "v1/metrics"), headers=_headers(config), timeout=config.timeout
        )
        # The SDK's own readers take it from the exporter, too: it knows the standard variable.
        reader = InMemoryMetricReader(preferred_temporality=exporter._preferred_temporality)
        own = MeterProvider([reader], resource=_resource(config), shutdown_on_exit=False)
        self._record = _instruments(own.get_meter("recon", __version__))

        def send() -> None:
            data = reader.get_metrics_data()
            if data is not None:
                self._require("metrics", exporter.export(data) is MetricExportResult.SUCCESS)

        return (send,)

    def _require(self, what: str, sent: bool) -> None:
        if not sent:
            where = self._config.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "of OTEL_* variables"
            raise ReconError(
                f"the OTLP endpoint {self._mask(where)} did not take {what} within {self._config.timeout:g} s; see "
                "whether a collector answers there (OTLP over HTTP, by default at port 4318)"
            )


def _error_of(send: Callable[[], None]) -> ReconError | None:
    """Why nothing was sent: a collector may take metrics and no spans."""
    try:
        send()
    except ReconError as error:
        return error
    return None


class _Ended(SpanProcessor):
    """Keeps the spans that ended until they are sent."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)

    def drained(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


def _start(tracer: trace.Tracer, span: Span, parent: trace.Span | None) -> None:
    """Makes a span that has ended, and its parts."""
    context = trace.set_span_in_context(parent or trace.INVALID_SPAN)
    attributes = {name: value for name, value in span.attributes.items() if value is not None}
    made = tracer.start_span(span.name, context, attributes=attributes, start_time=_nanoseconds(span.start))
    for part in span.parts:
        _start(tracer, part, made)
    if span.error is not None:
        made.set_status(trace.Status(trace.StatusCode.ERROR, span.error))
    made.end(_nanoseconds(span.end))


def _instruments(meter: metrics.Meter) -> Mapping[Metric, Callable[[float, Mapping[str, str]], None]]:
    """What records a value of each metric."""
    return {metric: _recorder(meter, metric) for metric in METRICS}


def _recorder(meter: metrics.Meter, metric: Metric) -> Callable[[float, Mapping[str, str]], None]:
    if metric.kind == "counter":
        return meter.create_counter(metric.dotted, metric.unit, metric.help).add
    return meter.create_gauge(metric.dotted, metric.unit, metric.help).set


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


def _endpoint(config: OpenTelemetry, path: str) -> str | None:
    return None if config.endpoint is None else f"{config.endpoint.rstrip('/')}/{path}"


def _headers(config: OpenTelemetry) -> dict[str, str] | None:
    return config.headers or None


def _resource(config: OpenTelemetry) -> Resource:
    """The process as the variables describe it; its name is recon where nobody gives one."""
    found = Resource.create({"service.version": __version__})
    if config.service_name is not None:
        return found.merge(Resource({SERVICE_NAME: config.service_name}))
    named = not str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return found if named else found.merge(Resource({SERVICE_NAME: "recon"}))
