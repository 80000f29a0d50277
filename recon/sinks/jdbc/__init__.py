"""Database sinks: rows and a row of `recon_ledger`, whose key is the micro-batch, in one transaction.

`writers` are the three sinks, `staged` the transaction over a staging table, `dialects` the SQL of each database,
`database` the connection and its errors, `table` the target, `rows` the conversion of values. SQL text is only built
in `dialects`, where every identifier is quoted.
"""
