"""Enters in the ledger what a stream wrote without recon (`write: native` or `foreach_batch` in recon.yml).

`look` reads the table's log and the checkpoint once, and enters the micro-batches that have no entry yet. An audit
looks before it judges. `recon observe` looks again and again, as Spark keeps only about 100 micro-batches in the
checkpoint. `found` is what `recon init --from` writes a recon.yml from.

Writes ledger entries and nothing else: neither the table nor the checkpoint.
"""

from __future__ import annotations

from recon.write.observer.look import ObservationResult, look

__all__ = ["ObservationResult", "look"]
