"""The example with SQL tests, from the command line: an audit, its stored failures, and a retry after a repair."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from recon.cli import main

pytestmark = pytest.mark.usefixtures("interpreted")

EXAMPLE = Path(__file__).parents[2] / "examples" / "sql_tests"


@pytest.fixture
def recon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spark: Any) -> Any:
    """Runs a command in a copy of the example, with the run's session."""
    shutil.copytree(EXAMPLE, tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        return int(end.value.code or 0), *capsys.readouterr()

    return run


def statuses() -> dict[str, tuple[str, int | None]]:
    run = json.loads(Path("target/run_results.json").read_text())
    return {r["adapter_response"]["name"]: (r["status"], r["failures"]) for r in run["results"]}


def test_the_example(recon: Any) -> None:
    import pyarrow as pa

    day = date(2026, 11, 1)
    orders = {
        "order_id": [1, 1, 2, 3],
        "customer_id": [7, 7, 8, 9],
        "amount": [10, 12, -1, -5],
        "status": ["new", "paid", "paid", "refunded"],
        "valid_from": [day, day.replace(day=3), day, date(2025, 1, 1)],
        "valid_to": [day.replace(day=4), day.replace(day=9), day.replace(day=9), day],
    }
    write_deltalake("lake/orders", pa.table(orders))
    write_deltalake("lake/customers", pa.table({"id": [7]}))
    since = ("--vars", "{since: 2026-11-01}")
    overlap, small = "no_overlap_orders_order_id_valid_from_valid_to", "at_least_orders_amount_0"

    code, out, err = recon("audit", "--select", "test_type:data", "--fail-fast", "--warn-error", *since)
    assert (code, err) == (1, "")
    assert statuses() == {
        overlap: ("fail", 1),
        "not_null_orders_customer_id": ("skipped", None),
        small: ("skipped", None),
        "orders_of_unknown_customers": ("skipped", None),
    }
    code, out, err = recon("retry")
    assert code == 1 and len(statuses()) == 4, "what was left out is asked now; it stops at the first failure again"
    code, out, err = recon("audit", "--select", "test_type:data", *since)
    assert statuses() == {
        overlap: ("fail", 1),
        "not_null_orders_customer_id": ("pass", 0),
        small: ("warn", 1),
        "orders_of_unknown_customers": ("fail", 1),
    }
    shown = json.loads(recon("failures", "show", "--output", "json", "--select", "tag:customers")[1])
    assert [row["failing_row"] for row in shown] == [{"order_id": 2, "customer_id": 8}], "order 3 is older"

    write_deltalake("lake/customers", pa.table({"id": [8]}), mode="append")
    code, out, err = recon("retry")
    assert code == 1
    assert statuses() == {overlap: ("fail", 1), "orders_of_unknown_customers": ("pass", 0)}
    repaired = pa.table({k: v[1:] for k, v in orders.items()})
    write_deltalake("lake/orders", repaired, mode="overwrite")
    code, out, err = recon("retry")
    assert (code, err) == (0, "")
    assert statuses() == {overlap: ("pass", 0)}
    assert recon("retry")[1].startswith("Nothing to retry")

    code, out, err = recon("audit", "--select", small, "--warn-error")
    assert (code, statuses()) == (1, {small: ("warn", 1)})
    assert "Warnings fail this run (--warn-error)." in out
