"""Deequ, through PyDeequ: all ten checks in one VerificationSuite."""

from __future__ import annotations

import os
from typing import Any

from bench.peers import measure as m

os.environ["SPARK_VERSION"] = "3.5"  # PyDeequ reads it to choose its jar


def checks(spark: Any, rows: Any) -> list[bool]:
    """Verifies."""
    from pydeequ.checks import Check, CheckLevel
    from pydeequ.verification import VerificationResult, VerificationSuite

    check = Check(spark, CheckLevel.Error, "orders").hasSize(lambda n: n == m.ROWS)
    for name in m.NOT_NULL:
        check = check.isComplete(name)
    check = (
        check.isContainedIn("status", list(m.STATUSES))
        .satisfies("quantity BETWEEN {} AND {}".format(*m.QUANTITY), "quantity in range", lambda share: share == 1.0)
        .hasPattern("email", m.EMAIL, lambda share: share == 1.0)
        .isUnique(m.KEY)
        .hasMin("amount", lambda least: least >= m.AMOUNT[0])
        .hasMax("amount", lambda greatest: greatest <= m.AMOUNT[1])
    )
    result = VerificationSuite(spark).onData(rows).addCheck(check).run()
    constraints = VerificationResult.checkResultsAsDataFrame(spark, result).collect()
    return [row.constraint_status == "Success" for row in constraints]


if __name__ == "__main__":
    import pydeequ

    m.contest("pydeequ", m.session([pydeequ.deequ_maven_coord]), checks, 10)
