"""Everything recon needs of Spark itself, and the only place where its API is wrapped.

`session` returns the active session or builds one, `jvm` starts its JVM and `jars` compares what that fetched with a
list of digests, `connect` knows whether a session is one of Spark Connect, `settings` changes a session's settings for
one statement, `errors` turns a Spark error into one sentence, `columns` quotes names, `frames` makes small frames,
`merge` has MERGE as SQL, `delta_tables` merges into Delta tables and creates them, `observation` waits for observed
counts, `lazy` imports `pyspark.sql.functions` when first used. Imports of recon only `project`, `lazy`, `text` and
`errors`.
"""
