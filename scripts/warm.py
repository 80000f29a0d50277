"""Fetch what the first run would fetch: the broker's jars, and Spark's packages by starting it once."""

import sys

from recon.errors import ReconError
from recon.local.jars import kafka_jars
from recon.local.spark import spark_session
from tests.support.drivers import JDBC_DRIVERS


def main() -> None:
    """Fetch, or leave with one sentence."""
    try:
        kafka_jars()
        spark_session("recon-setup", master="local[1]", extra_packages=JDBC_DRIVERS).stop()
    except ReconError as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
