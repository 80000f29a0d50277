"""Checks that judge witnesses: pure functions of `Witnesses`, without I/O, Spark, storage or a clock.

One module or package per check, named like the check in recon.yml. A new check is such a module with a class derived
from `EvidenceCheck` (or `ProgressCheck`), its line in recon.checks.registry and its tests. It adds `Findings`; messages
may be bettered freely, while codes and the keys of `evidence` are read by reports and by the next audit.

What checks share: `coverage` (what the ledger's ranges cover, and their holes), `row_accounting` (rows against offsets)
with `stateful_operators`, `recon_commits` (entries against the sink's own record), `table_history` (what Delta commits
did to rows), `progress` and `trend` (Spark's query progress), `findings`. Nothing here may import pyspark, storage or
recon.checks.engine: import-linter holds that.
"""
