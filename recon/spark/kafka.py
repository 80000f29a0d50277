"""The connection to Kafka for Spark: librdkafka's settings, as in recon.yml, as options of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

_SAME = ("client.id", "client.rack", "sasl.kerberos.service.name", "ssl.key.password")
_LOGIN = "org.apache.kafka.common.security"
_KEYSTORE = "kafka.ssl.keystore.location"
_JAAS = "kafka.sasl.jaas.config"


def kafka_options(conf: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's Kafka source that connect as these settings do, as far as they have a counterpart.

    Settings that only tune librdkafka (buffers, timeouts, logs) have none, and need none.
    """
    options = {f"kafka.{name}": conf[name] for name in _SAME if name in conf}
    servers = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
    if servers:
        options["kafka.bootstrap.servers"] = servers
    if "security.protocol" in conf:
        options["kafka.security.protocol"] = conf["security.protocol"].upper()
    if "ssl.endpoint.identification.algorithm" in conf:
        algorithm = conf["ssl.endpoint.identification.algorithm"]
        options["kafka.ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return options | _sasl(conf) | _trusted(conf) | _own_key(conf)


def without_counterpart(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings that the connection needs and that cannot be translated: the option to give by hand for each."""
    by_hand = {name: _KEYSTORE for name in ("ssl.certificate.location", "ssl.key.location") if name in conf}
    mechanism = _mechanism(conf)
    if mechanism and not _has_password(mechanism):
        by_hand["sasl.mechanism"] = _JAAS
    if conf.get("enable.ssl.certificate.verification") == "false":
        by_hand["enable.ssl.certificate.verification"] = "kafka.ssl.engine.factory.class"
    return by_hand


def _mechanism(conf: Mapping[str, str]) -> str | None:
    return conf.get("sasl.mechanism") or conf.get("sasl.mechanisms")


def _has_password(mechanism: str) -> bool:
    return mechanism == "PLAIN" or mechanism.startswith("SCRAM")


def _sasl(conf: Mapping[str, str]) -> dict[str, str]:
    mechanism = _mechanism(conf)
    if not mechanism:
        return {}
    options = {"kafka.sasl.mechanism": mechanism}
    if "sasl.username" in conf and _has_password(mechanism):
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        user, word = (
            conf.get(f"sasl.{name}", "").replace("\\", "\\\\").replace('"', '\\"') for name in ("username", "password")
        )
        options[_JAAS] = f'{_LOGIN}.{module}LoginModule required username="{user}" password="{word}";'
    return options


def _trusted(conf: Mapping[str, str]) -> dict[str, str]:
    if "ssl.ca.location" in conf:
        return {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": conf["ssl.ca.location"]}
    if "ssl.ca.pem" in conf:
        return {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": conf["ssl.ca.pem"]}
    return {}


def _own_key(conf: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.location" in conf:
        password = conf.get("ssl.keystore.password")
        options = {"kafka.ssl.keystore.type": "PKCS12", _KEYSTORE: conf["ssl.keystore.location"]}
        return options | ({"kafka.ssl.keystore.password": password} if password is not None else {})
    if "ssl.certificate.pem" in conf and "ssl.key.pem" in conf:
        return {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": conf["ssl.certificate.pem"],
            "kafka.ssl.keystore.key": conf["ssl.key.pem"],
        }
    return {}
