"""Whether Kafka's logs are the ones that were read: leader epochs and topic ids, as the ledger and Kafka have them."""

from __future__ import annotations

from collections.abc import Iterable

from recon.judge.coverage import Coverage, Key, TopicIncarnation
from recon.judge.findings import Findings, named
from recon.judge.kafka.kafka_states import ReadUnder, leaders_seen, read_under
from recon.judge.kafka.topic_ids import identified, with_topic_ids
from recon.model import Code, Finding, KafkaPartition, KafkaTopic, LedgerSlice, Witnesses


def judge_logs(covered: Coverage, witnesses: Witnesses, findings: Findings) -> None:
    """Adds findings where Kafka's logs are, or may be, others than those that were read; nothing without a broker."""
    of_topic: dict[str, list[TopicIncarnation]] = {}
    leaders = leaders_seen(covered.slice, witnesses.proof)
    for key, incarnations in covered.incarnations.items():
        topic = witnesses.topic(key.topic)
        if topic is not None and topic.exists:
            of_topic.setdefault(key.topic, []).append(incarnations[-1])
            where = (key.topic, key.partition)
            _judge_leader_epochs(key, topic, leaders.get(where, ()), covered.slice, witnesses, findings)
    for name, newest in of_topic.items():
        _judge_unnamed(witnesses.topic(name), newest, covered.slice, findings)


def _judge_leader_epochs(
    key: Key,
    topic: KafkaTopic,
    reads: Iterable[ReadUnder],
    ledger: LedgerSlice,
    witnesses: Witnesses,
    findings: Findings,
) -> None:
    """Adds a finding where the log was cut off below what had been read, or where that is not known.

    An unclean leader election cuts off a log; producers may have filled it again beyond the stream's position, and
    then nothing else shows that the records there are others.
    """
    partition = topic.partitions.get(key.partition)
    if partition is None:
        return
    where = (key.topic, key.partition)
    for read in sorted(reads, key=lambda read: read.position):
        if read.topic_id is not None and topic.topic_id is not None and read.topic_id != topic.topic_id:
            continue  # of a topic that was deleted since, which is reported as such
        why = _doubt(where, read, partition, ledger, witnesses)
        if why:
            head = ledger.heads[read.entry]
            findings.add(Code.INCONCLUSIVE, f"{key}: {why}", head=head, key=key)
            if not _is_accepted(identified(findings.items[-1], witnesses), witnesses):
                return  # what was read under later leaders is doubted for the same reason


def _is_accepted(finding: Finding, witnesses: Witnesses) -> bool:
    proof = witnesses.proof
    if proof is None:
        return False
    return any(one.accepted is not None and one.includes(finding) for one in with_topic_ids(proof, witnesses).open)


def _doubt(
    where: tuple[str, int], read: ReadUnder, partition: KafkaPartition, ledger: LedgerSlice, witnesses: Witnesses
) -> str:
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
    if kept is None and read.position < partition.log_start:
        proof = witnesses.proof
        reads = (other for other in read_under(ledger).get(where, ()) if other.topic_id == read.topic_id)
        later = (other for other in reads if other.epoch > read.epoch)
        if proof is not None and any(ledger.heads[other.entry].sequence <= proof.position for other in later):
            return ""  # an earlier audit compared them with the log of a later leader, which is compared itself
        return (
            f"{changed}, and Kafka's log now starts at {partition.log_start}: whether the log was cut off below offset "
            f"{read.position}, up to which {by} had read, is not known any more; audit while Kafka holds what was read"
        )
    if kept is None:
        return (
            f"{changed}, and Kafka did not say whether the new leader's log was cut off below offset {read.position}, "
            f"up to which {by} had read; audit again"
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
