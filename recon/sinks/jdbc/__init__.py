"""Database sinks: rows and a row of `recon_ledger`, whose keys are the micro-batch and its number, in one transaction.

`writers` are the three sinks; `staged` is the transaction over a staging table, whose order of steps must not change;
`target` describes and checks the table that is written; `table` is what all writers share. `dialects` is the only place
that builds SQL, and quotes every identifier; `database` reads the connection, `errors` tells what an error means,
`rows` converts values. `repair` is for `recon repair`, and `late` writes what it reads.
"""
