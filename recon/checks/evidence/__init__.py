"""Checks that judge witnesses: pure functions, without I/O, Spark, storage or a clock.

One module or room per check, named like the check; and what they share: `coverage` (what the ledger covers),
`row_accounting` (rows against offsets), `table_history`, `trend`, `findings` (how findings are reported). Everything a
check knows comes with `Witnesses`. Imports neither the room of the engine nor pyspark.
"""
