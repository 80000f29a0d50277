"""cuallee: nine of the checks in one observation and one select; the number of rows comes with every validation."""

from __future__ import annotations

from typing import Any

from bench.peers import measure as m


def checks(spark: Any, rows: Any) -> list[bool]:
    """Validates; its `has_min` and `has_max` ask for equality."""
    from cuallee import Check, CheckLevel

    check = Check(CheckLevel.ERROR, "orders")
    for name in m.NOT_NULL:
        check.is_complete(name)
    check.is_contained_in("status", m.STATUSES)
    check.is_between("quantity", m.QUANTITY)
    check.has_pattern("email", m.EMAIL)
    check.is_unique(m.KEY)
    check.has_min("amount", m.AMOUNT[0])
    check.has_max("amount", m.AMOUNT[1])
    results = check.validate(rows).collect()
    return [row.status == "PASS" for row in results] + [results[0].rows == m.ROWS]


if __name__ == "__main__":
    m.contest("cuallee", m.session(), checks, 10)
