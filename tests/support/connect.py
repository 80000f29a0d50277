"""A real Spark Connect server on this machine: a process of its own, from pyspark's own jars."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.local.jars import pyspark_home
from recon.local.java import java_home
from recon.local.process import ChildProcess, free_ports, tail
from recon.local.server import LocalServer
from recon.local.spark import local_conf
from tests.support.drivers import JDBC_DRIVERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READY_SECONDS = 90.0
_READY = "Spark Connect server started at"


class ConnectServer(LocalServer):
    """A server with Delta, the Kafka connector and the JDBC drivers, on a free loopback port.

    Args:
        work_dir: holds its log, which has its functions' output, too; None makes one that leaving `with` removes.
        env: further environment variables of the server, and so of the Python processes that it starts.
        python: the Python that runs functions sent by clients.
    """

    def __init__(
        self, work_dir: Path | None = None, env: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> None:
        super().__init__(work_dir, "connect")
        self._env, self._python = dict(env or {}), python
        self.port = 0

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"sc://127.0.0.1:{self.port}"

    @override
    def start(self) -> ConnectServer:
        """Start the server, on the port that it had before, and return when it answers.

        Raises:
            ConfigError: it did not come up; names its log.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_ports(1)[0]
        self.log_file.unlink(missing_ok=True)
        self._process = ChildProcess(self._command(), self.log_file, env=self._environment(), cwd=self.data_dir)
        deadline = time.monotonic() + _READY_SECONDS
        while _READY not in self.log_file.read_text(errors="replace"):
            if not self._process.alive or time.monotonic() > deadline:
                last = tail(self.log_file, 1) or "it wrote no log"
                self.kill()
                raise ConfigError(f"the Spark Connect server did not come up: {last}; its log is {self.log_file}")
            time.sleep(0.1)
        return self

    def _command(self) -> list[str]:
        settings = {
            **local_conf(JDBC_DRIVERS),
            "spark.sql.warehouse.dir": str(self.data_dir / "warehouse"),
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


# PySpark closes a session when it is collected, also one that was stopped, and with it a thread pool of all sessions:
# the one that runs then fails with "cannot schedule new futures after shutdown".
_never_collected: list[SparkSession] = []


def new_session(url: str) -> SparkSession:
    """A session of its own on a server."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).create()
    _never_collected.append(session)
    return session
