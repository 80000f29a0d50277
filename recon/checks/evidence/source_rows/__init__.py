"""source_rows: every offset the stream read is in a row of the sink once, or its absence is explained.

`check` is the check and the order in which it looks; `reasons` says when counts are not enough and rows are needed.
`missing` judges offsets that have no row, `present` rows that are doubled, aborted or unaccounted for, `quarantine`
what the ledger counts as quarantined, `rewriting` the sinks whose rows later micro-batches replace, with `of_table` for
a Delta table that is read. They share `rows`: the sink's rows against the ranges that the ledger's entries read.

A new reason why an offset may have no row without a loss belongs into `missing`, and its count into `Explained`;
whatever cannot be decided stays INCONCLUSIVE, never a pass.
"""
