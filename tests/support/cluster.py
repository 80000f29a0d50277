"""A real standalone Spark cluster on this machine: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from recon.base.errors import ConfigError
from recon.local.jars import pyspark_home
from recon.local.java import java_home
from recon.local.process import ChildProcess, tail

_READY_SECONDS = 60.0
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class StandaloneCluster:
    """A master and `workers` workers started with pyspark's own spark-class, on free loopback ports.

    Args:
        workers: how many worker processes.
        cores: cores each worker offers.
        memory: memory each worker offers; an application's `spark.executor.memory` must fit in.
        work_dir: holds logs and the workers' folders; None makes one that is removed on `stop()`.
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g", work_dir: Path | None = None) -> None:
        self._temporary = work_dir is None
        self.work_dir = Path(tempfile.mkdtemp(prefix="recon-cluster-") if work_dir is None else work_dir).absolute()
        self.workers = workers
        self.cores = cores
        self.memory = memory
        self.master_url = ""
        self._processes: list[ChildProcess] = []

    def __enter__(self) -> StandaloneCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, the master's first."""
        return tuple(process.pid for process in self._processes)

    def start(self) -> StandaloneCluster:
        """Start all processes and return when every worker is registered.

        Raises:
            ConfigError: one of them did not come up; names its log.
        """
        self.work_dir.mkdir(parents=True, exist_ok=True)
        try:
            master = self._spawn("master", "master.Master")
            self.master_url = _wait_for(master, _MASTER_URL).group(1)
            for number in range(self.workers):
                own = self.work_dir / f"worker-{number}"
                options = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(own)]
                self._spawn(f"worker-{number}", "worker.Worker", *options, self.master_url)
            for worker in self._processes[1:]:
                _wait_for(worker, re.compile(_REGISTERED))
        except BaseException:
            self._end_all()
            raise
        return self

    def stop(self) -> None:
        """Stop the workers (and with them their executors), then the master."""
        self._end_all()
        if self._temporary:
            shutil.rmtree(self.work_dir, ignore_errors=True)

    def _end_all(self) -> None:
        while self._processes:
            self._processes.pop().stop()

    def _spawn(self, name: str, role: str, *options: str) -> ChildProcess:
        home = pyspark_home()
        env = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        # Port 0: Spark takes a free one and says in its log which.
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{role}",
            "--host",
            "127.0.0.1",
        ]
        command += ["--port", "0", "--webui-port", "0", *options]
        log = self.work_dir / f"{name}.log"
        log.unlink(missing_ok=True)
        process = ChildProcess(command, log, env=env, cwd=self.work_dir)
        self._processes.append(process)
        return process


def _wait_for(process: ChildProcess, pattern: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        alive = process.alive
        if (match := pattern.search(process.log.read_text(errors="replace"))) is not None:
            return match
        if not alive or time.monotonic() > deadline:
            last = tail(process.log, 1).strip() or "it wrote no log"
            raise ConfigError(f"the local Spark cluster did not come up: {last}; its log is {process.log}")
        time.sleep(0.1)
