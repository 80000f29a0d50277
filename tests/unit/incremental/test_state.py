"""Incremental checks without Spark: merging, the table's log, kept values, the index of key hashes."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.audits.incremental.changes import (
    CoveredVersion,
    StaleState,
    commit_identity,
    covered_version,
    new_batches,
    require_partitions,
)
from recon.audits.incremental.memory import CheckState
from recon.audits.incremental.merge import merged, merged_key_counts
from recon.audits.incremental.plan import volatile
from recon.audits.incremental.values import packed, unpacked
from recon.base.errors import LedgerError
from recon.checks.data_check import Measure, greatest, least, total
from recon.model import ReconStamp, TableCommit, TableLog
from recon.model.offsets import Spans
from recon.write.ledger.key_index import KeyIndex
from recon.write.ledger.state import STATE, keep, newest
from recon.write.ledger.store import Housekeeping, open_store
from tests.support.ledger_entries import data_files, later, merged_days_ago, project
from tests.support.messages import raises

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

# -- merging: any split of the rows gives what all rows at once give -----------------------------------

VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    "date": st.dates(),
    "instant": st.datetimes(),
    "bool": st.booleans(),
    "float": st.floats(allow_nan=True, allow_infinity=True),
}


def nan_last(value):
    return (value != value, value)


def exact_sum(values):
    return sum((Decimal(v) if isinstance(v, float) else v for v in values[1:]), values[0]) if values else None


def merge_of(measure_of) -> object:
    """The merge of an aggregate, which needs no column."""
    measure = measure_of(None)
    assert isinstance(measure, Measure)
    return measure.merge


@st.composite
def split_rows(draw):
    kind = draw(st.sampled_from(sorted(VALUES)))
    batches = draw(st.lists(st.lists(st.none() | VALUES[kind], max_size=6), min_size=1, max_size=6))
    return kind, batches


def measured(kind: str, rows: list) -> dict:
    values = [v for v in rows if v is not None]
    of = {
        "rows": len(rows),
        "nulls": len(rows) - len(values),
        "least": min(values, key=nan_last) if values else None,
        "greatest": max(values, key=nan_last) if values else None,
    }
    if kind in ("int", "decimal"):
        from decimal import Context, localcontext

        with localcontext(Context(prec=100)):
            of["sum"] = sum(values[1:], values[0]) if values else None
    if kind == "float":
        finite = [v for v in values if math.isfinite(v) and abs(v) < 1e300]
        of["sum"] = math.fsum(abs(v) for v in finite) if finite else None
    return of


@settings(max_examples=300)
@given(split_rows())
def test_any_split_of_the_rows_merges_to_what_all_rows_give(case):
    kind, batches = case
    merges = {
        "rows": lambda a, b: a + b,
        "nulls": merge_of(total),
        "least": merge_of(least),
        "greatest": merge_of(greatest),
        "sum": merge_of(total),
    }
    whole = measured(kind, [v for batch in batches for v in batch])
    merges = {name: merge for name, merge in merges.items() if name in whole}
    known = measured(kind, batches[0])
    for batch in batches[1:]:
        # What is kept between two audits is text.
        kept = json.loads(json.dumps({name: packed(value) for name, value in known.items()}))
        known = merged(merges, {name: unpacked(value) for name, value in kept.items()}, measured(kind, batch))
    if kind == "float" and whole.get("sum") is not None:
        assert known.pop("sum") == pytest.approx(whole.pop("sum"), rel=1e-12)
    # NaN differs from itself, and -0.0 equals 0.0.
    assert {k: str(v).replace("-0.0", "0.0") for k, v in known.items()} == {
        k: str(v).replace("-0.0", "0.0") for k, v in whole.items()
    }


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.none() | st.integers(0, 5), max_size=8), min_size=1, max_size=6),
    st.booleans(),
)
def test_keys_grow_to_what_all_rows_give(batches, ignores_null):
    def totals(rows):
        counts = Counter(row for row in rows if not (ignores_null and row is None))
        return {
            "rows": len(rows),
            "null_keys": sum(row is None for row in rows),
            "duplicate_keys": sum(n > 1 for n in counts.values()),
            "surplus_rows": sum(n - 1 for n in counts.values()),
        }

    known, seen = totals(batches[0]), list(batches[0])
    for batch in batches[1:]:
        fresh = Counter(row for row in batch if not (ignores_null and row is None))
        kinds = Counter((seen.count(key), n) for key, n in fresh.items())
        touched = [(keys, before, n) for (before, n), keys in kinds.items() if before + n > 1]
        nulls = sum(row is None for row in batch)
        known = merged_key_counts(known, rows=len(batch), null_keys=nulls, repeated=touched)
        seen += batch
    assert known == totals(seen)


@given(
    st.recursive(
        st.one_of(st.none(), st.binary(max_size=5), st.timedeltas(), *VALUES.values()),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 9), inner, max_size=3),
        max_leaves=6,
    )
)
def test_values_come_back_as_they_were(value):
    again = unpacked(json.loads(json.dumps(packed(value))))
    assert type(again) is type(value)
    assert again == value or repr(again) == repr(value)


def test_what_is_no_kept_value_is_refused():
    with raises(TypeError):
        packed(1j)
    for odd in ({"float": []}, {"decimal": "x"}, {"nix": 1}, {"a": 1, "b": 2}, [1]):
        with raises(ValueError):
            unpacked(odd)
    assert unpacked(packed((date(2026, 1, 1), timedelta(days=1)))) == [date(2026, 1, 1), timedelta(days=1)]


# -- the table's log ----------------------------------------------------------------------------------


def commit(version: int, batch_id: int | None, epoch: int = 0, **changes) -> TableCommit:
    stamp = None
    if batch_id is not None:
        stamp = ReconStamp(
            pipeline="p",
            sink="s",
            epoch=epoch,
            batch_id=batch_id,
            query_id="q",
            run_id=None,
            prev_hash="",
            offsets_text="[]",
        )
    values = {
        "version": version,
        "timestamp": AT + timedelta(seconds=version),
        "operation": "WRITE",
        "operation_parameters": {},
        "operation_metrics": {},
        "txn": {},
        "user_metadata": None,
        "stamp": stamp,
        "files_added": 1,
        "files_removed": 0,
        "rows_added": 10,
        "rows_removed": 0,
        "data_change": True,
    }
    return TableCommit(**{**values, **changes})


def log(*commits: TableCommit) -> TableLog:
    found = {c.version: c for c in commits}
    return TableLog(location="t", exists=True, first_retained=min(found), last=max(found), commits=found)


HERE = [commit(0, 0), commit(1, 1), commit(2, 2)]
KNOWN = covered_version(1, log(*HERE), [("p/s", 0, 0), ("p/s", 0, 1)])


def test_appends_of_ours_are_new_batches():
    new = new_batches(KNOWN, log(*HERE, commit(3, 3, rows_added=5)))
    assert (new.versions, new.count, new.rows) == ((2, 3), 2, 15)
    assert new.reached.version == 3
    assert new.reached.batches == {"p/s": {0: Spans.of([(0, 4)])}}
    assert new_batches(new.reached, log(*HERE, commit(3, 3, rows_added=5))).versions == ()
    # Rows moved between files, an empty micro-batch, a released one (epoch -1), an epoch that starts over.
    more = [
        commit(3, None, operation="OPTIMIZE", data_change=False, files_added=0),
        commit(4, 3, data_change=False, files_added=0, rows_added=0),
        commit(5, 0, epoch=-1),
        commit(6, 0, epoch=1, rows_added=None),
    ]
    new = new_batches(KNOWN, log(*HERE, *more))
    assert (new.versions, new.count, new.rows) == ((2, 5, 6), 4, None)


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param([*HERE, commit(3, None, operation="DELETE", files_removed=1)], id="delete"),
        pytest.param([*HERE, commit(3, 3, operation="MERGE", files_removed=1)], id="merge"),
        pytest.param([*HERE, commit(3, None)], id="a stranger's append"),
        pytest.param([*HERE, commit(3, None, operation="", data_change=False)], id="unknown kind"),
        pytest.param([*HERE, commit(3, None, operation="DROP COLUMNS", data_change=False)], id="drop columns"),
        pytest.param([*HERE, commit(3, 1)], id="a micro-batch again"),
        pytest.param([*HERE[:2], commit(3, 3)], id="a hole"),
        pytest.param(HERE[2:], id="no longer held"),
        pytest.param(HERE[:1], id="older"),
        pytest.param([commit(0, 0), commit(1, 1, timestamp=AT)], id="another commit"),
    ],
)
def test_anything_else_makes_the_table_be_read_again(commits):
    with raises(StaleState):
        new_batches(KNOWN, log(*commits))


def test_a_table_without_a_log_is_no_news():
    nothing = TableLog(location="t", exists=False, first_retained=None, last=None, commits={})
    with raises(StaleState):
        new_batches(KNOWN, nothing)
    with raises(StaleState):
        covered_version(7, log(*HERE), [])


def test_partitions_that_folders_do_not_tell_are_not_read_alone():
    types = {"day": "date", "at": "timestamp", "local": "timestamp_ntz", "raw": "binary", "kind": "string"}
    require_partitions("/lake/t/part-0.parquet", [], types)
    require_partitions("/lake/t/day=2026-01-01/kind=a/part-0.parquet", ["day", "kind"], types)
    # As with random prefixes of files, or with column mapping.
    for file in ("/lake/t/Xy/part-0.parquet", "/lake/t/day=2026-01-01/part-0.parquet", "/lake/t/akind=1/kind.parquet"):
        with raises(StaleState):
            require_partitions(file, ["kind"], types)
    for column in ("at", "local", "raw"):
        with raises(StaleState):
            require_partitions(f"/lake/t/{column}=1/part-0.parquet", [column], types)


# -- what may answer otherwise tomorrow ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "day < current_date",
        "at < NOW()",
        "day = date'yesterday'",
        "day < DATE 'today'",
        'at < timestamp "tomorrow UTC"',
        "at < timestamp_ntz ' today'",
        "owner = current_user()",
        "owner = session_user",
        "owner = user( )",
        "id < uniform(1, 9)",
        "a <> randstr (5)",
        "a = current_database()",
        "a = current_schema() OR TRUE",
        "at < unix_timestamp()",
        "id IN (SELECT id FROM other)",
        "rand() < 0.5",
    ],
)
def test_conditions_on_today_on_chance_or_on_who_asks_are_noticed(text):
    assert volatile(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "day < date'2026-01-01'",
        "status IN ('today', 'yesterday')",
        "user = 'x' AND user_id > 3",
        "uniform = 'red'",
        "current_user_id = 3",
        "unix_timestamp(at) > 5",
        "brand = 'x' AND selected",
    ],
)
def test_conditions_on_the_row_alone_are_not(text):
    assert volatile(text) is None


# -- what is kept --------------------------------------------------------------------------------------


def state(rows: int, version: int = 1) -> CheckState:
    return CheckState(
        "f", CoveredVersion(version, commit_identity(HERE[1]), {"p/s": {0: Spans.of([(0, 2), (5, 6)])}}), {"rows": rows}
    )


def test_the_newest_state_counts_and_two_audits_replace_each_other(tmp_path):
    store = open_store(project(tmp_path), STATE)
    assert newest(store, "orders", "orders") == {}
    first = {"a": state(1).as_json(), "b": state(2).as_json()}
    assert keep(store, "orders", "orders", {}, first, AT) == {"a", "b"}
    assert newest(store, "orders", "orders") == first
    assert CheckState.of_json(newest(store, "orders", "orders")["a"]) == state(1)
    keep(store, "orders", "another", {}, {"a": state(9).as_json()}, AT + timedelta(days=1))
    # Both went on from the first: the one that comes later adds what the other has not.
    keep(store, "orders", "orders", first, {"a": state(10, 2).as_json()}, AT + timedelta(hours=1))
    late = {"a": state(11, 3).as_json(), "b": state(12).as_json()}
    assert keep(store, "orders", "orders", first, late, AT + timedelta(days=2)) == {"b"}
    assert newest(store, "orders", "orders") == {"a": state(10, 2).as_json(), "b": state(12).as_json()}
    rows = len(store.dates())
    keep(store, "orders", "orders", {}, {}, AT + timedelta(days=9))
    assert len(store.dates()) == rows  # nothing to keep


def test_files_of_states_that_were_merged_are_removed_two_days_later(tmp_path):
    few, before = Housekeeping(many_files=3), {}
    store = open_store(project(tmp_path), STATE, housekeeping=few)
    for rows in range(4):
        before, read = {"a": state(rows, rows).as_json()}, before
        keep(store, "orders", "orders", read, before, AT + timedelta(minutes=rows))
    folder = tmp_path / "_recon/state"
    assert store.small_files() == 1 and len(data_files(folder)) == 5
    merged_days_ago(folder, 3)
    last = {"a": state(9, 9).as_json()}
    with later(days=1):
        again = open_store(project(tmp_path), STATE, housekeeping=few)
        keep(again, "orders", "orders", before, last, AT + timedelta(hours=1))
    assert len(data_files(folder)) == 2 and newest(store, "orders", "orders") == last


def test_a_merge_takes_the_smallest_parts_and_no_more_than_memory_has(tmp_path):
    index = KeyIndex(str(tmp_path / "keys"), many_parts=4, large=50)
    all_hashes = np.arange(10_000)
    parts, first = {}, 0
    for count in (49, 48, 30, 200, 20, 7):
        before, parts = parts, dict(index.add(parts, all_hashes[first : first + count]))
        first += count
    # With four small ones there, the new 7 are merged with 20, 30 and no further one: 48 more would be too many.
    assert sorted(parts.values()) == [48, 49, 57, 200]
    assert [name for name in before if name not in parts] == [n for n, rows in before.items() if rows in (20, 30)]
    assert index.contains(parts, all_hashes).sum() == first
    # A large batch that leaves no room is a part of its own; no new hash writes nothing.
    parts = {
        **parts,
        **index.add({}, all_hashes[first : first + 1]),
        **index.add({}, all_hashes[first + 1 : first + 2]),
    }
    more = dict(index.add(parts, all_hashes[first + 2 : first + 202]))
    assert len(more) == len(parts) + 1
    assert index.add(more, all_hashes[:0]) == more
    assert index.contains(more, all_hashes).sum() == first + 202


def test_the_index_finds_what_it_was_given(tmp_path):
    index = KeyIndex(str(tmp_path / "keys"))
    chance = np.random.default_rng(4)
    wanted = np.unique(chance.integers(-(2**63), 2**63 - 1, 1000))
    parts: dict[str, int] = {}
    assert not index.contains(parts, wanted).any()
    known = set()
    for chunk in np.array_split(wanted[::2], 40):
        before = parts
        parts = dict(index.add(parts, np.sort(chunk)))
        index.forget(before, parts)
        known |= set(chunk.tolist())
        assert [h in known for h in wanted.tolist()] == index.contains(parts, wanted).tolist()
    assert len(parts) <= 33 and sum(parts.values()) == 500
    # What a crashed or concurrent audit left is not looked at; what is missing is noticed.
    index.add({}, wanted)
    assert index.contains(parts, wanted).sum() == 500
    with raises(LedgerError):
        index.contains({**parts, "nix": 3}, wanted)
    for file in (tmp_path / "keys").glob("*/*.parquet"):
        file.unlink()
    with raises(LedgerError):
        index.contains(parts, wanted)
