"""Everything recon needs of Spark itself, and the only place where its API is wrapped.

- The session: `session` returns the active one or builds one; `jvm` starts its JVM; `packages` names what to fetch, and
  `jars` compares what was fetched with a list of digests. `connect` knows Spark Connect, `releases` how PySpark's
  releases differ, `settings` changes settings for one statement, `errors` makes one sentence of a Spark error.
- Tables: `catalog` and `catalogs` find where they are, with and without Spark; `delta_tables` merges into Delta tables
  and creates them; `merge` has MERGE as SQL.
- Rows: `columns` quotes names, `frames` makes small frames, `fingerprint` is an aggregate, `observation` waits for
  observed counts, `lazy` imports `pyspark.sql.functions` when first used.
- Streams: `kafka` has the options of Spark's Kafka source, `running_query` what only Spark knows of a query.

Imports nothing of recon but `project`, `model` and `base`.
"""
