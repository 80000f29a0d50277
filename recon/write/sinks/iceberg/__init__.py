"""Iceberg sinks: append and MERGE, exactly once.

Spark writes a micro-batch to a branch of its own. `publish` then makes the branch the table, in one commit of the
catalog that also sets the number of the write as a property of the table. The catalog refuses this commit where the
table has changed since it was read. `append` and `merge` are the two writers.
"""
