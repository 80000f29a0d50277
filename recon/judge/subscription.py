"""The subscription: which topic partitions the query is to read, and up to where it has read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recon.judge.coverage import Key
from recon.model import CheckpointWitness, PreviousAudit, Witnesses, known
from recon.model.offsets import Span
from recon.model.proof import SinkProof


@dataclass(frozen=True)
class Subscription:
    """What recon.yml names, against the newest plan and what earlier audits saw.

    `topics` are those of recon.yml; where it is not known which, every topic counts as named.
    """

    topics: frozenset[str]
    checkpoint: CheckpointWitness | None
    proof: SinkProof | None
    previous: PreviousAudit | None

    @classmethod
    def of(cls, seen: Witnesses) -> Subscription:
        """The subscription of the judged sink's query."""
        return cls(frozenset(seen.topics), known(seen.checkpoint), seen.proof, known(seen.previous))

    def names(self, topic: str) -> bool:
        """Whether recon.yml names a topic."""
        return not self.topics or topic in self.topics

    def plans(self, key: Key) -> bool:
        """Whether the newest plan of the checkpoint has a topic partition."""
        last = self.checkpoint.last if self.checkpoint is not None else None
        if last is None:
            return False
        new = {(topic, partition) for _, topic, partition, _ in last.new_partitions}
        return (key.topic, key.partition) in {(span.topic, span.partition) for span in last.ranges} | new

    def read_before(self, key: Key, topic_id: str | None) -> int | None:
        """Up to where the micro-batches that earlier audits judged read a topic partition; None where none did."""
        ends = (
            covered.ranges[-1][1]
            for covered in (self.proof.coverage if self.proof is not None else ())
            if (covered.topic, covered.partition) == (key.topic, key.partition) and covered.ranges
            if topic_id is None or covered.topic_id in (None, topic_id)
        )
        return max(ends, default=None)

    def left_waiting(self, looked_at: frozenset[str]) -> Iterator[tuple[Key, Span]]:
        """What waited, as the audit before saw, in partitions of topics that recon.yml does not name any more.

        `looked_at` are the topics of which Kafka is asked now. What nobody ever read was never of the query.
        """
        for (topic, partition), end in (self.previous.log_ends if self.previous is not None else {}).items():
            key = Key(0, topic, partition)
            read = self.read_before(key, None)
            if topic not in looked_at and not self.names(topic) and read is not None and read < end:
                yield key, Span(read, end)

    def awaited_from(self, key: Key, topic_id: str | None) -> int | None:
        """The first offset that the query is to read of a topic partition that no entry of the period has.

        Of one that was never read it is the log start that an earlier audit saw; None where no audit saw it.
        """
        read = self.read_before(key, topic_id)
        if read is not None:
            return read
        seen = self.previous.log_starts.get((key.topic, key.partition)) if self.previous is not None else None
        return None if seen is None else seen[1]
