"""What the evidence checks judge with: pure functions of witnesses, without I/O, Spark, storage or a clock.

`case` is where a check begins: `SinkCase` has everything that an audit knows of one sink, found when it is first asked
for. What it finds comes from the modules below it: `coverage` has what the ledger's ranges cover, and their holes;
`source` what Kafka, or the log that is read instead, says of offsets; `row_counts` holds rows against offsets, with
`stateful_operators` and `second_calls`; `history` is what happened to a sink. These take the facts that they rest on,
never the case.

Above it, `rows` looks at the rows of a sink, and `account` says what became of every offset. `kafka` judges topics,
`checkpoint` what Spark planned. `findings` collects what a check reports, `open_findings` holds it against what earlier
audits left open. `memories` lists what is remembered of a sink from audit to audit.

Nothing here knows a check, and import-linter holds that.
"""
