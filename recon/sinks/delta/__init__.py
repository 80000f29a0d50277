"""Delta sinks: append and MERGE, exactly once by `txn`, found again by `userMetadata`."""
