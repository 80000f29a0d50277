"""A real Spark Connect server on this machine: a process of its own, from pyspark's own jars."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from recon.errors import ConfigError
from recon.local.jars import pyspark_home
from recon.local.java import java_home
from recon.local.process import ChildProcess, free_ports, tail
from recon.local.spark import local_conf
from tests.support.drivers import JDBC_DRIVERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READY_SECONDS = 90.0
_READY = "Spark Connect server started at"


class ConnectServer:
    """A server with Delta, the Kafka connector and the JDBC drivers, on a free loopback port.

    Args:
        work_dir: holds its log, which has its functions' output, too; None makes one that is removed on `stop()`.
        env: further environment variables of the server, and so of the Python processes that it starts.
        python: the Python that runs functions sent by clients.
    """

    def __init__(
        self, work_dir: Path | None = None, env: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self._temporary = work_dir is None
        self.work_dir = Path(tempfile.mkdtemp(prefix="recon-connect-") if work_dir is None else work_dir).absolute()
        self._env, self._python = dict(env or {}), python
        self._process: ChildProcess | None = None
        self.port = 0

    def __enter__(self) -> ConnectServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.work_dir / "connect.log"

    @property
    def alive(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.alive

    def start(self) -> ConnectServer:
        """Start the server, on the port that it had before, and return when it answers.

        Raises:
            ConfigError: it did not come up; names its log.
        """
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_ports(1)[0]
        self.log.unlink(missing_ok=True)
        self._process = ChildProcess(self._command(), self.log, env=self._environment(), cwd=self.work_dir)
        deadline = time.monotonic() + _READY_SECONDS
        while _READY not in self.log.read_text(errors="replace"):
            if not self._process.alive or time.monotonic() > deadline:
                last = tail(self.log, 1) or "it wrote no log"
                self._process.kill()
                raise ConfigError(f"the Spark Connect server did not come up: {last}; its log is {self.log}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Stop the server in order."""
        if self._process is not None:
            self._process.stop()
        if self._temporary:
            shutil.rmtree(self.work_dir, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as in a crash: to the server and to the Python processes that it started."""
        assert self._process is not None
        self._process.kill()

    def _command(self) -> list[str]:
        settings = {
            **local_conf(JDBC_DRIVERS),
            "spark.sql.warehouse.dir": str(self.work_dir / "warehouse"),
            "spark.driver.memory": "2g",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        return [*command, "spark-internal"]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": self._python,
            "PYSPARK_DRIVER_PYTHON": self._python,
            **self._env,
        }


def new_session(url: str) -> SparkSession:
    """A session of its own on a server."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(url).create()
