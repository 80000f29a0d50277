"""Comparison without Spark: tolerances as they are written, the result's arithmetic, and its words."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from recon.base.errors import ConfigError
from recon.checks.comparison import ColumnDifference, Comparison, RowDifference, SchemaDifference, Tolerance, text
from recon.model import plain
from tests.support.messages import raises


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.01, Tolerance(absolute=Decimal("0.01"))),
        (0, Tolerance(absolute=Decimal(0))),
        ("0.01", Tolerance(absolute=Decimal("0.01"))),
        ("1e-6", Tolerance(absolute=Decimal("0.000001"))),
        ("5%", Tolerance(relative=0.05)),
        ("5 seconds", Tolerance(duration=timedelta(seconds=5))),
        ("1 Minute", Tolerance(duration=timedelta(minutes=1))),
        ("2.5 hours", Tolerance(duration=timedelta(hours=2.5))),
        ("10 microseconds", Tolerance(duration=timedelta(microseconds=10))),
        (timedelta(days=1), Tolerance(duration=timedelta(days=1))),
        ({"relative": 1e-6}, Tolerance(relative=1e-6)),
        ({"absolute": 1, "relative": "0.5"}, Tolerance(absolute=Decimal(1), relative=0.5)),
    ],
)
def test_a_tolerance_as_it_is_written(written, meant):
    assert Tolerance.of("amount", written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "-1",
        -0.5,
        "5 parsecs",
        "",
        "much",
        "nan",
        float("inf"),
        True,
        None,
        [1],
        {},
        {"relativ": 1},
        {"absolute": "5 seconds"},
    ],
)
def test_what_is_no_tolerance_is_said_by_name(written):
    with raises(ConfigError):
        Tolerance.of("amount", written)


def test_a_negative_duration():
    with raises(ConfigError):
        Tolerance.of("at", timedelta(seconds=-1))


def comparison(**fields):
    return Comparison(
        **{
            "left": "source",
            "right": "sink",
            "key": ("id",),
            "compared": ("a",),
            "left_rows": 10,
            "right_rows": 10,
            **fields,
        }
    )


ONE_SIDED = SchemaDifference(column="b", left="int", right=None)
TYPES = SchemaDifference(column="a", left="int", right="bigint", compared_as="bigint")


def test_what_is_left_over_is_matched():
    assert comparison(missing=2, extra=2, changed=1).matched == 7


@pytest.mark.parametrize(
    ("fields", "equal"),
    [
        ({}, True),
        ({"left_rows": 0, "right_rows": 0}, True),
        ({"tolerated": 3}, True),
        ({"missing": 1}, False),
        ({"extra": 1}, False),
        ({"changed": 1}, False),
        ({"schema": (ONE_SIDED,)}, False),
        ({"schema": (TYPES,)}, True),
        ({"schema": (TYPES,), "same_types": True}, False),
    ],
)
def test_what_is_equal(fields, equal):
    assert comparison(**fields).equal is equal


CHANGED = RowDifference(kind="changed", key={"id": 7}, left={"a": "x "}, right={"a": None}, left_rows=2, right_rows=1)


def test_it_is_told_in_words():
    found = comparison(
        right_rows=11,
        missing=1,
        extra=2,
        changed=3,
        tolerated=4,
        duplicate_keys_left=1,
        schema=(ONE_SIDED, TYPES),
        columns=(ColumnDifference(column="a", rows=3, max_difference=0.25),),
        samples=(
            RowDifference(kind="missing", key={"id": 1}, left={"a": "x"}, right=None, left_rows=1, right_rows=0),
            CHANGED,
        ),
    )
    told = "\n".join(text(found))
    assert told.splitlines()[0] == (
        "source and sink are different: 1 missing, 2 extra, 3 changed, 1 column on one side only"
    )
    for line in (
        "4 of the matched rows are equal within the tolerances.",
        "  b: int in source, not in sink",
        "  a: int in source, bigint in sink; compared as bigint",
        "  id=1 | a='x'",
        "  id=7 | a: 'x ' → None (2 and 1 rows of this key)",
    ):
        assert line in told.splitlines()


def test_equal_tables_in_words():
    assert next(text(comparison())) == "source and sink are equal (10 rows)"


def test_it_is_json():
    found = json.loads(json.dumps(plain(comparison(changed=1, samples=(CHANGED,)).as_dict())))
    assert (found["equal"], found["matched"], found["samples"][0]["left"]) == (False, 9, {"a": "x "})
