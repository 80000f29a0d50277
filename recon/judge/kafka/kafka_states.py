"""What the broker said of the logs while the query ran, as ledger entries have it: leader epochs, log starts,
open transactions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from recon.base.errors import LedgerError
from recon.base.lazy import np
from recon.judge.kafka.judged_logs import KafkaLogs, LogJudged
from recon.model import LedgerSlice
from recon.model.grouping import spans_by
from recon.model.offsets import OffsetSpan, Spans
from recon.model.once import kept
from recon.model.proof import SinkProof
from recon.model.wire.kafka_state import KafkaState, parse_kafka_state

TopicPartition = tuple[str, int]


class ReadUnder(NamedTuple):
    """How far the stream had read when a leader epoch was the newest.

    `position` is the next offset, `entry` the entry that came to it. All that was read before it was written by this
    leader or by earlier ones.
    """

    epoch: int
    position: int
    entry: int
    topic_id: str | None


@kept
def kafka_states(ledger: LedgerSlice) -> Sequence[KafkaState]:
    """The broker's answers in a slice, in the order in which it was asked; one that cannot be read is left out."""
    states = []
    for head in ledger.heads:
        if head.kafka_state is not None:
            with suppress(LedgerError):  # the entry was edited, which ledger_integrity reports
                states.append(parse_kafka_state(head.kafka_state))
    return sorted(states, key=lambda state: state.after)


def was_held(ledger: LedgerSlice, sequence: int, where: TopicPartition, offset: int) -> bool | None:
    """Whether Kafka still held an offset after the entry with this sequence had read it, as the broker said later.

    None where nobody asked it.
    """
    states = kafka_states(ledger)
    topic, partition = where
    for state in states[bisect_left([state.after for state in states], sequence) :]:
        logs = state.topics.get(topic)
        if logs is not None and logs.log_start is not None and partition in logs.partition:
            return logs.log_start[logs.partition.index(partition)] <= offset
    return None


def open_transactions(ledger: LedgerSlice, proof: SinkProof | None) -> Mapping[TopicPartition, Spans]:
    """The offsets of each topic partition that were behind an open transaction when the hook or an audit looked."""
    in_states = _open_in_states(ledger)
    judged = ((log.topic, log.partition, log.open_transactions) for log in _judged(proof))
    seen = [((topic, partition), span) for topic, partition, span in judged if span is not None]
    return spans_by([*in_states, *seen])


def _judged(proof: SinkProof | None) -> Sequence[LogJudged]:
    judged = proof.memory(KafkaLogs) if proof is not None else None
    return judged.logs if judged is not None else ()


@kept
def _open_in_states(ledger: LedgerSlice) -> Sequence[tuple[TopicPartition, tuple[int, int]]]:
    found = []
    for state in kafka_states(ledger):
        for topic, logs in state.topics.items():
            # Without transactions the columns are the same.
            if logs.last_stable is not None and logs.high_watermark not in (None, logs.last_stable):
                for number, *span in zip(logs.partition, logs.last_stable, logs.high_watermark or (), strict=True):
                    found.append(((topic, number), (span[0], span[1])))
    return found


def leaders_seen(ledger: LedgerSlice, proof: SinkProof | None) -> Mapping[TopicPartition, Sequence[ReadUnder]]:
    """How far the stream had come under each leader epoch: of what audits judged as the proof has it, and since then.

    What was read before its position was compared with the proof's logs, and questions about it are open, or accepted.
    """
    found, logs = _read_under(ledger), _judged(proof)
    if proof is None or not logs:
        return found
    judged, heads = {log.leader[:3] for log in logs}, ledger.heads
    later: dict[TopicPartition, list[ReadUnder]] = {
        where: [
            read
            for read in reads
            if (where[0], read.topic_id, where[1]) not in judged or heads[read.entry].sequence > proof.position
        ]
        for where, reads in found.items()
    }
    newest = _newest_reader(ledger, bisect_right([head.sequence for head in heads], proof.position) - 1)
    if newest is not None:
        _add_judged(later, logs, ledger, newest)
    return later


def _add_judged(
    found: dict[TopicPartition, list[ReadUnder]], logs: Sequence[LogJudged], ledger: LedgerSlice, newest: int
) -> None:
    """Adds the logs that audits judged; `newest` is the last entry that they saw."""
    seen = set[TopicPartition]()
    for log in logs:
        where = (log.topic, log.partition)
        reads = found.setdefault(where, [])
        same = (read for read in reads if (read.topic_id, read.epoch) == (log.topic_id, log.leader_epoch))
        if not any(read.position >= log.position for read in same):
            # The second log of a topic partition was in the place of a doubted one, and read beyond the position.
            came_to = _came_to(ledger, log) if where in seen else None
            entry = newest if came_to is None else came_to
            reads.append(ReadUnder(log.leader_epoch, log.position, entry, log.topic_id))
        seen.add(where)


def _came_to(ledger: LedgerSlice, log: LogJudged) -> int | None:
    """The newest micro-batch's entry that read of a log up to its position, and no further; None without one."""
    ranges = ledger.ranges
    topics = [i for i, (_, name, topic_id) in enumerate(ranges.topics) if (name, topic_id) == (log.topic, log.topic_id)]
    mine = (ranges.partition == log.partition) & np.isin(ranges.topic, topics) & (ranges.end <= log.position)
    return next((int(i) for i in reversed(ranges.entry[mine]) if ledger.heads[int(i)].is_micro_batch), None)


@kept
def _read_under(ledger: LedgerSlice) -> dict[TopicPartition, list[ReadUnder]]:
    sequences = [head.sequence for head in ledger.heads]
    by_epoch: dict[TopicPartition, dict[int, ReadUnder]] = {}
    for topic, state in _last_of_each(kafka_states(ledger)):
        entry = _newest_reader(ledger, bisect_right(sequences, state.after) - 1)
        if entry is None:
            continue
        logs = state.topics[topic]
        epochs = dict(zip(logs.partition, logs.leader_epoch, strict=True))
        for read in ledger.ranges.of(entry):
            epoch = epochs.get(read.partition) if read.topic == topic else None
            if epoch is not None:
                _note(by_epoch.setdefault((topic, read.partition), {}), epoch, read, entry)
    return {where: list(of.values()) for where, of in by_epoch.items()}


def _note(of: dict[int, ReadUnder], epoch: int, read: OffsetSpan, entry: int) -> None:
    known = of.get(epoch)
    if known is None or known.position <= read.end_offset or known.topic_id != read.topic_id:
        of[epoch] = ReadUnder(epoch, read.end_offset, entry, read.topic_id)


def _last_of_each(states: Sequence[KafkaState]) -> list[tuple[str, KafkaState]]:
    """Per topic the last of each run of answers with the same leader epochs: a day has thousands of answers."""
    last: list[tuple[str, KafkaState]] = []
    before: dict[str, KafkaState] = {}
    for state in states:
        for topic, logs in state.topics.items():
            known = before.get(topic)
            if known is not None and known.topics[topic].leader_epoch != logs.leader_epoch:
                last.append((topic, known))
            before[topic] = state
    return [*last, *before.items()]


def _newest_reader(ledger: LedgerSlice, entry: int) -> int | None:
    """The entry, or the newest before it, that is of a micro-batch; None where the slice begins later."""
    while entry >= 0 and not ledger.heads[entry].is_micro_batch:
        entry -= 1
    return entry if entry >= 0 else None
