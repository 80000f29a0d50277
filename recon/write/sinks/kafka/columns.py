"""Columns of the frame that the driver makes and the tasks read."""

from __future__ import annotations

# What becomes a record.
KEY, VALUE, HEADERS, PARTITION = "key", "value", "headers", "partition"
# The task that a row belongs to, its source record, and hashes of the source record and of what becomes a record.
TASK, TOPIC, FROM, OFFSET, IDS, CONTENT = "_task", "_topic", "_partition", "_offset", "_ids", "_content"
