"""A Kafka broker and a Spark session on this machine, without Docker: for the demo and first tries.

`kafka` runs a single-node broker from `jars`, `java` finds a Java, `spark` makes a session. `client` makes topics and
writes records, `process` and `server` start and end child processes. `demo` is `recon demo` and `recon try`. Imported
by the command line, tests and benchmarks, and by no other room.
"""
