"""Checks that judge witnesses: pure functions, without I/O, Spark, storage or a clock.

One module per check, named like the check (`progress` has three), and what they share: `coverage` (what the ledger
covers), `row_accounting` (rows against offsets), `findings` and `range_text` (how findings are reported).
`source_rows` is a room of its own. Everything a check knows comes with `Witnesses`; imports neither `engine` nor
pyspark.
"""
