"""How a stream runs, from what Spark reports about it.

`listener` is the query-progress listener that records each micro-batch's progress beside the ledger. `looks` enters in
the ledger what a stream of the listener's driver wrote without recon. `advise` gathers `facts` from those records,
recon.yml and Kafka and applies `rules`, one module each (`cost` and `units` are their arithmetic). The listener must
never slow down or stop the query, and advice changes nothing.
"""
