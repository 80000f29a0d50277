"""`recon.read_kafka`: the options that recon.yml names, and what contradicts them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from recon import read_kafka
from recon.base.errors import ConfigError
from recon.project import LedgerConfig, Pipeline, Project, Source
from recon.write.hook import foreach_batch
from tests.support.messages import raises


class Reader:
    """Spark's reader of streams, which keeps its options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        assert name == "kafka"
        return self

    def options(self, **options: str) -> Reader:
        self.given = options
        return self

    def load(self) -> dict[str, str]:
        return self.given


def project(kafka: dict[str, str] | None = None, **source: Any) -> Project:
    source = {"topics": ("orders", "returns"), "isolation_level": "read_committed", **source}
    pipeline = Pipeline.model_validate(
        {"name": "p", "checkpoint": "cp", "source": source, "sinks": [{"name": "s", "target": "table"}]}
    )
    conf = {"bootstrap.servers": "b:9092", **(kafka or {})}
    return Project(name="x", ledger=LedgerConfig(location="recon"), kafka=conf, pipelines=(pipeline,))


def options_of(of: Project, **given: Any) -> Any:
    spark: Any = SimpleNamespace(readStream=Reader())
    return read_kafka(spark, of, "p", **given)


def test_every_option_that_recon_yml_names_is_set() -> None:
    of = project(
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "s3cret"},
        options={"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000},
    )
    assert options_of(of, failOnDataLoss=False) == {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="s3cret";',
        "kafka.isolation.level": "read_committed",
        "subscribe": "orders,returns",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
    }


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.isolation.level": "read_uncommitted"},
        {"Kafka.Bootstrap.Servers": "other:9092"},
        {"subscribe": "orders"},
        {"subscribePattern": "ord.*"},
        {"assign": json.dumps({"orders": [0]})},
        {"startingOffsets": "latest"},
        {"kafka.sasl.jaas.config": 'password="other"'},
    ],
    ids=lambda given: next(iter(given)),
)
def test_an_option_that_contradicts_recon_yml_is_refused(given: dict[str, str]) -> None:
    secret = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "s3cret"}
    with raises(ConfigError) as caught:
        options_of(project(secret, options={"startingOffsets": "earliest"}), **given)
    assert "s3cret" not in str(caught.value) and 'password="other"' not in str(caught.value)


def test_an_option_that_says_the_same_is_accepted() -> None:
    given = {"SUBSCRIBE": "returns, orders", "Kafka.Isolation.Level": "read_committed"}
    made = options_of(project(), **given)
    assert made["subscribe"] == "orders,returns" and made["kafka.isolation.level"] == "read_committed"
    assert set(made) == {"kafka.bootstrap.servers", "kafka.isolation.level", "subscribe"}


def test_partitions_of_the_topics_may_be_assigned() -> None:
    assigned = json.dumps({"orders": [0, 1], "returns": [0]})
    made = options_of(project(), assign=assigned)
    assert made["assign"] == assigned and "subscribe" not in made


def test_without_topics_in_recon_yml_the_subscription_is_given() -> None:
    assert options_of(project(topics=()), subscribePattern="ord.*")["subscribePattern"] == "ord.*"
    with raises(ConfigError):
        options_of(project(topics=()))


def test_a_setting_without_a_counterpart_is_given_by_hand() -> None:
    of = project({"security.protocol": "ssl", "ssl.certificate.location": "/cert.pem", "ssl.key.location": "/key.pem"})
    with raises(ConfigError):
        options_of(of)
    by_hand = {"kafka.ssl.keystore.location": "/both.pem"}
    assert options_of(of, **by_hand)["kafka.ssl.keystore.location"] == "/both.pem"


def test_keys_and_certificates_of_the_client() -> None:
    pem = options_of(project({"ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY", "ssl.ca.pem": "CA"}))
    assert pem["kafka.ssl.keystore.certificate.chain"] == "CERT" and pem["kafka.ssl.keystore.key"] == "KEY"
    assert pem["kafka.ssl.truststore.certificates"] == "CA"
    store = options_of(project({"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "word"}))
    assert store["kafka.ssl.keystore.type"] == "PKCS12" and store["kafka.ssl.keystore.password"] == "word"
    assert options_of(project({"ssl.endpoint.identification.algorithm": "none"}))[
        "kafka.ssl.endpoint.identification.algorithm"
    ] == ("")


@pytest.mark.parametrize("name", ["subscribe", "Assign", "kafka.isolation.level", "kafka.bootstrap.servers"])
def test_options_of_recon_yml_do_not_repeat_its_other_keys(name: str) -> None:
    with pytest.raises(ValidationError, match="leave it out"):
        Source.model_validate({"options": {name: "x"}})


def without_yaml(tmp_path: Any, **kafka: str) -> Any:
    places = {"checkpoint": "cp", "target": str(tmp_path / "t"), "ledger": str(tmp_path / "l")}
    return foreach_batch(pipeline="p", kafka=kafka, **places)


def test_settings_of_kafkas_client_are_held_against_it_before_the_first_micro_batch(tmp_path: Any) -> None:
    with raises(ConfigError):
        without_yaml(tmp_path, **{"bootstrap.servers": "127.0.0.1:1", "security.protocl": "ssl"})
    with raises(ConfigError):
        without_yaml(tmp_path, **{"bootstrap.servers": "127.0.0.1:1", "security.protocol": "tls"})
    with raises(ConfigError):
        without_yaml(tmp_path, **{"client.id": "a"})
    assert without_yaml(tmp_path, **{"bootstrap.servers": "127.0.0.1:1", "client.id": "a"})
    assert without_yaml(tmp_path)


def test_settings_of_a_kafka_sink_are_held_against_the_client_too(tmp_path: Any) -> None:
    sink = {"name": "s", "kind": "kafka", "target": "out", "kafka": {"linger.mss": 5}}
    pipeline = Pipeline.model_validate({"name": "p", "checkpoint": "cp", "sinks": [sink]})
    of = Project(
        name="x",
        ledger=LedgerConfig(location=str(tmp_path)),
        kafka={"bootstrap.servers": "127.0.0.1:1"},
        pipelines=(pipeline,),
    )
    with raises(ConfigError):
        foreach_batch(of, pipeline="p")
