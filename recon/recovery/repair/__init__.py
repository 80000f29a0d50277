"""Repairs what audits refuted: reads missing offsets again, and removes doubled rows.

In reading order:

- `plan` decides, without I/O, what can be done about each open finding of a sink.
- `witnesses` reads what the plan needs: the proof, the ledger, Kafka.
- `passed` compares transform and routes with those that the ledger names.
- `missing` reads the offsets again and writes them through the sink; `doubled` finds doubled rows.
- `run` does a whole repair.

A sink's config class says what can be done for it (`repair_ability` in recon.project.sinks). What a repair needs of a
sink is in `recon.write.sinks.repair`, and what a kind of sink gives it in the `repair` of that kind's room.

Each write is a ledger entry of its own, under an epoch of its own and a number that the sink takes once. So a repair
can be stopped at any point and run again. The next audit says whether a finding is REPAIRED.
"""
