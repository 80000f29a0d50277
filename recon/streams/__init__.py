"""How a stream runs, from what Spark reports about it.

`listener` is the query-progress listener that records each micro-batch's progress beside the ledger; `advise`
computes recommended settings from those records, recon.yml and Kafka. The listener must never slow down or stop the
query, and advice changes nothing.
"""
