"""The Kafka sink: each task writes its records and a marker in one Kafka transaction; or plainly at least once.

`writer` runs on the driver (plan, fences, markers), `task` inside Spark tasks, so `task` may import nothing that
executors do not have. The docstring of `writer` lists every race and what closes it; keep it true.
"""
