"""Servers that only tests and the bench need: PostgreSQL, MariaDB, a standalone Spark cluster."""
