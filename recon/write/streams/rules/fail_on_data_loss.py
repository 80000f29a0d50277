"""failOnDataLoss may stay true while Kafka keeps records for longer than the query is down."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

from recon.base.text import duration
from recon.write.streams.facts import Advice, Facts, unknown

_SAFETY = 2.0  # times the longest downtime must fit into retention
_SETTING = "failOnDataLoss"


def fail_on_data_loss(facts: Facts) -> Advice:
    """Whether Kafka keeps records long enough for the longest downtime, so that failOnDataLoss may stay true."""
    if facts.topics is None:
        return unknown(facts, "Kafka did not answer or is not set, so retention.ms is not known", _SETTING)
    deleting = {t.topic: t.retention_ms for t in facts.topics.values() if t.exists and "delete" in t.cleanup_policy}
    if any(ms is None for ms in deleting.values()):
        return unknown(facts, "this user may not read retention.ms of the topics from Kafka", _SETTING)
    if len(facts.batches) < 2:
        return unknown(facts, "fewer than 2 micro-batches are recorded, so no downtime is known", _SETTING)
    # Time in which a query runs and has nothing to do is no downtime; between two runs it is not known which it was.
    down = max(
        ((b.at - a.done).total_seconds() for a, b in pairwise(facts.batches) if a.run_id != b.run_id), default=0.0
    )
    age = facts.unread_for.total_seconds() if facts.unread_for is not None else 0.0
    limits = [ms / 1000 for ms in deleting.values() if ms is not None and ms >= 0]
    figures = {"downtime_seconds": down, "unread_for_seconds": age, "retention_seconds": min(limits, default=None)}
    keep = partial(Advice, decision="keep", setting=_SETTING, value=True, figures=figures)
    if not limits:
        return keep(
            recommendation="keep failOnDataLoss at true: Kafka deletes nothing by age here",
            because="no topic has a retention.ms that deletes",
        )
    shortest, needed = min(limits), _SAFETY * (down + age)
    arithmetic = (
        f"the shortest retention.ms is {duration(shortest)}; the longest time between two of {len(facts.runs)} runs "
        f"was {duration(down)} and the oldest unread record is {duration(age)} old, {_SAFETY:g} times their sum is "
        f"{duration(needed)}"
    )
    if needed <= shortest:
        return keep(
            recommendation=(
                "keep failOnDataLoss at true: retention is longer than any recorded downtime, and a loss should stop "
                "the query"
            ),
            because=arithmetic,
        )
    wanted = math.ceil(needed / 3600) * 3_600_000
    return Advice(
        decision="change",
        recommendation=(
            f"raise retention.ms to {wanted:,} and keep failOnDataLoss at true: with false, Spark skips what was "
            "deleted, and only the audit reports it (LOSS_RETENTION)"
        ),
        because=arithmetic,
        setting="retention.ms",
        value=wanted,
        figures=figures,
    )
