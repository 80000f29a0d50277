"""Whether Kafka's logs are the ones that were read: leader epochs and topic ids, as the ledger and Kafka have them."""

from __future__ import annotations

from collections.abc import Iterable

from recon.judge.coverage import Coverage, Key, TopicIncarnation
from recon.judge.findings import Findings
from recon.judge.kafka.kafka_states import ReadUnder, leaders_seen
from recon.judge.kafka.topic_ids import identified, with_topic_ids
from recon.judge.source import Source
from recon.model import Code, Finding, KafkaPartition, KafkaTopic, LedgerSlice
from recon.model.ledger import named
from recon.model.proof import SinkProof


def judge_logs(covered: Coverage, source: Source, proof: SinkProof | None, findings: Findings) -> None:
    """Adds findings where Kafka's logs are, or may be, others than those that were read; nothing without a broker."""
    of_topic: dict[str, list[TopicIncarnation]] = {}
    leaders = leaders_seen(covered.slice, proof)
    for key in covered.incarnations:
        topic, newest = source.topic(key.topic), covered.newest(key)
        if topic is not None and topic.exists and newest is not None:
            of_topic.setdefault(key.topic, []).append(newest)
            where = (key.topic, key.partition)
            _judge_leader_epochs(key, topic, leaders.get(where, ()), covered.slice, proof, findings)
    for name, incarnations in of_topic.items():
        _judge_unnamed(source.topic(name), incarnations, covered.slice, findings)


def _judge_leader_epochs(
    key: Key,
    topic: KafkaTopic,
    reads: Iterable[ReadUnder],
    ledger: LedgerSlice,
    proof: SinkProof | None,
    findings: Findings,
) -> None:
    """Adds a finding where the log was cut off below what had been read, or where that is not known.

    An unclean leader election cuts off a log; producers may have filled it again beyond the stream's position, and
    then nothing else shows that the records there are others.
    """
    partition = topic.partitions.get(key.partition)
    if partition is None:
        return
    for read in sorted(reads, key=lambda read: read.position):
        if read.topic_id is not None and topic.topic_id is not None and read.topic_id != topic.topic_id:
            continue  # of a topic that was deleted since, which is reported as such
        why = _doubt(read, partition, ledger)
        if why:
            head = ledger.heads[read.entry]
            findings.add(Code.INCONCLUSIVE, f"{key}: {why}", head=head, key=key)
            if not _is_accepted(findings.items[-1], ledger, proof):
                return  # what was read under later leaders is doubted for the same reason


def _is_accepted(finding: Finding, ledger: LedgerSlice, proof: SinkProof | None) -> bool:
    if proof is None:
        return False
    finding, known = identified(finding, ledger, proof), with_topic_ids(proof, ledger).open
    return any(open_.accepted is not None and open_.includes(finding) for open_ in known)


def _doubt(read: ReadUnder, partition: KafkaPartition, ledger: LedgerSlice) -> str:
    """Why the log may not be the one that was read; "" where it is."""
    now = partition.leader_epoch
    if now is None or now == read.epoch or read.position > partition.high_watermark:
        return ""  # a log that ends below the position is reported as such
    by, changed = named(ledger.heads[read.entry]), f"its leader epoch was {read.epoch} and is {now}"
    if now < read.epoch:
        return (
            f"{changed}: the topic was deleted and created again, or its log restored; what was read up to offset "
            f"{read.position} ({by}) cannot be compared with it"
        )
    kept = partition.kept.get((read.epoch, read.position))
    if kept is False:
        return (
            f"{changed}, and the new leader's log was cut off below offset {read.position}, up to which {by} had read: "
            "an unclean leader election; what producers wrote there since was not read, and what was read there is no "
            "longer in Kafka: compare them at the source, and read the offsets again from where the logs differ"
        )
    if kept is None:
        return (
            f"{changed}, and whether the log was cut off below offset {read.position}, up to which {by} had read, is "
            "not known; audit again, while Kafka holds what was read"
        )
    return ""


def _judge_unnamed(
    topic: KafkaTopic | None, incarnations: Iterable[TopicIncarnation], ledger: LedgerSlice, findings: Findings
) -> None:
    """Adds a finding where a topic was read whose id was not known then, and is known now."""
    if topic is None or topic.topic_id is None:
        return
    entries = [
        stretch.last
        for incarnation in incarnations
        for stretch in (
            *incarnation.unnamed,
            *(incarnation.unnamed_since if incarnation.topic_id != topic.topic_id else ()),
        )
        if stretch.first >= ledger.anchors
    ]
    if entries:
        head = ledger.heads[max(entries)]
        findings.add(
            Code.INCONCLUSIVE,
            f"topic {topic.topic} has the id {topic.topic_id}, and up to {named(head)} the hook did not learn the id "
            "of the topic that it read: if that was another one, deleted and created again since, the first records of "
            "the new one were not read; let the hook reach the broker, and accept this if the topic is the same",
            head=head,
            topic=topic.topic,
        )
