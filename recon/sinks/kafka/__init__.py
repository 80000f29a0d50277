"""The Kafka sink: exactly once by transactions with markers, or plainly at least once."""
