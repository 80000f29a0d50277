"""Soda Core 3: ten SodaCL checks on a temporary view, no telemetry."""

from __future__ import annotations

import tempfile
from typing import Any

from bench.peers import measure as m

_CHECKS = f"""
checks for orders:
  - row_count = {m.ROWS}
  - missing_count(order_id) = 0
  - missing_count(customer_id) = 0
  - missing_count(created_at) = 0
  - invalid_count(status) = 0:
      valid values: [{", ".join(m.STATUSES)}]
  - invalid_count(quantity) = 0:
      valid min: {m.QUANTITY[0]}
      valid max: {m.QUANTITY[1]}
  - invalid_count(email) = 0:
      valid regex: '{m.EMAIL}'
  - duplicate_count(order_id) = 0
  - min(amount) >= {m.AMOUNT[0]}
  - max(amount) <= {m.AMOUNT[1]}
"""


def silence() -> None:
    """Its telemetry is chosen in a file, when it is first imported."""
    from soda.common.config_helper import ConfigHelper

    with tempfile.NamedTemporaryFile("w", suffix=".yml") as config:
        config.write("send_anonymous_usage_stats: false\nuser_cookie_id: bench\n")
        config.flush()
        assert not ConfigHelper.get_instance(config.name).send_anonymous_usage_stats


def checks(spark: Any, rows: Any) -> list[bool]:
    """Scans."""
    from soda.scan import Scan

    rows.createOrReplaceTempView("orders")
    scan = Scan()
    scan.set_data_source_name("spark_df")
    scan.set_scan_definition_name("orders")
    scan.add_spark_session(spark, data_source_name="spark_df")
    scan.add_sodacl_yaml_str(_CHECKS)
    scan.execute()
    scan.assert_no_error_logs()
    return [check["outcome"] == "pass" for check in scan.get_scan_results()["checks"]]


if __name__ == "__main__":
    silence()
    m.contest("soda-core-spark-df", m.session(), checks, 10)
