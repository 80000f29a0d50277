"""Database sinks: upsert and append in one transaction with an entry of our own."""
