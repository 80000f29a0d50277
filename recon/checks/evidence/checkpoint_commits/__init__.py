"""checkpoint_commits: what Spark planned and finished, against what the ledger and the sink hold.

`check` is the check and its findings, `plans` the ranges that Spark planned, `writes` which ledger entry or commit of
the sink belongs to which plan, `transactions` the numbers by which Delta recognises a repeated write. Findings and
messages change in `check` alone; the others only answer questions about one checkpoint and one sink.
"""
