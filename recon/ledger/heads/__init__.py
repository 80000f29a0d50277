"""Tree heads: what the ledger was, signed by audits and published where who writes the ledger cannot write.

A hash chain without a key can be forged whole by whoever can write it. Over the entries of each chain stands a Merkle
tree; an audit signs the heads (size and root) of all chains, and publishes them in one document.

Each (pipeline, sink) has a tree of its own. Its leaves are the `entry_hash`es in the order of `sequence`, which is
sealed in each entry: pipelines that append at the same moment append to different trees, and merging files, clocks and
stored order change nothing. An entry that is stored twice is one leaf.

`merkle` is the tree, `tiles` keeps its hashes, `leaves` reads them from the ledger; `keys` and `notes` sign and verify
heads; `documents` is what is published, `places` where to, `timestamps` asks an authority for the time; `signing`,
`proving` and `verifying` are what audits and commands call. Kept hashes are never trusted: a root that is made of them
is compared with a signed one, or they are made again from the entries.
"""
