"""A single-node Kafka broker (KRaft, combined mode) from jars: no Docker, no ZooKeeper."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from recon.base.errors import ConfigError, EvidenceError
from recon.local.client import KafkaClient
from recon.local.jars import broker_classpath
from recon.local.java import find_java
from recon.local.process import ChildProcess, command_line, free_ports, stop_pid, tail
from recon.local.server import LocalServer

_READY_SECONDS = 60.0
_STATE = "broker.json"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dirs}
auto.create.topics.enable=false
delete.topic.enable=true
# One node holds every replica.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# Retention and compaction act within a second, so that a test can watch them.
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=200
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=8388608
"""
_LOGGING = """\
status=warn
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %-5p %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""


class LocalKafka(LocalServer, KafkaClient):
    """A broker on free loopback ports; starts on `start()` or `with`.

    Args:
        data_dir: holds `server.properties`, `broker.log` and the data. None makes a temporary folder that
            `stop()` keeps and leaving `with` removes. A folder of an earlier broker keeps its topics and its
            ports.
    """

    def __init__(self, data_dir: Path | None = None, *, detached: bool = False) -> None:
        LocalServer.__init__(self, data_dir, "kafka")
        KafkaClient.__init__(self, "")
        self.log_file = self.data_dir / "broker.log"
        self._detached = detached

    @property
    def pid(self) -> int:
        """The broker's process id.

        Raises:
            EvidenceError: it is not running.
        """
        if self._process is None or not self._process.alive:
            raise EvidenceError(f"the local Kafka broker of {self.data_dir} is not running; call start()")
        return self._process.pid

    def start(self) -> Self:
        """Start the broker and return when it answers; does nothing when it runs.

        Raises:
            ConfigError: no Java, no jars, or the broker did not start; the message names its log file.
        """
        if self.alive:
            return self
        again = (self.data_dir / "server.properties").exists()
        for attempt in range(3):
            if not again:
                self._format()
            self.connect(
                _setting(self.data_dir / "server.properties", "advertised.listeners").removeprefix("PLAINTEXT://")
            )
            if self._run():
                return self
            # Another process took a port before the broker bound it. A new data folder can use other ports.
            if again or "Address already in use" not in tail(self.log_file, 200):
                break
            if attempt < 2:
                self.log_file.unlink()
        raise ConfigError(
            f"the local Kafka broker on {self.bootstrap_servers} did not start: "
            f"{_last_error(self.log_file)}; its log is {self.log_file}"
        )

    def _format(self) -> None:
        """Write server.properties for fresh ports and format an empty data folder."""
        logs = self.data_dir / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        broker, controller = free_ports(2)
        properties = _PROPERTIES.format(broker=broker, controller=controller, log_dirs=logs)
        draft = self.data_dir / "server.properties.new"
        draft.write_text(properties)
        (self.data_dir / "log4j2.properties").write_text(_LOGGING)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format")
        completed = subprocess.run(
            [*self._java("-Xmx128m"), *tool, f"--cluster-id={cluster_id}", "-c", str(draft)],
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode != 0:
            output = (completed.stderr + completed.stdout).strip().splitlines()
            raise ConfigError(
                f"the local Kafka data folder {self.data_dir} could not be formatted: "
                f"{output[-1] if output else f'exit code {completed.returncode}'}; give it an empty folder"
            )
        draft.rename(self.data_dir / "server.properties")

    def _run(self) -> bool:
        """Starts the process; True when the broker answers, False when it ended or did not answer in time."""
        command = [*self._java("-Xms128m", "-Xmx512m"), "kafka.Kafka", str(self.data_dir / "server.properties")]
        # The id of the formatted data folder; another broker on the same port has another id.
        cluster_id = _setting(self.data_dir / "logs" / "meta.properties", "cluster.id")
        self._process = ChildProcess(command, self.log_file, cwd=self.data_dir, detached=self._detached)
        deadline = time.monotonic() + _READY_SECONDS
        try:
            while self._process.alive and time.monotonic() < deadline:
                if _answers(self.bootstrap_servers, cluster_id):
                    return True
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise
        self.stop()
        return False

    def _java(self, *options: str) -> list[str]:
        return [
            str(find_java()),
            *options,
            # A fast start matters more here than throughput.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            # The broker logs in its shutdown hook; Log4j's own hook would end logging before that.
            "-Dlog4j2.shutdownHookEnabled=false",
            f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}",
            "-cp",
            broker_classpath(),
        ]


@dataclass(frozen=True)
class BrokerInfo:
    """A broker that outlives its starter: `start_detached` writes this to a file, `stop_detached` reads it."""

    pid: int
    bootstrap_servers: str
    data_dir: str
    log_file: str


def start_detached(data_dir: Path) -> BrokerInfo:
    """Starts a broker that outlives this process, or returns the one that already runs in `data_dir`.

    Raises:
        ConfigError: it did not start.
    """
    data_dir = Path(data_dir).absolute()
    if (running := running_broker(data_dir)) is not None:
        return running
    broker = LocalKafka(data_dir, detached=True).start()
    info = BrokerInfo(broker.pid, broker.bootstrap_servers, str(data_dir), str(broker.log_file))
    draft = data_dir / f"{_STATE}.new"
    draft.write_text(json.dumps(asdict(info), indent=2) + "\n")
    draft.rename(data_dir / _STATE)
    return info


def stop_detached(data_dir: Path) -> BrokerInfo | None:
    """Stop the broker that `start_detached` left in `data_dir`; None when none runs there.

    A process is ended only when its command line is that broker's: the pid may belong to another process now.
    """
    data_dir = Path(data_dir).absolute()
    running = running_broker(data_dir)
    if running is not None:
        stop_pid(running.pid)
    (data_dir / _STATE).unlink(missing_ok=True)
    return running


def running_broker(data_dir: Path) -> BrokerInfo | None:
    """The detached broker of `data_dir`, if its process runs and is that broker.

    Raises:
        ConfigError: the state file is not one of a broker.
    """
    state = Path(data_dir).absolute() / _STATE
    try:
        info = BrokerInfo(**json.loads(state.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{state} is not a broker's state file ({error}); remove it") from error
    words = command_line(info.pid) or ""
    ours = "kafka.Kafka" in words and str(state.parent / "server.properties") in words
    return info if ours else None


def _setting(file: Path, key: str) -> str:
    """The value of a key in a properties file."""
    for line in file.read_text().splitlines():
        if line.startswith(f"{key}="):
            return line.removeprefix(f"{key}=")
    raise ConfigError(f"{file} names no {key}; use an empty folder")


def _answers(bootstrap_servers: str, cluster_id: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    host, _, port = bootstrap_servers.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    try:
        cluster = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=5)
    except KafkaException:
        return False
    return bool(cluster.brokers) and cluster.cluster_id == cluster_id


def _last_error(log: Path) -> str:
    lines = tail(log, 400).splitlines()
    errors = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return (errors or lines or ["it wrote no log"])[-1].strip()
