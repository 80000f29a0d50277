"""Rows that fail a check with `on_failure: quarantine`: kept in a table of their own, and released later.

`rows` evaluates row checks on a micro-batch and splits it, `table` writes the quarantine table, `show` counts what is
in it. `release` writes pending rows into their sink once: `repair` applies the user's repair, `once` refuses rows that
are there twice, `claims` marks the rows first. `groups` reads the table as a witness for an audit.

Imports the ledger and sinks; reads neither the checkpoint nor Kafka.
"""
