"""Repairs what audits refuted: reads missing offsets again, and removes doubled rows.

In reading order: `plan` decides, without I/O, what can be done about each open finding of a sink; `witnesses` reads
what it needs (the proof, the ledger, Kafka); `passed` compares the transform and the routes with the ledger's;
`missing` reads the offsets again and writes them through the sink; `doubled` finds doubled rows; `run` does a whole
repair. What can be done for a sink says its config class in recon.project.sinks (`repair_ability`); what a repair needs
of it is in `recon.sinks.repair`, and what a kind of sink gives it in the `repair` of that kind's room. Each write is an
entry of its own in the chain of the ledger, under an epoch of its own and a number that the sink takes once, so that it
can be stopped at any point and run again. Whether a finding is REPAIRED, the next audit says.
"""
