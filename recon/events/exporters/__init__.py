"""Events for other systems: OpenLineage run events, Prometheus metrics, OpenTelemetry spans and metrics.

Each exporter is a pure function of events, and a consumer that sends what it returns. `datasets` names topics and sinks
as OpenLineage does, `metrics` defines every metric and reads its samples from events, `spans` does so for spans.
`openlineage`, `prometheus` and `otel` send them, each with the library of its extra, which only they import. `reasons`
says in a few words why something could not be sent.
"""
