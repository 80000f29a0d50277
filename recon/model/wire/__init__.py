"""Formats that cross a process, each written and read by one module here and nowhere else.

- With the rows: `stamp` (commit metadata, offset ranges as text), `app_ids` (Delta's transaction ids), `columns` (those
  that recon adds to rows).
- Of kinds of sinks: `iceberg` (keys, properties, branches), `ledger_row` (databases), `manifests` (files), `markers`
  (Kafka), `quarantine`.
- In the ledger: `kafka_state`, `processing_signature`, `proof`.

`values` refuses what has another type than expected. A change here must still read what older versions wrote: audits
compare these texts with what is in a ledger, a table or a topic.
"""
