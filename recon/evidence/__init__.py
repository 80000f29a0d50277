"""Readers of evidence, one module per witness: each gives what it reads as plain values of recon.model.

`checkpoint` (Spark's own files), `delta_log` (a table's log; `delta_commits` parses its files), `iceberg` (a table's
metadata, in the same form), `kafka` (topics as the broker describes them), `kafka_probe` (which offsets a reader
receives), `kafka_markers`, `manifests` and `jdbc_ledger` (what Kafka, file and database sinks record of recon's
writes), `sink_rows` (the rows themselves, by Spark). `kafka_admin` is the connection that the Kafka readers share.

Read only: nothing here writes, and nothing decides whether what it read is right; that is recon.judge. A
reader raises EvidenceError where it cannot read, with the next step; the audit makes an `Unavailable` of it. Formats
that recon itself writes are parsed by recon.model.wire; those of Spark, Delta and Kafka here, with their source.
"""
