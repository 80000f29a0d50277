"""Conversions between Arrow, NumPy and Python that leave pandas alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa

from recon.ledger import arrow

AT = datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("count", pa.int64()),
        ("part", pa.int32()),
        ("seconds", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("date", pa.date32()),
    ]
)
ROWS = [
    {"name": "zażółć", "count": 2**53 + 1, "part": -1, "seconds": 0.25, "at": AT, "date": date(2026, 11, 21)},
    {"name": None, "count": None, "part": None, "seconds": None, "at": None, "date": None},
    {"name": "", "count": 0, "part": 0, "seconds": 0.0, "at": datetime(1969, 12, 31, tzinfo=UTC), "date": date.min},
]


def test_rows_become_the_table_that_pyarrow_makes() -> None:
    table = arrow.table(ROWS, SCHEMA)
    assert table == pa.Table.from_pylist(ROWS, schema=SCHEMA)
    assert {name: arrow.values(table[name]) for name in SCHEMA.names} == table.to_pydict()


def test_no_rows() -> None:
    assert arrow.table([], SCHEMA) == SCHEMA.empty_table()


def test_columns_of_several_and_of_sliced_chunks_become_numpy() -> None:
    column = pa.chunked_array([pa.array([1, 2, 3, 4]).slice(1, 2), pa.array([], pa.int64()), pa.array([9])])
    assert arrow.numbers(column).tolist() == [2, 3, 9]
    assert arrow.numbers(pa.chunked_array([], pa.int32())).tolist() == []
    assert arrow.array(np.arange(6, dtype=np.int32)[::2]).to_pylist() == [0, 2, 4]


def test_instants_are_exact() -> None:
    assert arrow.scalar(AT).as_py() == AT
    assert arrow.values(pa.chunked_array([pa.array([AT], pa.timestamp("us", tz="UTC"))])) == [AT]


def test_reading_a_ledger_does_not_import_pandas(tmp_path: object) -> None:
    script = f"""
import sys
from datetime import timedelta
from pathlib import Path
from recon.ledger import open_ledger
from tests.support.ledger_entries import AT, entry, project
where = Path({str(tmp_path)!r})
if sys.argv[1] == "write":
    for n in range(3):
        open_ledger(project(where)).append(entry(n, at=AT + timedelta(hours=n)))
else:
    cut = open_ledger(project(where)).slice("orders", "orders")
    assert [h.batch_id for h in cut.heads] == [0, 1, 2] and not cut.broken
    assert "pandas" not in sys.modules, "pandas was imported"
"""
    for what in ("write", "read"):
        subprocess.run([sys.executable, "-c", script, what], check=True)
