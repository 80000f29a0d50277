"""What Spark planned, as its checkpoint has it, against what the ledger and the sink have."""
