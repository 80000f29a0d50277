"""A real query that fails, and runs again: what the listener tells a channel, with Spark's own events."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from recon.project import Project
from recon.write.streams.listener import ProgressListener
from tests.support.channels import Received, http  # noqa: F401


def _await(listener: ProgressListener, http: Received, count: int) -> None:  # noqa: F811
    """Spark calls listeners later, and alerts go out later still."""
    deadline = time.monotonic() + 60
    while len(http.posts) < count:
        assert time.monotonic() < deadline, http.titles
        time.sleep(0.1)


def test_a_query_that_fails_is_told_with_its_error_and_when_it_runs_again(
    spark: Any,
    tmp_path: Path,
    http: Received,  # noqa: F811
) -> None:
    project = Project.model_validate(
        {
            "name": "lake",
            "ledger": "recon",
            "alerts": {"channels": [{"name": "oncall", "url": http.url}]},
            "pipelines": [{"name": "p", "checkpoint": "cp", "sinks": [{"name": "s", "target": "t"}]}],
            "project_dir": tmp_path,
        }
    )
    broken = [True]

    def write(frame: Any, batch_id: int) -> None:
        if broken[0]:
            raise ValueError("no space left on the disk")

    def run() -> Any:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "cp"))
        return writer.trigger(processingTime="200 milliseconds").start()

    listener = ProgressListener(project)
    spark.streams.addListener(listener)
    try:
        query = run()
        with pytest.raises(Exception, match="no space left"):
            query.awaitTermination(60)
        _await(listener, http, 1)
        assert http.titles == ["lake, pipeline p: 1 new"]
        assert http.posts[0]["message"].startswith("STREAM the query ended by an error: ")
        broken[0] = False
        query = run()
        try:
            _await(listener, http, 2)
        finally:
            query.stop()
        assert http.titles[1:] == ["lake, pipeline p: 1 over"]
    finally:
        spark.streams.removeListener(listener)
        listener.emitter.close(60)
