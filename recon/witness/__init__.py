"""Readers of evidence, one module per witness: each gives what it reads as plain values of recon.model.

- Spark: `checkpoint` (its own files about each micro-batch).
- The source: `kafka` (topics now), `kafka_logs` (their logs, in the ledger's columns), `kafka_probe` (which offsets a
  reader receives), all on `kafka_admin`; `source_table` (a Delta table), `source_files` (a folder of files,
  on `file_logs`).
- A Delta table: `delta_log`, on `delta_commits` (parses commit files); `delta_files`, `commit_rows` (offsets of rows).
- An Iceberg table: `iceberg`, in the same form as a Delta log.
- The record that a sink has of recon's writes: `kafka_markers`, `manifests` with `manifest_files`, `jdbc_ledger`.
- The rows of a sink: `sink_rows` (by Spark); `quarantine_rows`; single ones by `delta_rows`, `file_rows`, `kafka_rows`.
- A stream that writes without recon: `observed`, `observed_rows`.

Read only: nothing here writes, and nothing decides whether what it read is right; that is recon.judge. A reader that
cannot read raises EvidenceError with the next step; the audit makes an `Unavailable` of it. Formats that recon itself
writes are parsed by recon.model.wire; those of Spark, Delta and Kafka here, with their source.
"""
