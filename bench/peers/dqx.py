"""DQX: row rules and dataset rules put to the whole table; the answer is the number of rows with an error.

DQX marks rows and has no verdict per rule without a pass over the marked rows; counting the marked rows is the cheapest
question to it that all ten rules have a part in.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import create_autospec

from bench.peers import measure as m


def checks(spark: Any, rows: Any) -> list[bool]:
    """Applies the rules; no row may carry an error."""
    from databricks.labs.dqx import check_funcs as f
    from databricks.labs.dqx.engine import DQEngine
    from databricks.labs.dqx.rule import DQDatasetRule, DQRowRule
    from databricks.sdk import WorkspaceClient

    low, high = m.QUANTITY
    least, greatest = m.AMOUNT
    rules = [
        *(DQRowRule(check_func=f.is_not_null, column=name) for name in m.NOT_NULL),
        DQRowRule(
            check_func=f.is_in_list,
            column="status",
            check_func_kwargs={"allowed": [f"'{status}'" for status in m.STATUSES]},
        ),
        DQRowRule(check_func=f.is_in_range, column="quantity", check_func_kwargs={"min_limit": low, "max_limit": high}),
        DQRowRule(check_func=f.regex_match, column="email", check_func_kwargs={"regex": m.EMAIL}),
        DQDatasetRule(check_func=f.is_unique, columns=[m.KEY]),
        DQDatasetRule(
            check_func=f.is_aggr_equal, column="*", check_func_kwargs={"aggr_type": "count", "limit": m.ROWS}
        ),
        DQDatasetRule(
            check_func=f.is_aggr_not_less_than,
            column="amount",
            check_func_kwargs={"aggr_type": "min", "limit": least},
        ),
        DQDatasetRule(
            check_func=f.is_aggr_not_greater_than,
            column="amount",
            check_func_kwargs={"aggr_type": "max", "limit": greatest},
        ),
    ]
    # Its engine wants a workspace even where it uses none; its docs give a stand-in for work outside of one.
    engine = DQEngine(create_autospec(WorkspaceClient), spark)
    marked = engine.apply_checks(rows, rules)
    clean = marked.filter("_errors IS NOT NULL").count() == 0
    return [clean] * len(rules)


if __name__ == "__main__":
    m.contest("databricks-labs-dqx", m.session(), checks, 10)
