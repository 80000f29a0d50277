"""How a stream runs, from what Spark reports about it.

`listener` is the query-progress listener: it records each micro-batch's progress beside the ledger. Beside it, `looks`
enters what a stream of the same driver wrote without recon, and `watch` tells when queries start, end and stall.

`advise` gathers `facts` from those records, recon.yml and Kafka, and applies `rules`, one module each. `cost` and
`units` are their arithmetic. The listener must never slow down or stop the query, and advice changes nothing.
"""
