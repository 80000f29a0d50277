"""The Kafka sink: each task writes its records and a marker in one Kafka transaction; or plainly at least once.

`writer` runs on the driver. `frame` builds the records, in the columns of `columns`; `partitioner` partitions them
across tasks; `markers` reads and commits plans and markers. `producer` has settings and errors of driver and tasks,
`reading` reads the topic back. `repair` is for `recon repair`, and `late` writes what it reads again. `task` runs
inside Spark tasks, so it may import nothing that executors do not have.

The docstring of `writer` lists every race and what prevents a loss or a double; keep it true.
"""
