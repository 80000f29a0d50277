"""Delta sinks: append and MERGE, exactly once.

`append` and `merge` are the two writers; `statements` builds the MERGE, and `commit` gives it txn and userMetadata;
`repair` is for `recon repair`. Each commit carries Delta's `txn`, by which a replay is skipped, and recon's stamp in
`userMetadata`, by which it is found again. Session settings for `txn` must always be unset afterwards.
"""
