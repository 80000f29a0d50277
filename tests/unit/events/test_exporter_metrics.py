"""Metrics as events say them, and as Prometheus reads them from files and from a Pushgateway."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recon.base.errors import ConfigError, ReconError
from recon.events.exporters import metrics
from recon.events.exporters.metrics import METRICS, Metric, updates
from recon.events.exporters.prometheus import PrometheusExporter
from recon.model import RunResult
from tests.support import telemetry as events
from tests.support.http import Receiver, receiver
from tests.support.ledger_entries import AT
from tests.support.sample_run import NOW


@pytest.fixture
def gateway() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


def exporter(folder: Path, **prometheus: str) -> PrometheusExporter:
    keys = ", ".join(f"{key}: {value}" for key, value in prometheus.items())
    return PrometheusExporter(events.project_with(folder, f"prometheus: {{{keys}}}\n"))


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_files(folder: Path) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for file in sorted(folder.glob("*.prom")):
        samples = parsed(file.read_text(encoding="utf-8"))
        assert not found.keys() & samples.keys(), "node_exporter refuses a sample that is in two files"
        found |= samples
    return found


def value_of(samples: dict, metric: Metric, **labels: str) -> float | None:
    return samples.get((metric.name, frozenset({"project": "lake", **labels}.items())))


def test_an_audit_is_a_gauge_for_each_pipeline_and_sink(tmp_path):
    exporter(tmp_path, textfile="metrics").take([events.audit_finished()])
    found = of_files(tmp_path / "metrics")
    assert value_of(found, metrics.AUDIT_SUCCESS) == 1
    assert value_of(found, metrics.AUDITED, pipeline="orders") == NOW.timestamp()
    answers = {"orders": "complete", "payments": "not complete", "clicks": "could not be proved"}
    for pipeline, answer in answers.items():
        for each in answers.values():
            assert value_of(found, metrics.ANSWER, pipeline=pipeline, answer=each) == int(each == answer)
    payments = {"pipeline": "payments", "sink": "payments"}
    assert value_of(found, metrics.OFFSETS, **payments, harm="lost") == 4104
    assert value_of(found, metrics.OFFSETS, **payments, harm="missing") == 0
    assert value_of(found, metrics.BATCHES, **payments, verdict="refuted") == 15
    assert value_of(found, metrics.LAG, **payments, topic="payments") > 41_207
    assert value_of(found, metrics.FINDINGS, pipeline="payments", level="fail") > 12
    assert value_of(found, metrics.OFFSETS, pipeline="orders", sink="orders", harm="lost") == 0


def test_what_an_audit_does_not_know_is_absent_and_not_zero(tmp_path):
    exporter(tmp_path, textfile="metrics").take([events.audit_finished()])
    found = of_files(tmp_path / "metrics")
    clicks = {"pipeline": "clicks", "sink": "clicks"}
    assert value_of(found, metrics.OFFSETS, **clicks, harm="lost") is None
    assert value_of(found, metrics.LAG, **clicks, topic="clicks") is None
    assert value_of(found, metrics.COMPLETE_AT, pipeline="clicks") is None


def test_what_was_proved_last_stays_until_more_is_proved(tmp_path):
    exporting, finished = exporter(tmp_path, textfile="metrics"), events.audit_finished()
    exporting.take([finished])
    before = of_files(tmp_path / "metrics")
    last_commit = finished.run.pipelines[0].sinks[0].last_commit
    assert value_of(before, metrics.PROVED_UNTIL, pipeline="orders", sink="orders") == last_commit.timestamp()
    doubted = tuple(replace(facts, answer="could not be proved") for facts in finished.run.pipelines)
    exporting.take([replace(finished, run=replace(finished.run, pipelines=doubted))])
    after = of_files(tmp_path / "metrics")
    assert value_of(after, metrics.ANSWER, pipeline="orders", answer="complete") == 0
    for metric, labels in ((metrics.COMPLETE_AT, {}), (metrics.PROVED_UNTIL, {"sink": "orders"})):
        assert value_of(after, metric, pipeline="orders", **labels) == value_of(
            before, metric, pipeline="orders", **labels
        )


@pytest.mark.parametrize("changes", [{"goes_on": False}, {"kept": False}, {"partial": events.PIPELINES}])
def test_an_audit_of_a_part_changes_no_gauge_of_a_pipeline(changes):
    (only,) = updates(events.audit_finished(**changes))
    assert dict(only.group.labels) == {"project": "lake"}


def test_a_failed_audit_is_no_success_and_leaves_the_last_answer(tmp_path):
    exporting = exporter(tmp_path, textfile="metrics")
    exporting.take([events.audit_finished(), events.audit_failed()])
    found = of_files(tmp_path / "metrics")
    assert value_of(found, metrics.AUDIT_SUCCESS) == 0
    assert value_of(found, metrics.ANSWER, pipeline="orders", answer="complete") == 1


def test_micro_batches_are_counted(tmp_path):
    exporting = exporter(tmp_path, textfile="metrics")
    exporting.take([events.batch_written(0), events.batch_written(1)])
    exporting.take([events.batch_written(2, status="already_committed"), events.batch_failed()])
    found = of_files(tmp_path / "metrics")
    expected = {
        metrics.HOOK_BATCHES: 2,
        metrics.HOOK_REPLAYS: 1,
        metrics.HOOK_FAILURES: 1,
        metrics.HOOK_READ: 40,
        metrics.HOOK_WRITTEN: 40,
        metrics.HOOK_BYTES: 1024,
        metrics.HOOK_SECONDS: 6.0,
        metrics.HOOK_OVERHEAD: 1.5,
        metrics.HOOK_COMMIT: AT.timestamp() + 2,
    }
    for metric, value in expected.items():
        assert value_of(found, metric, pipeline="orders", sink="orders") == value, metric.name


def test_rows_that_nobody_counted_are_no_zero():
    (update,) = updates(events.batch_written(rows_read=None))
    assert metrics.HOOK_READ not in {sample.metric for sample in update.samples}


def test_files_are_readable_whatever_the_umask(tmp_path):
    import os

    before = os.umask(0o077)
    try:
        exporter(tmp_path, textfile="metrics").take([events.batch_written()])
    finally:
        os.umask(before)
    (file,) = (tmp_path / "metrics").iterdir()
    assert file.name == "recon_hook~lake~orders~orders.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_pushgateway_gets_each_group_with_its_key(tmp_path, gateway, monkeypatch):
    monkeypatch.setenv("PUSH_PASSWORD", "s3cret-push")
    url = f"{{url: '{gateway.url}', user: recon, password: \"{{{{ env_var('PUSH_PASSWORD') }}}}\"}}"
    exporter(tmp_path, pushgateway=url).take([events.audit_finished(), events.batch_written()])
    assert {request.method for request in gateway.requests} == {"PUT"}
    assert all(request.headers["Authorization"].startswith("Basic ") for request in gateway.requests)
    bodies = {request.path: parsed(request.body.decode()) for request in gateway.requests}
    assert "/metrics/job/recon_audit/pipeline/payments/project/lake" in bodies
    assert "/metrics/job/recon_proof/pipeline/orders/project/lake/sink/orders" in bodies
    assert "/metrics/job/recon_proof/pipeline/payments/project/lake" not in bodies
    hook = bodies["/metrics/job/recon_hook/pipeline/orders/project/lake/sink/orders"]
    assert value_of(hook, metrics.HOOK_WRITTEN, pipeline="orders", sink="orders") == 20


def test_a_pushgateway_that_refuses_is_said_files_are_written_and_it_gets_the_metrics_later(tmp_path, gateway):
    exporting, gateway.status = exporter(tmp_path, textfile="metrics", pushgateway=gateway.url), 503
    with pytest.raises(ReconError, match=r"the Pushgateway .* did not take the metrics"):
        exporting.take([events.batch_written(), events.audit_failed()])
    assert len(list((tmp_path / "metrics").iterdir())) == 2
    gateway.requests.clear()
    gateway.status = 200
    exporting.take([events.audit_failed()])
    assert len(gateway.requests) == 2


def test_a_pushgateway_that_hangs_is_given_up(tmp_path, gateway):
    gateway.hangs = True
    with pytest.raises(ReconError, match="did not take the metrics"):
        exporter(tmp_path, pushgateway=f"{{url: '{gateway.url}', timeout: 0.2}}").take([events.batch_written()])


def test_a_folder_that_cannot_be_made_is_known_before_the_audit(tmp_path):
    (tmp_path / "metrics").write_text("")
    with pytest.raises(ConfigError, match=r"the folder .* cannot be made"):
        exporter(tmp_path, textfile="metrics/prom")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_are_those_of_prometheus_conventions(metric):
    assert metric.name.startswith("recon_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
    assert metric.dotted.replace(".", "_") + ("_seconds" if metric.unit == "s" else "") in metric.name


def test_labels_of_samples_are_those_of_the_metric():
    run: RunResult = events.audit_finished().run
    told = [events.audit_finished(), events.audit_failed(), events.batch_written(), events.batch_failed()]
    told.append(events.batch_written(status="already_committed"))
    samples = [sample for event in told for update in updates(event) for sample in update.samples]
    assert all(tuple(sample.labels) == sample.metric.labels for sample in samples)
    unkept = {metrics.KEPT} if all(s.guarantee_kept is None for p in run.pipelines for s in p.sinks) else set()
    assert {sample.metric for sample in samples} | unkept == set(METRICS), "a metric that nothing sets"
