"""Fetch what the first run would fetch: the broker's jars and Spark's packages; all must be on the list of digests."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recon.base.errors import ReconError
from recon.local.jars import kafka_jars
from recon.local.spark import fetch_packages
from recon.spark.jars import BROKER, SPARK, TESTS, refuse_others
from tests.support.drivers import ICEBERG, JDBC_DRIVERS


def main(
    of_broker: Callable[[], Path] = kafka_jars, of_spark: Callable[[Sequence[str]], Sequence[Path]] = fetch_packages
) -> None:
    """Fetch, or leave with one sentence."""
    try:
        # The folder may be from before there was a list.
        refuse_others(list(of_broker().iterdir()), [BROKER])
        refuse_others(of_spark([*JDBC_DRIVERS, *ICEBERG]), [SPARK, TESTS])
    except ReconError as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
