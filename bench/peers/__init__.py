"""Other tools at the same ten checks, each in an environment of its own; see `bench.check_suite`."""
