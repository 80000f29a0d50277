"""The rows of a sink against the offsets that were read: which have no row and why, and which have several.

`rows_from_commit_files` and `spot_check` look into the data files of single commits; `rewriting` judges sinks whose
rows later micro-batches replace, by their counts.
"""
