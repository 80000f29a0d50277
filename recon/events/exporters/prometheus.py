"""Metrics for Prometheus: files for node_exporter's textfile collector, and a Pushgateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError, ReconError
from recon.base.requirements import how_to_install
from recon.base.storage import write_file
from recon.events.exporters.metrics import Group, Metric, Sample, updates
from recon.events.exporters.reasons import reason
from recon.events.model import Event
from recon.project import Project
from recon.project.telemetry import Pushgateway

try:
    from prometheus_client import CollectorRegistry, exposition, metrics_core
except ImportError as error:
    raise ConfigError(
        f"prometheus: needs prometheus_client, which is not installed; {how_to_install('prometheus')}"
    ) from error

READABLE = 0o644  # node_exporter runs as a user of its own
_JOBS = {"audit": "recon_audit", "proof": "recon_proof", "hook": "recon_hook"}
_Key = tuple[Metric, tuple[tuple[str, str], ...]]


class PrometheusExporter:
    """Writes each group of metrics that an event changes: to a file of its own, and as a group of the Pushgateway."""

    name = "prometheus"
    kinds = frozenset({"audit.finished", "audit.failed", "micro_batch.*"})
    every = None

    def __init__(self, project: Project) -> None:
        """Writes nothing.

        Raises:
            ConfigError: the folder of `textfile` cannot be made.
        """
        assert project.prometheus is not None
        self._mask = project.mask
        self._pushgateway = project.prometheus.pushgateway
        self._folder: Path | None = None
        if project.prometheus.textfile is not None:
            self._folder = project.local_path(project.prometheus.textfile)
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"prometheus: the folder {self._folder} cannot be made ({error.strerror}); give another `textfile`"
                ) from error
        self._values: dict[Group, dict[_Key, float]] = {}
        self._unsent: dict[Group, None] = {}  # changed since the Pushgateway took them

    def take(self, events: Sequence[Event]) -> None:
        """Writes what these events change, and what could not be sent before.

        Raises:
            ReconError: a file could not be written, or the Pushgateway did not take the metrics.
        """
        changed: dict[Group, None] = {}
        for event in events:
            for group, samples in updates(event):
                self._values[group] = merged(group, self._values.get(group, {}), samples)
                changed[group] = None
        if self._folder is not None:
            for group in changed:
                self._write(self._folder / file_name(group), exposition.generate_latest(self._registry(group)))
        if self._pushgateway is not None and changed:
            self._unsent |= changed
            for group in list(self._unsent):
                self._push(self._pushgateway, group)
                del self._unsent[group]

    def close(self) -> None:
        """Nothing waits: `take` has written everything."""

    def _write(self, file: Path, text: bytes) -> None:
        try:
            write_file(file, text, mode=READABLE)
        except OSError as error:
            raise ReconError(f"{file} cannot be written: {error.strerror or error}") from error

    def _registry(self, group: Group) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Values(self._values[group]))
        return registry

    def _push(self, gateway: Pushgateway, group: Group) -> None:
        try:
            exposition.push_to_gateway(
                gateway.url,
                _JOBS[group.told_by],
                self._registry(group),
                dict(group.labels),
                timeout=gateway.timeout,
                handler=_handler(gateway),
            )
        except Exception as error:  # urllib's own, and those of sockets
            said = self._mask(reason(error))
            raise ReconError(
                f"the Pushgateway {self._mask(gateway.url)} did not take the metrics: {said}; see whether it runs there"
            ) from error


def merged(group: Group, values: Mapping[_Key, float], samples: Iterable[Sample]) -> dict[_Key, float]:
    """A group's values after an update."""
    result = {key: value for key, value in values.items() if key[0].kind == "counter" or not group.is_replaced}
    for metric, labels, value in samples:
        key = (metric, tuple(labels.items()))
        result[key] = value + (result.get(key, 0) if metric.kind == "counter" else 0)
    return result


def file_name(group: Group) -> str:
    """The file of a group; names of recon.yml have no `~`."""
    return "~".join([_JOBS[group.told_by], *(value for _, value in group.labels)]) + ".prom"


class _Values:
    """What prometheus_client collects."""

    def __init__(self, values: Mapping[_Key, float]) -> None:
        self._values = values

    def collect(self) -> Iterable[metrics_core.Metric]:
        families: dict[Metric, Any] = {}
        for (metric, labels), value in self._values.items():
            if metric not in families:
                kind = metrics_core.CounterMetricFamily if metric.kind == "counter" else metrics_core.GaugeMetricFamily
                families[metric] = kind(metric.name, metric.help, labels=metric.labels)
            families[metric].add_metric([dict(labels)[label] for label in metric.labels], value)
        return families.values()


def _handler(gateway: Pushgateway) -> Callable[..., Callable[[], None]]:
    def handle(
        url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
    ) -> Callable[[], None]:
        return exposition.basic_auth_handler(url, method, timeout, headers, data, gateway.user, gateway.password)

    return handle
