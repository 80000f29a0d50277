"""The columns that recon adds to every row: which micro-batch wrote it, and where in Kafka it comes from."""

from __future__ import annotations

BATCH_ID = "_batch_id"
SOURCE_TOPIC = "_source_topic"
SOURCE_PARTITION = "_source_partition"
SOURCE_OFFSET = "_source_offset"
SOURCE_COLUMNS = (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET)
STAMPED_COLUMNS = (BATCH_ID, *SOURCE_COLUMNS)
