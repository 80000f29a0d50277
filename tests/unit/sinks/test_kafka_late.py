"""Into which topics late records are not written; no broker is asked."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from recon.model import KafkaTopic, SinkChanges
from recon.project import KafkaSink
from recon.write.sinks.kafka.late import LateWriter
from tests.support.broker import Broker
from tests.support.ledger_entries import project as project_of


@pytest.mark.parametrize(
    ("topic", "replaced", "why"),
    [
        ({}, "", ""),
        ({"cleanup_policy": "compact"}, "", "topic t is compacted: of each key"),
        ({"cleanup_policy": "compact,delete"}, "", "topic t is compacted: of each key"),
        ({"cleanup_policy": "unknown"}, "", "the broker does not show whether topic t is compacted"),
        ({"exists": False}, "", "topic t does not exist: create it"),
        ({}, "topic t ends earlier", "topic t ends earlier, so it lacks more than a repair would write"),
    ],
)
def test_a_topic_that_takes_no_late_records(
    tmp_path: Path, broker: Broker, topic: dict[str, Any], replaced: str, why: str
) -> None:
    broker.has(KafkaTopic(**{"topic": "t", "exists": True, **topic}))

    class Writer(LateWriter):
        def changes(self, since: datetime | None = None) -> SinkChanges:
            return SinkChanges(replaced=replaced)

    writer = Writer(project_of(tmp_path), "p", KafkaSink(name="s", kind="kafka", target="t"))
    told = writer.unfit()
    assert told.startswith(why) and bool(told) == bool(why)
