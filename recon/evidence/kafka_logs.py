"""The logs of topics as the broker describes them, in the columns that a ledger entry keeps them in."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import groupby

from recon.evidence.kafka_admin import KafkaAdmin, Key
from recon.model.wire.kafka_state import TopicLogs


def leader_epochs(admin: KafkaAdmin, partitions: Collection[Key], timeout_s: float) -> dict[str, TopicLogs]:
    """The leader epochs alone, by topic; raises what the broker's client raises."""
    epochs = sorted(admin.leader_epochs(sorted(set(partitions)), timeout_s).items())
    return {
        topic: TopicLogs([p for (_, p), _ in listed], [epoch for _, epoch in listed])
        for topic, of in groupby(epochs, key=lambda one: one[0][0])
        for listed in [list(of)]
    }


def offsets(admin: KafkaAdmin, partitions: Collection[Key], timeout_s: float) -> dict[str, TopicLogs]:
    """Leader epochs and the first and last offsets, by topic; raises what the broker's client raises."""
    logs = admin.offsets(sorted(set(partitions)), time.monotonic() + timeout_s)
    known = [(topic, log) for (topic, _), log in sorted(logs.items()) if log is not None]
    return {
        topic: TopicLogs(
            partition=[one.partition for one in listed],
            leader_epoch=[one.leader_epoch for one in listed],
            log_start=[one.log_start for one in listed],
            last_stable=[one.last_stable for one in listed],
            high_watermark=[one.high_watermark for one in listed],
        )
        for topic, of in groupby(known, key=lambda one: one[0])
        for listed in [[one for _, one in of]]
    }
