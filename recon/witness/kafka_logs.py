"""The logs of topics as the broker describes them, in the columns that a ledger entry keeps them in."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import groupby

from recon.model.wire.kafka_state import TopicLogs
from recon.witness.kafka_admin import KafkaAdmin, Key


def leader_epochs(admin: KafkaAdmin, partitions: Collection[Key], timeout_s: float) -> dict[str, TopicLogs]:
    """The leader epochs alone, by topic; raises what the broker's client raises."""
    epochs = sorted(admin.leader_epochs(sorted(set(partitions)), timeout_s).items())
    return {
        topic: TopicLogs([p for (_, p), _ in listed], [epoch for _, epoch in listed])
        for topic, of in groupby(epochs, key=lambda item: item[0][0])
        for listed in [list(of)]
    }


def offsets(admin: KafkaAdmin, partitions: Collection[Key], timeout_s: float) -> dict[str, TopicLogs]:
    """Leader epochs and the first and last offsets, by topic; raises what the broker's client raises."""
    logs = admin.offsets(sorted(set(partitions)), time.monotonic() + timeout_s)
    known = [(topic, log) for (topic, _), log in sorted(logs.items()) if log is not None]
    return {
        topic: TopicLogs(
            partition=[partition.partition for partition in listed],
            leader_epoch=[partition.leader_epoch for partition in listed],
            log_start=[partition.log_start for partition in listed],
            last_stable=[partition.last_stable for partition in listed],
            high_watermark=[partition.high_watermark for partition in listed],
        )
        for topic, of in groupby(known, key=lambda item: item[0])
        for listed in [[log for _, log in of]]
    }
