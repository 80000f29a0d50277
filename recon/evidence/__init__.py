"""Readers of evidence, one module per witness: what each finds is given as plain values of recon.model.

`checkpoint` (Spark's own files), `delta_log` (a table's log; `delta_commits` parses its files), `kafka` (topics as the
broker describes them), `kafka_probe` (which offsets a reader receives), `kafka_markers`, `manifests` and `jdbc_ledger`
(what Kafka, file and database sinks record of recon's writes), `sink_rows` (the rows themselves, by Spark).

Read only: nothing here writes, and nothing decides whether what it found is right.
"""
