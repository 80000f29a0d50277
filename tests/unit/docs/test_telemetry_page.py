"""docs/telemetry.md: its table of metrics, its alert rules, and its recon.yml."""

from __future__ import annotations

import re

import yaml

from recon.events.exporters.metrics import METRICS
from recon.events.registry import consumers_of
from scripts.telemetry_page import PAGE, page
from tests.support import telemetry

BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_table_is_that_of_the_definitions():
    assert page() == PAGE.read_text(encoding="utf-8"), "run python scripts/telemetry_page.py"
    assert all(f"| `{metric.name}` |" in page() for metric in METRICS)


def test_alert_rules_use_metrics_and_labels_that_there_are():
    labels = {metric.name: metric.labels for metric in METRICS}
    (rules,) = [block for block in BLOCKS if "groups:" in block]
    for rule in yaml.safe_load(rules)["groups"][0]["rules"]:
        name, _, matched = re.search(r"(recon_\w+)(\{(\w+))?", rule["expr"]).groups()
        assert name in labels, rule["alert"]
        assert matched is None or matched in labels[name], rule["alert"]


def test_its_recon_yml_can_be_used(tmp_path, monkeypatch):
    (block,) = [block for block in BLOCKS if "openlineage:" in block]
    monkeypatch.setenv("LINEAGE_KEY", "s3cret-lineage")
    mine = block.replace("/var/lib/node_exporter/textfile_collector", "metrics")
    consumers = consumers_of(telemetry.project_with(tmp_path, mine))
    assert {consumer.name for consumer in consumers} == {"openlineage", "prometheus", "otel"}
