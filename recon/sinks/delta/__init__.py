"""Delta sinks: append and MERGE, exactly once.

`append` and `merge` are the two writers; `reduce` makes one row per key before a MERGE, `statements` builds it. Each
commit carries Delta's `txn`, so that a replay is skipped, and recon's stamp in `userMetadata`, by which the commit is
found again. Session settings for `txn` are always unset afterwards.
"""
