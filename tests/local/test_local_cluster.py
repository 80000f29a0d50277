"""A real master and two workers. The job runs in a driver of its own: this process has a local session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.local.process import command_line
from tests.support.cluster import StandaloneCluster

pytestmark = [pytest.mark.cluster, pytest.mark.long]

_DRIVER = """
import json, sys
from recon.local.spark import spark_session

master, target = sys.argv[1:]
spark = spark_session(master=master, conf={"spark.executor.memory": "512m"})

def whoami(_):
    import os, time
    time.sleep(1.0)  # long enough that one executor cannot take every task
    yield os.getppid()

daemons = set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(whoami).collect())
spark.range(100).write.format("delta").save(target)
rows = spark.read.format("delta").load(target).count()
print("RESULT " + json.dumps({"daemons": len(daemons), "rows": rows}))
spark.stop()
"""


def test_a_job_runs_on_two_executors_and_writes_delta(tmp_path: Path) -> None:
    with StandaloneCluster(workers=2, cores=1, work_dir=tmp_path / "cluster") as cluster:
        assert cluster.master_url.startswith("spark://127.0.0.1:")
        pids = cluster.pids
        assert len(pids) == 3
        command = [sys.executable, "-c", _DRIVER, cluster.master_url, str(tmp_path / "t")]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert completed.returncode == 0, completed.stderr[-3000:]
        result = next(line for line in completed.stdout.splitlines() if line.startswith("RESULT "))
        assert json.loads(result.removeprefix("RESULT ")) == {"daemons": 2, "rows": 100}
    assert [command_line(pid) for pid in pids] == [None, None, None]
    # The logs stay where the caller asked for them.
    assert "Successfully registered" in (tmp_path / "cluster" / "worker-1.log").read_text()


def test_a_worker_that_cannot_start_is_one_sentence_and_leaves_nothing_running(tmp_path: Path) -> None:
    cluster = StandaloneCluster(memory="not-a-size", work_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"cluster did not come up: .*; its log is .*worker-0\.log"):
        cluster.start()
    assert cluster.pids == ()
