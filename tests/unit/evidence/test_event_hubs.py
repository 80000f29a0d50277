"""docs/cookbook/event_hubs.md: its settings are librdkafka's, and what they become for Spark's client."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from recon.project import Project, load
from tests.support.pages import ROOT, examples, run

PAGE = ROOT / "docs/cookbook/event_hubs.md"

STRING = 'Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=audit;SharedAccessKey=AbC"d='


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The recon.yml of docs/cookbook/event_hubs.md."""
    monkeypatch.setenv("EVENT_HUBS_CONNECTION_STRING", STRING)
    (block,) = examples(PAGE, "yaml")
    (tmp_path / "recon.yml").write_text(str(block.parsed))
    return load(tmp_path)


def test_librdkafka_knows_each_setting(project: Project) -> None:
    AdminClient(dict(project.kafka))  # connects when it is asked something
    with pytest.raises(KafkaException, match="No such configuration property"):
        AdminClient({**project.kafka, "sasl.connection.string": "x"})


def test_sparks_client_logs_in_with_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.project_dir)
    spark = MagicMock()
    run(PAGE, {"spark": spark})
    spark.readStream.format.assert_called_once_with("kafka")
    options = spark.readStream.format.return_value.options.call_args.kwargs
    escaped = STRING.replace('"', '\\"')
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="$ConnectionString" password="{escaped}";'
    )
    assert options["kafka.security.protocol"] == "SASL_SSL" and options["kafka.sasl.mechanism"] == "PLAIN"
    assert options["kafka.bootstrap.servers"] == "shop.servicebus.windows.net:9093"
    assert (options["subscribe"], options["startingOffsets"]) == ("orders", "earliest")


def test_no_part_of_the_connection_string_is_shown(project: Project) -> None:
    said = project.mask(f'login failed for {STRING} (SharedAccessKey=AbC"d=)')
    assert "AbC" not in said
