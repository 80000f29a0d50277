"""Tree heads: the state of the ledger, signed by audits and published where its writers cannot write.

Whoever can write the ledger can forge a whole hash chain, since it has no key. So a Merkle tree stands over the entries
of each chain. An audit signs the head of each tree (size and root), and publishes all heads in one document.

Each (pipeline, sink) has a tree of its own. Its leaves are the `entry_hash`es in the order of `sequence`, which is
sealed in each entry. So clocks, merged files and concurrent appends of other pipelines change nothing. An entry that is
stored twice is one leaf.

- The tree: `merkle` computes it, `tiles` keeps its hashes, `leaves` reads them from the ledger.
- Its heads: `keys` and `notes` sign and verify them.
- What is published: `documents`; where to: `places`; `timestamps` asks an authority for the time.
- What audits and commands call: `signing`, `proving`, `verifying`.

Kept hashes are never trusted: a root computed from them is compared with a signed one, or computed again from entries.
"""
