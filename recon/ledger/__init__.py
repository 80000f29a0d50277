"""The ledger: one entry per sink write, hashed and chained, and the tables kept beside it.

`entries` makes an entry; `ledger` appends, reads and verifies (`open_ledger` returns it); `chain` computes the hashes;
`columns`, `files` and `arrow` turn entries into columns and back; `coverage` compares offset ranges; `rebuild` restores
entries from a sink's own record. `results`, `failures`, `progress` and `state` each declare a table beside the ledger
(`store.LedgerTable`); `store` writes all of them, by deltalake or by Spark. `key_index` is a table of hashes;
`quarantined` finds a sink's quarantine table. `heads` is a room of its own: Merkle trees over the entries,
and their signed heads.

Entries are only ever added, and columns that are stored keep their names and types. May import `model`, `project`,
`storage` and `evidence`; never `sinks`, `hook` or `audit`.
"""

from __future__ import annotations

from recon.ledger.ledger import Ledger, open_ledger

__all__ = ["Ledger", "open_ledger"]
