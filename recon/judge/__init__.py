"""What the evidence checks judge with: pure functions of witnesses, without I/O, Spark, storage or a clock.

`coverage` has what the ledger's ranges cover, and their holes; `row_counts` holds rows against offsets, with
`stateful_operators` and `second_calls`. `rows` looks at the rows of a sink, `history` at what happened to it, `kafka`
at topics, `checkpoint` at what Spark planned. `findings` collects what a check reports, `open_findings` holds it
against what earlier audits left open. `memories` lists what is remembered of a sink from audit to audit.

Nothing here knows a check, and import-linter holds that.
"""
