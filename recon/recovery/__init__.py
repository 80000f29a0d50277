"""After a crash or a lost checkpoint: explains what the next start will do, and restores lost ledger entries.

`explain` says what Spark will run next and what each sink will do with it (`ranges`: whether Kafka still has the
offsets); `starting_offsets` says where a new checkpoint must start; `rebuild` restores ledger entries that a crash left
out; `verify` compares the ledger's chains with the sinks' commits. Nothing here starts the query, and only `rebuild`
writes. Imports none of the rooms beside it (`audit`, `streams`).
"""
