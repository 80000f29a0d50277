"""Calls to other systems that do not answer: each is given up in time, and the witness is then not known."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from recon import storage
from recon.audit.session import AuditSession
from recon.audit.sources import Brokers, Sources
from recon.errors import EvidenceError
from recon.evidence.delta_log import open_table
from recon.evidence.kafka_admin import UnreachableError
from recon.limits import delta_rs_options, within
from recon.project import KafkaSink, LedgerConfig, Pipeline, Project
from recon.storage import Storage
from tests.support.messages import raises


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where somebody accepts connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def store(address: str, **more: str) -> Storage:
    options = {
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "us-east-1",
        "aws_endpoint_url": f"http://{address}",
        "aws_allow_http": "true",
    }
    return Storage("s3a://bucket/table", {**options, **more})


def test_a_store_that_does_not_answer_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "STORE_S", 0.5)
    for read in (lambda: store(silent).read("_delta_log/0.json"), store(silent).names, store(silent).sizes):
        began = time.monotonic()
        with raises(EvidenceError):
            read()
        assert time.monotonic() - began < 5


def test_delta_rs_gives_a_store_up(silent: str) -> None:
    quick = store(silent, timeout="1s", retry_timeout="1s").options
    began = time.monotonic()
    with pytest.raises(OSError, match=r"error sending request|HTTP error"):
        open_table(Storage("s3://bucket/table", quick))
    assert time.monotonic() - began < 10


def test_the_limits_of_delta_rs_are_for_stores_and_the_users_own_come_first() -> None:
    assert delta_rs_options("/lake/t", {}) is None
    assert delta_rs_options("file:///lake/t", {"a": "b"}) == {"a": "b"}
    limited = delta_rs_options("s3://bucket/t", {"timeout": "60s"}) or {}
    assert limited["timeout"] == "60s" and {"connect_timeout", "retry_timeout"} < set(limited)


def test_what_a_call_returns_or_raises_in_time() -> None:
    def fails() -> int:
        raise KeyError("x")

    assert within(5, lambda: 7, "never") == 7
    assert within(5, lambda: None, "never") is None
    with pytest.raises(KeyError):
        within(5, fails, "never")
    released = threading.Event()
    with raises(EvidenceError):
        within(0.05, released.wait, "the database did not answer")
    released.set()


def sources(brokers: Brokers, address: str) -> Sources:
    sink = KafkaSink(name="s", kind="kafka", target="out")
    pipeline = Pipeline(name="p", checkpoint="cp", sinks=(sink,))
    kafka = {"bootstrap.servers": address, "socket.timeout.ms": "500"}
    project = Project(name="x", ledger=LedgerConfig(location="l"), kafka=kafka, pipelines=(pipeline,))
    return Sources(project, pipeline, AuditSession(project, no_spark=True, spark=None), brokers)


def test_a_broker_that_cannot_be_reached_is_asked_once_in_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unreachable(conf: dict[str, str], *_: object, **__: object) -> None:
        asked.append(conf["bootstrap.servers"])
        raise UnreachableError(f"Kafka at {conf['bootstrap.servers']} cannot be reached")

    monkeypatch.setattr("recon.evidence.kafka.read", unreachable)
    monkeypatch.setattr("recon.evidence.kafka_probe.probe", unreachable)
    monkeypatch.setattr("recon.evidence.kafka_markers.read", unreachable)
    brokers = Brokers()
    first, second, elsewhere = sources(brokers, "a:1"), sources(brokers, "a:1"), sources(brokers, "b:1")
    for of in (first, second, elsewhere):
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.kafka(["t"], {}, {})
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.probe({})
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.sink_log(of.pipeline.sinks[0], None)
    assert asked == ["a:1", "b:1"]


def test_a_broker_that_answers_no_more_than_one_question_is_asked_the_next() -> None:
    brokers, answers = Brokers(), iter([EvidenceError("no right to describe topic t"), None])

    def question() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "described"

    with pytest.raises(EvidenceError, match="no right"):
        brokers.ask({"bootstrap.servers": "a:1"}, question)
    assert brokers.ask({"bootstrap.servers": "a:1"}, question) == "described"


def test_a_real_client_says_that_a_broker_cannot_be_reached(silent: str) -> None:
    from recon.evidence import kafka

    with pytest.raises(UnreachableError):
        kafka.read({"bootstrap.servers": silent}, ["t"], isolation_level="read_committed", timeout_s=1)
