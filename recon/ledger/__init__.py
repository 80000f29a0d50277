"""The ledger: one entry per sink write, hashed and chained, and the tables kept beside it.

`entries` makes an entry; `ledger` appends, reads and verifies (`open_ledger` returns it); `chain` computes the hashes;
`store` writes the Delta table by deltalake or by Spark; `columns`, `files` and `arrow` turn entries into columns and
back; `rebuild` restores entries from a sink's own record. The other modules are the tables beside it: `results`,
`state`, `key_index`, `progress`, `failures`, `quarantined`.

Entries are only ever added. May import `model`, `project`, `storage` and `evidence`; never `sinks`, `hook` or
`audit`.
"""

from __future__ import annotations

from recon.ledger.ledger import Ledger, open_ledger

__all__ = ["Ledger", "open_ledger"]
