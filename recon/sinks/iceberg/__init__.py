"""Iceberg sinks: append and MERGE, exactly once.

Spark writes a micro-batch to a branch of its own; `publish` then makes the branch the table in one commit of the
catalog, which also sets the number of the write as a property of the table, and which the catalog refuses unless the
table is still the one that was looked at. `append` and `merge` are the two writers.
"""
