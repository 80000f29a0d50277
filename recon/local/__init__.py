"""A real Kafka broker, a real Spark, a real cluster, on this machine: for the demo, the tests and the bench.

No other room but the command line imports this one.
"""
