"""How a stream runs: the query-progress listener, and advice computed from what it recorded."""
