"""What Kafka says of topics: their ids, and the logs and open transactions that the hook and earlier audits saw."""
