"""Formats that cross a process, each written and read by one module here and nowhere else.

`stamp` (commit metadata and offset ranges as text), `app_ids` (Delta's transaction ids), `columns` (the columns that
recon adds to rows), `iceberg` (keys, properties and branches of a table), `ledger_row`, `manifests` (files), `markers`
(Kafka), `quarantine`.

A change here must still read what older versions wrote: audits compare these texts with what is in a ledger, a table
or a topic.
"""
