"""The consumers that recon.yml asks for. Each is imported only where it is asked for."""

from __future__ import annotations

from recon.events.consumer import Consumer
from recon.project import Project


def consumers_of(project: Project) -> list[Consumer]:
    """The consumers of a project. Making one starts no thread and reaches no other system.

    Raises:
        ConfigError: one needs an extra that is not installed, or a setting of it cannot be used.
    """
    consumers: list[Consumer] = []
    if project.openlineage is not None:
        from recon.events.exporters.openlineage import OpenLineageExporter

        consumers.append(OpenLineageExporter(project))
    if project.prometheus is not None:
        from recon.events.exporters.prometheus import PrometheusExporter

        consumers.append(PrometheusExporter(project))
    if project.otel is not None:
        from recon.events.exporters.otel import OpenTelemetryExporter

        consumers.append(OpenTelemetryExporter(project))
    if project.alerts.channels:
        from recon.events.alerts import ChannelAlerts

        consumers += [ChannelAlerts(project, channel) for channel in project.alerts.channels]
    return consumers
