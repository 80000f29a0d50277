"""docs/quickstart.md as a new user goes through it: a stream that never heard of recon, and the page's own commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon.local.client import wait_until
from recon.project import load
from recon.write.ledger import open_ledger
from recon.write.streams.listener import ProgressListener
from tests.support import pages

PAGE = Path(__file__).parents[2] / "docs/quickstart.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def alike(text: str) -> list[str]:
    """The lines of a transcript without what differs from run to run."""
    for pattern, instead in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "QUERY"),
        (_AT, "TIME"),
        (r"\d+\.\d\ds", "0.00s"),
        (r"\d+ hours \d+ minutes and \d+\.\d\d seconds", "0 hours 0 minutes and 0.00 seconds"),
        (r"/\S*/shop/", "/home/ada/shop/"),
    ):
        text = re.sub(pattern, instead, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def drain(spark: Any, bootstrap_servers: str, topic: str, folder: Path) -> None:
    """The query: it reads what is there, and ends."""
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load()
        .selectExpr(
            "CAST(get_json_object(CAST(value AS STRING), '$.order_id') AS BIGINT) AS order_id",
            "partition AS kafka_partition",
            "offset AS kafka_offset",
        )
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoints/orders"))
        .trigger(availableNow=True)
        .start(str(folder / "lake/orders"))
    )
    assert query.awaitTermination(180)


@pytest.fixture
def shop(kafka: Any, spark: Any, topic: Callable[..., str], tmp_path: Path) -> tuple[Path, str]:
    """A folder with the checkpoint and the table of a native query, and the topic that it read."""
    name, folder = topic("orders", 2), tmp_path / "shop"
    folder.mkdir()
    kafka.produce(name, [(f"k{i}", f'{{"order_id": {i}}}', i % 2) for i in range(2000)])
    drain(spark, kafka.bootstrap_servers, name, folder)
    return folder, name


def test_the_page_is_what_a_new_user_sees(kafka: Any, spark: Any, shop: tuple[Path, str]) -> None:
    folder, topic = shop
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "sql":
            spark.sql(text.replace("lake/orders", str(folder / "lake/orders")))
            continue
        if kind != "console":
            continue
        command, _, printed = text.partition("\n")
        command = command.removeprefix("$ ").replace("localhost:9092", kafka.bootstrap_servers)
        if command.startswith("recon "):
            done = subprocess.run(
                command.split(), cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
            )
            out = done.stdout.replace(topic, "orders").replace(kafka.bootstrap_servers, "localhost:9092")
            assert alike(out) == alike(printed), (command, done.stdout, done.stderr)
            ran.append((command.split()[1], done.returncode))
    assert ran == [("init", 0), ("audit", 0), ("audit", 1)]


# docs/quickstart.md and docs/observe.md have the line.
@pytest.mark.parametrize("page", ["quickstart.md", "observe.md"])
def test_its_line_listens(kafka: Any, spark: Any, shop: tuple[Path, str], page: str, monkeypatch: Any) -> None:
    folder, topic = shop
    monkeypatch.chdir(folder)
    init = [str(Path(sys.executable).with_name("recon")), "init", "--from", "checkpoints/orders"]
    subprocess.run([*init, "--kafka", kafka.bootstrap_servers], check=True, capture_output=True)
    added: list[ProgressListener] = []
    driver = SimpleNamespace(streams=SimpleNamespace(addListener=added.append))
    pages.run(PAGE.with_name(page), {"spark": driver})
    (listener,) = added
    spark.streams.addListener(listener)
    try:
        kafka.produce(topic, [("k", '{"order_id": 5000}', 0)])
        drain(spark, kafka.bootstrap_servers, topic, folder)
        wait_until(lambda: len(open_ledger(load(folder)).entries("orders", "orders")) == 5, "nothing was entered")
    finally:
        spark.streams.removeListener(listener)


def test_there_are_fewer_than_ten_lines_to_type() -> None:
    typed = [line for _, text in BLOCK.findall(PAGE.read_text()) for line in text.splitlines() if line[:2] == "$ "]
    assert 0 < len(typed) < 10
