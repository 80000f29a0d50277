"""Calls to other systems that do not answer: each is given up in time, and the witness is then not known."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.noop import NoopCatalog

from recon.audits.session import AuditSession
from recon.audits.sources import Brokers, Sources
from recon.base import storage
from recon.base.errors import EvidenceError
from recon.base.limits import delta_rs_options, within
from recon.base.storage import Storage
from recon.project import KafkaSink, LedgerConfig, Pipeline, Project
from recon.witness.delta_log import open_table
from recon.witness.iceberg import IcebergTable
from recon.witness.kafka_admin import UnreachableError
from tests.support.broker import Broker
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


# Each call of a store, with what it raises where the store does not answer.
CALLS: dict[str, tuple[Callable[[Storage], object], type[Exception]]] = {
    "read": (lambda of: of.read("_delta_log/0.json"), EvidenceError),
    "names": (lambda of: of.names(), EvidenceError),
    "sizes": (lambda of: of.sizes(), EvidenceError),
    "files": (lambda of: of.files(), EvidenceError),
    "opened": (lambda of: of.opened("0.parquet"), OSError),
    "write": (lambda of: of.write("0.json", b"{}"), OSError),
    "create": (lambda of: of.create("0.json", b"{}"), OSError),
    "remove": (lambda of: of.remove("0.json"), OSError),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_store_that_does_not_answer_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(storage, "STORE_S", 0.5)
    ask, error = CALLS[call]
    began = time.monotonic()
    with raises(error):
        ask(store(silent))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("call", CALLS)
def test_a_store_has_20_s_by_default(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    seconds: list[float] = []

    def limited(most: float, *_: object) -> None:
        seconds.append(most)
        raise TimeoutError

    monkeypatch.setattr(storage, "within", limited)
    with pytest.raises((EvidenceError, OSError)):
        CALLS[call][0](store("127.0.0.1:9"))
    assert seconds == [20.0]


@pytest.mark.long
def test_a_store_that_does_not_answer_is_given_up_after_20_s(silent: str) -> None:
    """Without any setting, by recon and by delta-rs, which may connect anew within its last seconds."""

    def seconds(ask: Callable[[Storage], object]) -> float:
        began = time.monotonic()
        with pytest.raises((EvidenceError, OSError)):
            ask(store(silent))
        return time.monotonic() - began

    asks = [ask for ask, _ in CALLS.values()]
    with ThreadPoolExecutor(len(asks) + 1) as pool:
        by_delta_rs = pool.submit(seconds, lambda of: open_table(Storage("s3://bucket/table", of.options)))
        longest = max(pool.map(seconds, asks))
    assert longest < 22 and by_delta_rs.result() < 26


def test_an_iceberg_catalog_gives_s3_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, str]] = []
    monkeypatch.setattr(
        "pyiceberg.catalog.load_catalog", lambda name, **properties: opened.append(properties) or NoopCatalog("lake")
    )
    _ = IcebergTable("lake.sales.orders").catalog, IcebergTable("lake.a.b", {"s3.request-timeout": "60"}).catalog
    waits = [(of["s3.connect-timeout"], of["s3.request-timeout"]) for of in opened]
    assert waits == [("5", "5"), ("5", "60")]


class _Headers(BaseHTTPRequestHandler):
    """Says how long a file is, and does not send it."""

    released = threading.Event()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()

    def do_GET(self) -> None:
        self.released.wait(30)

    def log_message(self, *_: object) -> None: ...


def test_a_file_whose_content_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Headers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with store(f"127.0.0.1:{server.server_port}").opened("0.parquet") as file:
                monkeypatch.setattr(storage, "STORE_S", 0.5)
                assert (file.seek(-8, 2), file.tell()) == (992, 992)
                began = time.monotonic()
                for part in (lambda: file.read(8), lambda: pq.read_metadata(file)):
                    with pytest.raises(TimeoutError, match="did not answer within"):
                        part()
                assert time.monotonic() - began < 5
        finally:
            _Headers.released.set()
            server.shutdown()


def test_delta_rs_gives_a_store_up(silent: str) -> None:
    quick = store(silent, timeout="1s", retry_timeout="1s").options
    began = time.monotonic()
    with pytest.raises(OSError, match=r"error sending request|HTTP error"):
        open_table(Storage("s3://bucket/table", quick))
    assert time.monotonic() - began < 10


def test_the_limits_of_delta_rs_are_for_stores_and_the_users_own_come_first() -> None:
    assert delta_rs_options("/lake/t", {}) is None
    assert delta_rs_options("file:///lake/t", {"a": "b"}) == {"a": "b"}
    default = delta_rs_options("s3://bucket/t", {}) or {}
    assert default == {"timeout": "19s", "retry_timeout": "19s", "connect_timeout": "5s"}, "20 s, and no request more"
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


def test_a_broker_that_cannot_be_reached_is_asked_once_in_an_audit(broker: Broker) -> None:
    broker.refuses = UnreachableError("Kafka cannot be reached")
    brokers = Brokers()
    first, second, elsewhere = sources(brokers, "a:1"), sources(brokers, "a:1"), sources(brokers, "b:1")
    for of in (first, second, elsewhere):
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.kafka(["t"], {}, {})
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.probe({})
        with pytest.raises(EvidenceError, match="cannot be reached"):
            of.sink_log(of.pipeline.sinks[0], None, ())
    assert broker.asked == ["a:1", "b:1"]


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
    from recon.witness import kafka

    with pytest.raises(UnreachableError):
        kafka.read({"bootstrap.servers": silent}, ["t"], isolation_level="read_committed", timeout_s=1)
