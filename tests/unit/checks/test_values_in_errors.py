"""Errors of Spark, Delta and databases quote values of rows: none of them reaches a result, an alert or an event."""

from __future__ import annotations

import pytest

from recon.checks.samples import without_values
from recon.events.errors import sentence
from recon.project import CheckConfig

WHO = "ada@example.org"


@pytest.mark.parametrize(
    "text",
    [
        f"(conn=4) Duplicate entry '{WHO}' for key 'orders.email'",
        f"Batch entry 0 INSERT INTO t VALUES (1,'{WHO}') was aborted: ERROR: duplicate key value",
        f"ERROR: duplicate key value violates unique constraint u  Detail: Key (email)=({WHO}) already exists.",
        f"ERROR: null value in column c violates not-null constraint  Detail: Failing row contains (1, {WHO}, null).",
        f'ERROR: invalid input syntax for type integer: "{WHO}"',
        f'ERROR: value "{WHO}" is out of range for type integer',
        f'ERROR: date/time field value out of range: "{WHO}"',
        f"Data truncation: Incorrect integer value: '{WHO}' for column 'id' at row 1",
        f"Cannot insert duplicate key in object 'dbo.orders'. The duplicate key value is ({WHO}).",
        f"String or binary data would be truncated in table 't', column 'c'. Truncated value: '{WHO}'.",
        f"Conversion failed when converting the varchar value '{WHO}' to data type int.",
        f"[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint c violated by row with values: - email : {WHO}",
        f"[NUMERIC_VALUE_OUT_OF_RANGE] The {WHO} rounded half up from {WHO} cannot be represented as Decimal(5, 2).",
        f"[DUPLICATED_MAP_KEY] Duplicate map key {WHO} was found, please check the input data.",
        f"[INVALID_INTERVAL_FORMAT] Error parsing '{WHO}' to interval. Please ensure",
        f"[CANNOT_DECODE_URL] The provided URL cannot be decoded: {WHO}. Please ensure",
        f"[ILLEGAL_DAY_OF_WEEK] Illegal input for day of week: {WHO}.",
        f"[CAST_INVALID_INPUT] The value '{WHO}' of the type \"STRING\" cannot be cast",
    ],
)
def test_no_value_is_told(text: str) -> None:
    assert WHO in text and WHO not in sentence(text) and "***" in sentence(text)
    assert WHO not in without_values(text, CheckConfig())
    assert without_values(text, CheckConfig(samples="full")) == text


@pytest.mark.parametrize(
    "text",
    [
        "the value of warn_after is no duration",
        "Key (email) is not indexed",
        "table orders already exists",
        "[PATH_NOT_FOUND] Path does not exist: file:/lake/orders.",
    ],
)
def test_what_quotes_no_value_stays(text: str) -> None:
    assert sentence(text) == text
