"""recon export gx: each row check as the expectation that says the same, or a reason why there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recon.checks.binding import bind
from recon.cli.app import app
from recon.convert.gx import suite_of
from recon.project import load

RECON = r"""
name: p
ledger: ledger
tables: [{name: customers, target: customers}]
pipelines:
  - name: stream
    checkpoint: c
    sinks:
      - name: orders
        target: t
        data_tests:
          - row_count: {min_value: 1, max_value: 9, inclusive: false}
          - unique_combination_of_columns: {combination_of_columns: [id, line]}
          - expression_is_true: {expression: "amount > 0", where: "status = 'new'"}
          - source_rows
          - expectation_suite: {expectations: [{expect_column_to_exist: {column: id}}, {x: 1, y: 2}]}
        columns:
          - name: id
            data_tests:
              - not_null: {severity: warn, where: "line = 1", tags: key, description: The key.}
              - unique
              - not_null: {error_if: ">10", name: some_null}
              - relationships: {to: ref('customers'), field: id}
          - name: status
            data_tests:
              - accepted_values: {values: [new, paid]}
              - matches_regex: {regex: '[a-z]+', match: full}
              - matches_regex: {regex: x, negate: true}
              - not_empty_string
              - not_null_proportion: {at_least: 0.5}
              - not_constant
              - at_least_one: {group_by_columns: [id], name: by_id}
          - name: amount
            data_tests:
              - accepted_range: {min_value: 0, inclusive: false}
              - accepted_range: {min_value: "2026-01-01", max_value: "id + 1"}
              - column_mean: {min_value: 1}
              - column_max: {max_value: id}
              - column_quantile: {quantile: 0.5, max_value: 3}
      - name: other
        target: u
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recon.yml").write_text(RECON)
    return tmp_path


def test_each_check_has_its_expectation(folder: Path) -> None:
    bounds = [b for b in bind(load(folder)) if b.sink == "orders"]
    found = suite_of(bounds, "orders")
    assert found.suite["name"] == "orders"
    assert [(e["type"], e["kwargs"]) for e in found.suite["expectations"]] == [
        ("expect_table_row_count_to_be_between", {"min_value": 2, "max_value": 8}),
        ("expect_compound_columns_to_be_unique", {"column_list": ["id", "line"], "ignore_row_if": "never"}),
        (
            "unexpected_rows_expectation",
            {"unexpected_rows_query": "SELECT * FROM {batch} WHERE (NOT (amount > 0)) AND (status = 'new')"},
        ),
        ("expect_column_to_exist", {"column": "id"}),
        (
            "expect_column_values_to_not_be_null",
            {"column": "id", "row_condition": "line = 1", "condition_parser": "spark"},
        ),
        ("expect_column_values_to_be_unique", {"column": "id"}),
        ("expect_column_values_to_be_in_set", {"column": "status", "value_set": ["new", "paid"]}),
        ("expect_column_values_to_match_regex", {"column": "status", "regex": r"\A(?:[a-z]+)\z"}),
        ("expect_column_values_to_not_match_regex", {"column": "status", "regex": "x"}),
        ("expect_column_values_to_match_regex", {"column": "status", "regex": r"[^ \t\n\x0B\f\r]"}),
        ("expect_column_values_to_not_be_null", {"column": "status", "mostly": 0.5}),
        ("expect_column_unique_value_count_to_be_between", {"column": "status", "min_value": 2}),
        ("expect_column_values_to_be_between", {"column": "amount", "min_value": 0, "strict_min": True}),
        (
            "unexpected_rows_expectation",
            {
                "unexpected_rows_query": "SELECT * FROM {batch} WHERE "
                "(NOT (amount >= '2026-01-01' AND amount <= (id + 1)))"
            },
        ),
        ("expect_column_mean_to_be_between", {"column": "amount", "min_value": 1}),
        (
            "expect_column_quantile_values_to_be_between",
            {"column": "amount", "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[None, 3]]}},
        ),
    ]
    not_null = found.suite["expectations"][4]
    assert not_null["severity"] == "warning" and not_null["description"] == "The key."
    assert not_null["meta"]["recon"] == {"name": "not_null_orders_id", "check": "not_null", "tags": ["key"]}


def test_what_has_no_counterpart_is_told(folder: Path) -> None:
    found = suite_of([b for b in bind(load(folder)) if b.sink == "orders"], "orders")
    assert dict(found.left_out) == {
        "expectation_suite_orders_expectation_2": "expectation 2 of GX expectations: needs a 'type', found x, y",
        "some_null": "the threshold '>10' has no counterpart: an expectation fails at the first row",
        "relationships_orders_id__id__ref_customers_": "relationships has no counterpart in Great Expectations",
        "by_id": "group_by_columns has no counterpart",
        "column_max_orders_amount__id": "the bound 'id' is an SQL expression, which has no counterpart",
    }
    listed = found.suite["meta"]["recon"]["left_out"]
    assert [(one["name"], one["reason"]) for one in listed] == list(found.left_out)


def test_great_expectations_reads_the_suite(folder: Path) -> None:
    gx = pytest.importorskip("great_expectations")
    found = suite_of([b for b in bind(load(folder)) if b.sink == "orders"], "orders").suite
    suite = gx.ExpectationSuite(**json.loads(json.dumps(found)))
    read = [(e.configuration.type, e.severity.value) for e in suite.expectations]
    assert read == [(e["type"], e["severity"]) for e in found["expectations"]]
    assert suite.meta["recon"] == found["meta"]["recon"]


def test_the_command(folder: Path) -> None:
    def recon(*words: str):
        return CliRunner().invoke(app, ["export", "gx", "--project-dir", str(folder), *words])

    run = recon("--sink", "orders")
    assert run.exit_code == 0 and len(json.loads(run.stdout)["expectations"]) == 16
    assert "Wrote 16 of 21 checks on the rows of orders; 5 have no counterpart in GX:\n" in run.stderr
    assert "  some_null: the threshold '>10'" in run.stderr
    run = recon()
    assert run.exit_code == 2 and "choose one with --sink" in run.stderr
    run = recon("--sink", "order")
    assert run.exit_code == 2 and "did you mean 'orders'?" in run.stderr
    out = folder / "suite.json"
    assert recon("--sink", "other", "--output", str(out)).exit_code == 0
    assert json.loads(out.read_text())["expectations"] == []
    run = recon("--sink", "other", "--output", str(out))
    assert run.exit_code == 2 and "exists already" in run.stderr
