"""Repairs what audits refuted, in sinks of kind delta: reads missing offsets again, and removes doubled rows.

In reading order: `plan` decides, without I/O, what can be done about each open finding; `witnesses` reads what it needs
(the proof, the ledger, Kafka); `missing` reads the offsets again and writes them through the sink; `doubled` removes
rows; `run` does a whole repair. Each write is an entry of its own in the ledger's chain, under an epoch and a txn app
id of its own, so that it can be interrupted at any point and run again. Whether a finding is REPAIRED, the next audit
says.
"""
