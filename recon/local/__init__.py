"""A Kafka broker and a Spark session on this machine: for the demo, a user's first try, the tests and the bench.

Only the command line and the demo import this room.
"""
