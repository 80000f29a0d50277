"""Kafka partitions and shuffle partitions against the cores that run their tasks."""

from __future__ import annotations

import math
from typing import Any

from recon.write.streams.facts import Advice, Decision, Facts, unknown


def partitions(facts: Facts) -> Advice:
    """Whether the tasks of Kafka partitions and of shuffle partitions use the cores well."""
    cores = facts.cores
    if not cores:
        return unknown(facts, "the number of cores is not known; give --cores")
    count = _partition_count(facts)
    if not count:
        return unknown(facts, "neither Kafka nor the recorded progress has the number of partitions")
    waves = math.ceil(count / cores)
    used = count / (waves * cores)
    figures: dict[str, Any] = {"partitions": count, "cores": cores, "waves": waves, "cores_used": used}
    in_waves = f"{waves} waves that use" if waves > 1 else "one wave that uses"
    arithmetic = [f"{count} Kafka partitions are {count} tasks on {cores} cores: {in_waves} {used:.0%} of them"]
    decision: Decision = "keep"
    setting, value = None, None
    recommendation = f"{count} Kafka partitions suit {cores} cores"
    if count < cores:
        decision, setting, value = "change", "minPartitions", cores
        recommendation = (
            f"set minPartitions to {cores}, or give the topics {cores} partitions: {cores - count} cores are idle"
        )
    elif waves > 1 and used < 0.75:
        decision, setting = "change", "partitions"
        value = (waves - 1) * cores if count - (waves - 1) * cores <= cores // 4 else waves * cores
        recommendation = (
            f"use a multiple of {cores} tasks, such as {value}: the last wave leaves {1 - used:.0%} of the cores idle"
        )
    elif waves > 20:
        decision, setting, value = "change", "coalesce", 3 * cores
        recommendation = (
            f"put the {count} partitions into about {3 * cores} tasks (coalesce in the transform), or use more cores: "
            f"{waves} waves of small tasks cost scheduling in every micro-batch"
        )
    shuffle = next((b.state_partitions for b in reversed(facts.batches) if b.state_partitions), None)
    if shuffle:
        figures["shuffle_partitions"] = shuffle
        arithmetic.append(f"the state has {shuffle} shuffle partitions, {shuffle / cores:.1f} for each core")
        if shuffle < cores or shuffle > 3 * cores:
            decision = "change"
            more = f"set spark.sql.shuffle.partitions to {cores} to {3 * cores} (a new checkpoint is needed)"
            recommendation = f"{more}; {recommendation}"
            setting, value = setting or "spark.sql.shuffle.partitions", value or 2 * cores
    return Advice(
        decision=decision,
        recommendation=recommendation,
        because="; ".join(arithmetic),
        setting=setting,
        value=value,
        figures=figures,
    )


def _partition_count(facts: Facts) -> int | None:
    """The topics' partitions now in Kafka, else those of the newest recorded micro-batch."""
    if facts.topics is not None:
        return sum(len(topic.partitions) for topic in facts.topics.values())
    return facts.batches[-1].partitions if facts.batches else None
