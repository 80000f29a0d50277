"""After a crash, a lost checkpoint or a refuted audit: explains what happened and what comes next, and repairs.

- Explain: `explain` predicts the next start, with `ranges` (what Kafka still has). `starting_offsets` says where a new
  checkpoint must start, with `planned_offsets`.
- Follow a record: `trace`, with `paths` (one pipeline) and `hops` (the streams behind it); `sample` does so for many.
- Verify: `verify` compares the ledger's chains with the sinks' commits.
- Write: `rebuild` restores lost ledger entries, `repair` reads lost offsets again and removes doubled rows, `forget`
  erases a person's rows from what recon keeps.

Nothing here starts the query. Imports none of the rooms beside it (`audits`, `convert`, `testing`).
"""
