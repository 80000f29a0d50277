"""What recon writes into an Iceberg table beside the rows: keys of a snapshot's summary, properties, branches.

The number of a sink's newest write is a property of the table, so that it stays known when snapshots expire.
"""

from __future__ import annotations

from secrets import token_hex

STAMP = "recon"  # of a snapshot: the stamp of the write that it publishes
# Of a snapshot: the id of the one before it, which has the rows of its MERGE. Iceberg 1.10 cannot stamp that one
# itself.
MERGED = "recon.merged"


def number_property(pipeline: str, sink: str) -> str:
    """The table property that holds the number of a sink's newest write.

    >>> number_property("orders", "lake")
    'recon.number.orders.lake'
    """
    return f"recon.number.{pipeline}.{sink}"


def branch_prefix(pipeline: str, sink: str) -> str:
    """What the names of all branches of a sink begin with."""
    return f"recon:{pipeline}:{sink}:"


def branch_name(pipeline: str, sink: str, number: int) -> str:
    """A new name for the branch of one attempt to make a write of this number."""
    return f"{branch_prefix(pipeline, sink)}{number}:{token_hex(4)}"
