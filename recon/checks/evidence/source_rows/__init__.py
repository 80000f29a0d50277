"""source_rows: every offset the stream read is in a row of the sink once, or its absence is explained."""
