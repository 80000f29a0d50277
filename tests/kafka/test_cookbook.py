"""docs/cookbook: the commands and the Python of each page run in its order, and print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import recon as library
from recon.cli import main
from tests.support import pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka import LocalKafka

COOKBOOK = pages.ROOT / "docs" / "cookbook"
_ID = re.compile(r"^([0-9a-f]{8})\b", re.MULTILINE)
# What differs from run to run stands on the pages as it was in one of them.
_DIFFERS = (
    (re.compile(r"\.* ?\[(\w+(?: \d+)?) in [\d.]+s\]"), r" [\1]"),
    (re.compile(r"in 0 hours.*"), "in some time"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00| UTC)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"(?<![\w+/-])[\w+/-]{22}(?![\w+/-])"), "TOPIC_ID"),
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "HEX"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|min|minutes?|seconds?|days?|hours?)\b"), "SPAN"),
    (re.compile(r"\s+"), " "),
)


def same(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, stands_for in _DIFFERS:
        line = pattern.sub(stands_for, line)
    return line.strip()


@dataclass
class Kitchen:
    """A stream of one topic, `orders` on the pages, and what its commands print."""

    spark: SparkSession
    kafka: LocalKafka
    folder: Path
    topic: str
    capsys: pytest.CaptureFixture[str]
    findings: dict[str, str] = field(default_factory=dict)  # the ids of a page, and those of this run
    differ: list[str] = field(default_factory=list)

    def command(self, line: str) -> str:
        """What a command prints."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit):
            main([self.findings.get(word, word) for word in shlex.split(line)[1:]])
        return self.capsys.readouterr().out.replace(str(self.folder) + "/", "").replace(self.topic, "orders")

    def stream(self, **options: str) -> None:
        """The query of the pages."""
        offsets = {"startingOffsets": "earliest", **options}
        events = library.read_kafka(self.spark, "recon.yml", "orders", **offsets)
        writer = events.writeStream.foreachBatch(library.foreach_batch("recon.yml", pipeline="orders"))
        self.finish(writer.option("checkpointLocation", str(self.folder / "checkpoints/orders")).start())

    def finish(self, query: Any) -> None:
        query.processAllAvailable()
        query.stop()

    def produce(self, count: int) -> None:
        self.kafka.produce(self.topic, [("k", f"v{n}", 0) for n in range(count)])

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.folder / "checkpoints/orders")

    def follow(self, page: str, before: dict[str, Callable[[], None]]) -> None:
        """Runs a page's console and Python blocks in order; `before` a heading something happens."""
        path = COOKBOOK / page
        at = 0
        for example in pages.examples(path, "console", "python"):
            between = example.document.text[at : example.region.start]
            at = example.region.end
            for heading, happens in before.items():
                if heading in between:
                    happens()
            if pages.language(example) == "python":
                namespace: dict[str, Any] = {"spark": self.spark}
                place = f'"{self.folder / "checkpoints/orders"}"'
                exec(str(example.parsed).replace('"checkpoints/orders"', place), namespace)
                self.finish(namespace["query"])
            else:
                self._console(str(example.parsed))

    def _console(self, text: str) -> None:
        """Runs a block's commands; each line that the page shows of the output must be printed."""
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, *shown = part.splitlines()
            out = self.command(line)
            if line == "recon findings":
                self.findings |= zip(*(_ID.findall(one) for one in (part, out)), strict=False)
            printed = [same(one) for one in out.splitlines()]
            missing = [one for one in shown if not _printed(one, printed)]
            self.differ += [f"$ {line} does not print: {one}; it prints:\n{out}" for one in missing]


def _printed(line: str, printed: list[str]) -> bool:
    """Whether a line of a page was printed; `…` stands for lines that the page leaves out, or for the rest of one."""
    if line.endswith("…"):
        return any(one.startswith(same(line.removesuffix("…"))) for one in printed)
    return not line or same(line) in printed


@pytest.fixture
def kitchen(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Kitchen:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap_servers)
    monkeypatch.setenv("NO_COLOR", "1")
    kitchen = Kitchen(spark, kafka, tmp_path, topic("orders"), capsys)
    places = "--checkpoint checkpoints/orders --target lake/orders"
    kitchen.command(f"recon init --pipeline orders --topic {kitchen.topic} {places}")
    return kitchen


def test_lost_checkpoint(kitchen: Kitchen) -> None:
    """lost_checkpoint.md"""
    kitchen.produce(5)
    kitchen.stream()

    def lost() -> None:
        kitchen.lose_checkpoint()
        kitchen.produce(3)

    kitchen.follow("lost_checkpoint.md", {"is gone.": lost})
    assert not kitchen.differ, "\n".join(kitchen.differ)
    assert kitchen.spark.read.format("delta").load(str(kitchen.folder / "lake/orders")).count() == 8


def test_backfill(kitchen: Kitchen) -> None:
    """backfill.md"""
    kitchen.produce(5)
    kitchen.stream()
    kitchen.lose_checkpoint()
    kitchen.produce(4)
    config = kitchen.folder / "recon.yml"
    config.write_text(config.read_text().replace("        # on_new_epoch: stop", "        on_new_epoch: warn", 1))
    after = {"startingOffsets": f'{{"{kitchen.topic}": {{"0": 9}}}}'}
    kitchen.produce(2)
    kitchen.stream(**after)
    kitchen.follow("backfill.md", {})
    assert not kitchen.differ, "\n".join(kitchen.differ)
    assert kitchen.spark.read.format("delta").load(str(kitchen.folder / "lake/orders")).count() == 11


def test_recreated_topic(kitchen: Kitchen) -> None:
    """recreated_topic.md"""
    kitchen.produce(5)
    kitchen.stream()
    kitchen.produce(3)  # never read
    kitchen.command("recon audit")
    kitchen.kafka.delete_topic(kitchen.topic)
    kitchen.kafka.create_topic(kitchen.topic)
    kitchen.produce(4)
    kitchen.follow("recreated_topic.md", {"## 3.": kitchen.lose_checkpoint})
    assert not kitchen.differ, "\n".join(kitchen.differ)
    assert kitchen.spark.read.format("delta").load(str(kitchen.folder / "lake/orders")).count() == 9
