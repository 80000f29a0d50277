"""Great Expectations 1.x: a suite of ten expectations on a whole DataFrame, nothing persisted, no telemetry."""

from __future__ import annotations

import os
from typing import Any

from bench.peers import measure as m

os.environ["GX_ANALYTICS_ENABLED"] = "false"


def checks(spark: Any, rows: Any) -> list[bool]:
    """Validates; the shortest result format, which reads no failing values."""
    import great_expectations as gx
    from great_expectations import expectations as e

    context = gx.get_context(mode="ephemeral")
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("orders")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": rows})
    low, high = m.QUANTITY
    least, greatest = m.AMOUNT
    suite = gx.ExpectationSuite(
        name="orders",
        expectations=[
            e.ExpectTableRowCountToEqual(value=m.ROWS),
            *(e.ExpectColumnValuesToNotBeNull(column=name) for name in m.NOT_NULL),
            e.ExpectColumnValuesToBeInSet(column="status", value_set=list(m.STATUSES)),
            e.ExpectColumnValuesToBeBetween(column="quantity", min_value=low, max_value=high),
            e.ExpectColumnValuesToMatchRegex(column="email", regex=m.EMAIL),
            e.ExpectColumnValuesToBeUnique(column=m.KEY),
            e.ExpectColumnMinToBeBetween(column="amount", min_value=least),
            e.ExpectColumnMaxToBeBetween(column="amount", max_value=greatest),
        ],
    )
    validation = batch.validate(suite, result_format="BOOLEAN_ONLY")
    return [bool(result.success) for result in validation.results]


if __name__ == "__main__":
    m.contest("great_expectations", m.session(), checks, 10)
