"""The ledger kept by Spark: as a catalog table, and at a path."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import LedgerError
from recon.project import Project
from recon.write.ledger import open_ledger
from tests.support.ledger_entries import AT, entry, project

# tests/connect has a ledger that Spark keeps in `make test`.
pytestmark = pytest.mark.long


@pytest.fixture(params=["table", "path"])
def of_spark(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Project:
    if request.param == "path":
        return project(tmp_path, location="_recon", writer="spark")
    spark.sql("CREATE DATABASE IF NOT EXISTS audit")
    for table in ("ledger", "ledger_results"):
        spark.sql(f"DROP TABLE IF EXISTS audit.{table}")
    return project(tmp_path, table="audit.ledger", writer="spark")


def test_the_same_ledger_by_spark(spark: Any, of_spark: Project) -> None:
    ledger = open_ledger(of_spark, spark)
    assert not ledger.exists() and ledger.entries() == []
    written = [ledger.append(entry(n, at=AT + timedelta(days=n))) for n in range(3)]
    again = open_ledger(of_spark, spark)
    assert again.entries() == written
    assert again.tail("orders", "orders") == written[-1]
    cut = again.slice("orders", "orders", AT + timedelta(days=1))
    assert [h.batch_id for h in cut.heads] == [0, 1, 2] and cut.anchors == 1 and cut.broken == []
    assert again.append(entry(3, at=AT + timedelta(days=3))).prev_hash == written[-1].entry_hash
    assert again.verify() == []
    assert again.compact()["ledger"]
    assert [e.batch_id for e in again.entries()] == [0, 1, 2, 3]


def test_two_writers_by_spark_fork_no_chain(spark: Any, of_spark: Project) -> None:
    one, two = open_ledger(of_spark, spark), open_ledger(of_spark, spark)
    one.append(entry(0))
    two.append(entry(1))
    one.append(entry(2))  # one's memory of the chain's end is stale
    entries = open_ledger(of_spark, spark).entries()
    assert [e.batch_id for e in entries] == [0, 1, 2]
    assert [e.prev_hash for e in entries] == ["", *[e.entry_hash for e in entries[:-1]]]


def test_a_write_that_delta_skips_is_made_again(spark: Any, of_spark: Project) -> None:
    """Another writer extended the chain between the look at its length and the write, whose txn Delta then has."""
    one, two = open_ledger(of_spark, spark), open_ledger(of_spark, spark)
    one.append(entry(0))
    two.append(entry(1))
    length, stale = one.store.length, [1]
    one.store.length = lambda chain: stale.pop() if stale else length(chain)  # type: ignore[method-assign]
    assert one.append(entry(2)).sequence == 3
    again = open_ledger(of_spark, spark)
    assert [e.batch_id for e in again.entries()] == [0, 1, 2] and again.verify() == []


def test_a_deleted_row_is_seen(spark: Any, of_spark: Project) -> None:
    ledger = open_ledger(of_spark, spark)
    for n in range(3):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    where = of_spark.ledger.table or f"delta.`{of_spark.resolve('_recon')}/ledger`"
    spark.sql(f"DELETE FROM {where} WHERE batch_id = 1")
    codes = {f.code for f in open_ledger(of_spark, spark).verify()}
    assert codes == {"TAMPERED"}


def test_a_path_that_spark_writes_is_read_by_deltalake(spark: Any, tmp_path: Path) -> None:
    by_spark = open_ledger(project(tmp_path, location="_recon", writer="spark"), spark)
    written = by_spark.append(entry())
    assert open_ledger(project(tmp_path)).entries() == [written]


def test_an_unwritable_table_is_one_sentence(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "_recon").write_text("a file")
    ledger = open_ledger(project(tmp_path, location="_recon", writer="spark"), spark)
    with pytest.raises(LedgerError, match=r"cannot be (written|read)") as caught:
        ledger.append(entry())
    assert "\n" not in str(caught.value)
