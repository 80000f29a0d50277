"""Names of the columns that recon adds to rows, and of the headers that it adds to Kafka records."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_ID = "_batch_id"
SOURCE_TOPIC = "_source_topic"
SOURCE_PARTITION = "_source_partition"
SOURCE_OFFSET = "_source_offset"
SOURCE_COLUMNS = (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET)
STAMPED_COLUMNS = (BATCH_ID, *SOURCE_COLUMNS)


@dataclass(frozen=True)
class SourceNames:
    """The columns of a table that say which record a row was made of.

    `topic` is None where no column has it: every row is of `only_topic`.
    """

    topic: str | None = SOURCE_TOPIC
    partition: str = SOURCE_PARTITION
    offset: str = SOURCE_OFFSET
    only_topic: str = ""

    @property
    def renamed(self) -> dict[str, str]:
        """Recon's name of each of the columns."""
        of = dict(zip((self.topic, self.partition, self.offset), SOURCE_COLUMNS, strict=True))
        return {column: name for column, name in of.items() if column is not None}


OWN_NAMES = SourceNames()

# Kafka's own columns in a frame that Spark read from a topic, in the order of SOURCE_COLUMNS.
KAFKA_COLUMNS = ("topic", "partition", "offset")

# A folder of file sinks, which Spark reads as a column, and a column of quarantine tables.
EPOCH = "_recon_epoch"
ATTEMPT = "_recon_attempt"  # a folder of file sinks

# Further columns of quarantine tables.
ROW_ID = "_recon_id"
REASONS = "_recon_reasons"
RELEASE = "_recon_release"
QUARANTINED_AT = "_recon_quarantined_at"
ERASED = "_erased"  # among the reasons of a row whose values `recon forget` removed
QUARANTINE_COLUMNS = (ROW_ID, REASONS, EPOCH, RELEASE, QUARANTINED_AT)

# Headers of Kafka records: these, BATCH_ID and SOURCE_COLUMNS.
EPOCH_HEADER = "_epoch"
PIPELINE_HEADER = "_pipeline"
SINK_HEADER = "_sink"
RECON_HEADERS = (BATCH_ID, EPOCH_HEADER, PIPELINE_HEADER, SINK_HEADER, *SOURCE_COLUMNS)


def batch_headers(pipeline: str, sink: str, epoch: int, batch_id: int) -> list[tuple[str, bytes]]:
    """The headers that are the same for every record of a micro-batch."""
    values = {BATCH_ID: batch_id, EPOCH_HEADER: epoch, PIPELINE_HEADER: pipeline, SINK_HEADER: sink}
    return [(name, str(value).encode()) for name, value in values.items()]


def source_headers(topic: str, partition: int, offset: int) -> list[tuple[str, bytes]]:
    """The headers that name the source record of a record."""
    return [(SOURCE_TOPIC, topic.encode()), (SOURCE_PARTITION, b"%d" % partition), (SOURCE_OFFSET, b"%d" % offset)]
