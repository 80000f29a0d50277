"""After a crash or a lost checkpoint: explains and repairs, without starting the query.

`explain` says what Spark will run next and what each sink will do with it; `starting_offsets` says where a new
checkpoint must start; `rebuild` restores ledger entries that a crash left out. `explain` changes nothing. May not
import `hook`'s writers or the rooms beside it (`audit`, `streams`).
"""
