"""Incremental checks on a real stream: what the hook wrote since the last audit, a killed query's replay among it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cases.lake import Lake

MakeLake = Callable[..., Lake]

COLUMNS = [
    {"name": "value", "data_tests": ["not_null", "unique"]},
    {"name": "_source_offset", "data_tests": [{"unique": {"where": "_source_partition = 0"}}]},
]


def outcomes(lake: Lake, **options: Any) -> dict[str, tuple[str, int | None, int, str]]:
    """By check and column: status, failures, rows judged, and the scan."""
    run = lake.audit(select=["test_name:not_null", "test_name:unique"], **options)
    by_check = {}
    for r in run.results:
        scan = r.evidence["incremental"]
        by_check[f"{r.check} {r.column}"] = (
            r.status,
            r.failures,
            r.evidence["rows"],
            f"{scan['micro_batches']} new" if "micro_batches" in scan else scan["because"],
        )
    return by_check


@pytest.mark.long
def test_an_audit_goes_on_from_the_last_one(make_lake: MakeLake) -> None:
    lake = make_lake(checks=(), sink={"columns": COLUMNS, "defaults": {"incremental": True}})
    lake.produce(20)
    lake.run(per_trigger=5)
    first = outcomes(lake)
    assert {t[3] for t in first.values()} == {"no state is saved yet"}
    assert {(name, *t[:3]) for name, t in first.items()} == {
        ("not_null value", "pass", 0, 20),
        ("unique value", "pass", 0, 20),
        ("unique _source_offset", "pass", 0, 20),
    }
    # The query died before Spark recorded the last micro-batch as done: Spark replays it, and it is written once.
    (lake.checkpoint / "commits" / "3").unlink()
    (lake.checkpoint / "commits" / ".3.crc").unlink(missing_ok=True)
    lake.produce(5)  # the same five values again
    lake.run()
    assert [e.status for e in lake.entries()].count("already_committed") == 1
    assert outcomes(lake) == {
        "not_null value": ("pass", 0, 25, "1 new"),
        "unique value": ("fail", 5, 25, "1 new"),
        "unique _source_offset": ("pass", 0, 25, "1 new"),
    }
    full = outcomes(lake, full_refresh=True)
    assert {name: t[:3] for name, t in full.items()} == {name: t[:3] for name, t in outcomes(lake).items()}
    assert {t[3] for t in full.values()} == {"--full-refresh"}
    assert {t[3] for t in outcomes(lake).values()} == {"0 new"}
