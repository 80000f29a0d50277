"""Conversions between Arrow, NumPy and Python that leave pandas alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from recon.model import LedgerEntry, offsets_text
from recon.write.ledger import arrow
from recon.write.ledger.chain import link, seal
from recon.write.ledger.columns import HEAD_COLUMNS, to_slice, to_table
from tests.support.ledger_entries import entry

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
from recon.write.ledger import open_ledger
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


def test_the_distinct_values_of_a_column_and_where_they_are() -> None:
    column = pa.chunked_array([pa.array(["a", None]), pa.array(["b", "a"])])
    found, places = arrow.distinct(column)
    assert sorted(found, key=str) == [None, "a", "b"]
    assert [found[place] for place in places] == column.to_pylist()
    at = pa.chunked_array([pa.array([AT, None, AT], pa.timestamp("us", tz="UTC"))])
    assert arrow.distinct(at) == ([AT, None], [0, 1, 0])
    signs, places = arrow.distinct(pa.chunked_array([pa.array([0.0, -0.0])]))
    assert [str(signs[place]) for place in places] == ["0.0", "-0.0"]
    assert arrow.distinct(pa.chunked_array([], pa.string())) == ([], [])


def test_whether_a_column_has_one_value() -> None:
    assert arrow.in_common(pa.chunked_array([pa.array([1, 1]), pa.array([1])]))
    assert arrow.in_common(pa.chunked_array([pa.array([None, None], pa.string())]))
    assert not arrow.in_common(pa.chunked_array([pa.array(["a", "b"])]))
    assert not arrow.in_common(pa.chunked_array([pa.array(["a", None])]))


SPELLED = 'a "quoted" \\ line\nbreak, żółć\u2028'


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([entry(0)], id="one, so that nothing differs"),
        pytest.param([entry(n, at=AT + timedelta(seconds=n)) for n in range(3)], id="what the same query wrote"),
        pytest.param([entry(0), entry(0)], id="twice the same"),
        pytest.param(
            [
                entry(0, run_id=SPELLED, offsets=()),
                entry(1, run_id=None, rows_read=None, by=SPELLED, reason=None),
                entry(2, run_id="", rows_read=2**62, status="released", epoch=-1, by="Ada", reason=""),
            ],
            id="whatever can differ",
        ),
        pytest.param([entry(n, by="Ada", reason="ticket 7") for n in range(2)], id="decisions in common"),
    ],
)
def test_entries_in_columns_have_the_seals_that_each_has_alone(entries: list[LedgerEntry]) -> None:
    linked = [link(one, f"before {place // 2}") for place, one in enumerate(entries)]
    chosen = {"pipeline": "orders", "sink": "orders", "anchors": 0, "complete": True, "operations": ()}
    read = to_slice(to_table(linked), **chosen)
    assert list(read.broken) == []
    assert [vars(head) for head in read.heads] == [{n: getattr(one, n) for n in HEAD_COLUMNS} for one in linked]
    assert [seal(head, offsets_text(one.offsets)) for head, one in zip(read.heads, linked, strict=True)] == [
        one.entry_hash for one in linked
    ]
    edited = [*linked[:-1], replace(linked[-1], checks_fingerprint="other")]
    assert list(to_slice(to_table(edited), **chosen).broken) == [len(linked) - 1]
