"""File sinks: a folder per micro-batch and a manifest last, or Spark's plain append."""
