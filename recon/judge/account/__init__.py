"""What became of every offset: the account, found once for each sink of an audit.

Offsets without a row go through a list of providers: each classifies those that it knows of, and the next gets the
rest. The lists are the order of precedence. `recorded` has the providers that need the ledger and the rows,
`told_by_kafka` those that need Kafka's answers, `records` those of records that Kafka has. A new reason why an offset
has no row is a provider, or a line in one.
What no provider knows is "not known", never a pass.

`missing` reports what they found as findings of source_rows. `lines` makes the account of the whole sink.
"""
