"""Reading GX suites: no Spark and no Great Expectations needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.checks.data import gx
from recon.checks.data.gx import ExpectationSuite
from recon.checks.registry import build_all
from recon.project import CheckConfig, CheckSpec, load
from tests.support.messages import raises

SUITE = {
    "name": "orders",
    "expectations": [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}, "meta": {}, "severity": "critical"},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "min_value": 0}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "note"}, "severity": "warning"},
        {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["id", "line"]}},
    ],
    "meta": {"great_expectations_version": "1.24.1"},
}


def checks(folder: Path = Path(), **arguments) -> list[ExpectationSuite]:
    spec = CheckSpec(test="expectation_suite", arguments=arguments)
    return build_all(spec, "here", folder)  # type: ignore[return-value]


def problem(folder: Path = Path(), **arguments) -> str:
    (check,) = checks(folder, **arguments)
    return check.parsed()["problem"]


def test_each_expectation_is_a_check_with_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)  # binding needs no GX: an import would fail
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites/orders.json").write_text(json.dumps(SUITE))
    (tmp_path / "recon.yml").write_text(
        """
name: p
ledger: ledger
pipelines:
  - name: orders
    checkpoint: c
    sinks:
      - name: orders
        target: t
        data_tests:
          - expectation_suite: {suite: suites/orders.json}
"""
    )
    bounds = [b for b in bind(load(tmp_path)) if b.check.test == "expectation_suite"]
    assert [b.name for b in bounds] == [
        "expectation_suite_orders_expect_column_values_to_not_be_null_id",
        "expectation_suite_orders_expect_column_values_to_be_between_amount",
        "expectation_suite_orders_expect_column_values_to_not_be_null_note",
        "expectation_suite_orders_expect_compound_columns_to_be_unique_id_line",
    ]
    assert [b.config.severity for b in bounds] == ["error", "error", "warn", "error"]


def test_a_configured_severity_outranks_the_suites() -> None:
    (check,) = checks(expectations=[{"type": "expect_x", "kwargs": {}, "severity": "info"}])
    assert check.settled(CheckConfig()).severity == "warn"
    assert check.settled(CheckConfig(severity="error")).severity == "error"


def test_a_suite_is_found_in_a_project_by_its_name(tmp_path: Path) -> None:
    context = tmp_path / "gx"
    (context / "kept").mkdir(parents=True)
    (context / "great_expectations.yml").write_text(
        "expectations_store_name: s\nstores: {s: {store_backend: {base_directory: kept/}}}\n"
    )
    (context / "kept/orders.json").write_text(json.dumps(SUITE))
    assert len(checks(tmp_path, project=".", suite="orders")) == 4
    assert len(checks(tmp_path, project="gx", suite="orders")) == 4
    assert "has no suite 'order'" in (said := problem(tmp_path, project="gx", suite="order"))
    assert said.endswith("; there is orders")
    # A folder without great_expectations.yml: GX's own default below it.
    (tmp_path / "bare/expectations").mkdir(parents=True)
    (tmp_path / "bare/expectations/o.json").write_text(json.dumps(SUITE))
    assert len(checks(tmp_path, project="bare", suite="o")) == 4


def test_a_suite_that_cannot_be_read_is_one_check_that_says_why(tmp_path: Path) -> None:
    assert "no_such.json cannot be read: No such file" in problem(tmp_path, suite="no_such.json")
    (tmp_path / "bad.json").write_text('{"expectations": [')
    assert "bad.json is not valid JSON" in problem(tmp_path, suite="bad.json")
    (tmp_path / "list.json").write_text("[1]")
    assert "holds no list 'expectations'" in problem(tmp_path, suite="list.json")
    (tmp_path / "empty.json").write_text('{"expectations": []}')
    assert "nothing would be proved" in problem(tmp_path, suite="empty.json")
    (check,) = checks(tmp_path, suite="bad.json")
    assert check.label() == "bad"


def test_one_bad_expectation_leaves_the_others() -> None:
    found = checks(expectations=[{"kwargs": {}, "x": 1}, {"expect_column_to_exist": {"column": "id"}}, 7])
    assert "needs a 'type'" in found[0].parsed()["problem"]
    assert found[1].parsed() == {"type": "expect_column_to_exist", "kwargs": {"column": "id"}}
    assert "must be a mapping" in found[2].parsed()["problem"]


def test_parameters_are_put_in() -> None:
    one = {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": {"$PARAMETER": "low"}}}
    (check,) = checks(expectations=[one], parameters={"low": 5})
    assert check.parsed()["kwargs"] == {"min_value": 5}
    assert "parameter 'low' has no value" in problem(expectations=[one])
    with raises(ConfigError):
        checks(expectations=[one], parameters=["low"])


def test_the_form_before_1_0_and_the_short_one() -> None:
    (old, short) = checks(
        expectations=[
            {"expectation_type": "expect_column_to_exist", "kwargs": {"column": "a"}},
            {"expect_column_to_exist": {"column": "a", "severity": "warning"}},
        ]
    )
    assert old.parsed() == {"type": "expect_column_to_exist", "kwargs": {"column": "a"}}
    assert short.parsed() == {"type": "expect_column_to_exist", "kwargs": {"column": "a"}, "severity": "warning"}


@pytest.mark.parametrize(
    "arguments", [{}, {"project": "gx"}, {"suite": "a.json", "expectations": []}, {"project": "gx", "expectations": []}]
)
def test_one_source_is_needed(arguments: dict) -> None:
    with raises(ConfigError):
        checks(**arguments)


def test_without_great_expectations_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    monkeypatch.delenv("GX_ANALYTICS_ENABLED", raising=False)
    with raises(ConfigError):
        ExpectationSuite.judge_all(checks(expectations=["expect_x"]), None)  # type: ignore[arg-type]


def test_what_breaks_gx_itself_spoils_its_own_check_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def validated(expectations, rows):
        if "odd" in expectations.values():
            raise TypeError("it cannot be serialized")
        return {at: {"success": True} for at in expectations}

    monkeypatch.setattr(gx, "_gx", lambda: None)
    monkeypatch.setattr(gx, "_domain_object", lambda expectation, at: expectation["kwargs"]["column"])
    monkeypatch.setattr(gx, "_validated", validated)
    named = [{"expect_column_values_to_be_unique": {"column": column}} for column in ("id", "odd", "amount")]
    verdicts = ExpectationSuite.judge_all(checks(expectations=named), None)
    assert [v.unproved for v in verdicts] == [
        None,
        "expect_column_values_to_be_unique could not be evaluated: it cannot be serialized",
        None,
    ]
