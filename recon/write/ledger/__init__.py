"""The ledger: one entry per sink write, hashed and chained, and the tables kept beside it.

In reading order:

- An entry: `entries` makes it, `chain` hashes it, `rebuild` restores it from a sink's own record.
- The ledger: `ledger` appends, reads and verifies, with `reader`; `coverage` compares offset ranges; `view` is a ledger
  as it was earlier.
- Its columns: `columns`, `files` and `arrow` convert entries to columns and back; `canonical_json` is what is hashed.
- Tables beside it (`store.LedgerTable`): `results` with `sealed_results`, `failures`, `progress`, `state`, `proofs`
  with `unsaved_findings`, `erasures`; `key_index` is a table of hashes, `quarantined` finds a sink's quarantine table.
- `store` writes all tables, by deltalake or by Spark. `heads` has Merkle trees over the entries, and their signed
  heads.

Entries are only ever added, and stored columns keep their names and types. Imports neither checks nor the other rooms
of `write`.
"""

from __future__ import annotations

from recon.write.ledger.ledger import Ledger, open_ledger

__all__ = ["Ledger", "open_ledger"]
