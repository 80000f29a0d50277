"""Enters in the ledger what a stream wrote without recon (`write: native` or `foreach_batch` in recon.yml).

`look` is one look: it reads the table's log and the checkpoint, and enters the micro-batches that have no entry yet. An
audit looks before it judges; `recon observe` looks again and again beside the stream, since Spark keeps about 100
micro-batches in the checkpoint. Writes entries of the ledger and nothing else: neither the table nor the checkpoint.
"""

from __future__ import annotations

from recon.observer.look import ObservationResult, look

__all__ = ["ObservationResult", "look"]
