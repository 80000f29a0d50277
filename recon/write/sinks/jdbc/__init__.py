"""Database sinks: a micro-batch's rows and its row of `recon_ledger` are written in one transaction.

`writers` are the three sinks. `staged` is the transaction over a staging table, whose order of steps must not change;
`target` describes and checks the table that is written; `table` is what all writers share. `dialects` is the only place
that builds SQL, and quotes every identifier. `database` reads the connection, `errors` tells what an error means,
`rows` converts values. `repair` is for `recon repair`, and `late` writes what it reads again.
"""
