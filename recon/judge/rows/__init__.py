"""The rows of a sink against the offsets that were read: which have no row and why, and which have several.

`of_sink` begins: `RowEvidence` has what counts leave open, and the rows that were read. `spot_check` looks into the
data files of single commits; `rewriting` judges sinks whose rows later micro-batches replace, by their counts.
"""
