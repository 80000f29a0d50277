"""Repairs what audits refuted: reads missing offsets again, and removes doubled rows.

In reading order: `kinds` says what can be done for which kind of sink; `plan` decides, without I/O, what can be done
about each open finding; `witnesses` reads what it needs (the proof, the ledger, Kafka); `passed` compares the transform
and the routes with the ledger's; `missing` reads the offsets again and writes them through the sink; `doubled` removes
rows; `store` is what a repair needs of a sink, `in_delta`, `in_database` and `in_files` what these kinds give it, and
`stores` chooses; `run` does a whole repair. Each write is an entry of its own in the chain of the ledger, under an
epoch of its own and a number that the sink takes once, so that it can be stopped at any point and run again. Whether a
finding is REPAIRED, the next audit says.
"""
