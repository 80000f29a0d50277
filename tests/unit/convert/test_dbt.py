"""recon import dbt: what stands in dbt's YAML stands in recon.yml, or in a comment and on stderr."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recon.cli.app import app
from recon.convert.dbt import Imported, read
from recon.errors import ConfigError
from recon.project import Project, Sink, load
from tests.support.messages import raises

SCHEMA = r"""
version: 2
models:
  - name: orders
    description: One row per order.
    data_tests:
      - dbt_utils.unique_combination_of_columns:
          arguments:
            combination_of_columns: [order_id, line]
          config: {severity: warn}
      - dbt_utils.expression_is_true:
          expression: "amount >= 0"
          where: "status != '{{ var('dead', \"gone\") }}'"
      - dbt_utils.equal_rowcount:
          compare_model: ref('raw_orders')
      - elementary.volume_anomalies
    columns:
      - name: order_id
        description: The key.
        tags: [key]
        tests:
          - unique
          - not_null:
              severity: error
              warn_if: ">10"
              tags: nightly
      - name: status
        tests:
          - accepted_values:
              name: status_is_known
              values: ['new', 'paid']
              config:
                where: "day > '{{ var('day') }}'"
                store_failures_as: table
                meta: {owner: finance}
      - name: customer_id
        tests:
          - relationships:
              to: ref('customers')
              field: id
          - relationships:
              arguments:
                to: "{{ source('crm', 'people') }}"
                field: id
      - name: amount
        tests:
          - dbt_expectations.expect_column_values_to_be_between:
              min_value: 0
              max_value: 10
              strictly: true
              row_condition: "status = 'new'"
          - dbt_expectations.expect_column_values_to_match_regex:
              regex: '^\d{2}$'
              flags: i
          - dbt_utils.accepted_range: {max: 3}
          - test_name: not_null
            config: {enabled: "{{ target.name == 'prod' }}"}
      - name: at
        tests:
          - dbt_expectations.expect_row_values_to_have_recent_data: {datepart: day, interval: 1}
      - name: untested
  - name: without_tests
sources:
  - name: crm
    loaded_at_field: loaded_at
    freshness:
      warn_after: {count: 12, period: hour}
      error_after: {count: 1, period: day}
    tables:
      - name: people
        columns:
          - name: id
            data_tests: [unique]
      - name: orders
        freshness: null
        columns: [{name: id, data_tests: [not_null]}]
      - name: late
        loaded_at_field: null
        config: {freshness: {warn_after: {count: 1, period: hour}, filter: "id > 1"}}
unit_tests:
  - name: one
"""


def imported(folder: Path, text: str) -> Imported:
    file = folder / "schema.yml"
    file.write_text(text)
    return read(file)


def loaded(folder: Path, found: Imported, **variables) -> Project:
    (folder / "recon.yml").write_text(found.text)
    return load(folder, variables)


def sinks(project: Project) -> dict[str, Sink]:
    return {s.name: s for p in project.pipelines for s in p.sinks}


def told(tests) -> list[tuple[str, dict]]:
    return [(t.test, t.arguments) for t in tests]


def test_a_schema_becomes_a_recon_yml_that_loads(tmp_path: Path) -> None:
    found = imported(tmp_path, SCHEMA)
    project = loaded(tmp_path, found, day="2026-11-01")
    tables = sinks(project)
    assert list(tables) == ["orders", "people", "crm_orders", "late"]
    orders = tables["orders"]
    assert orders.description == "One row per order."
    assert told(orders.data_tests) == [
        ("unique_combination_of_columns", {"combination_of_columns": ["order_id", "line"]}),
        ("expression_is_true", {"expression": "amount >= 0"}),
        ("equal_rowcount", {"compare_model": "ref('raw_orders')"}),
        ("recency", {"field": "at", "datepart": "day", "interval": 1}),
    ]
    assert orders.data_tests[0].config.severity == "warn"
    assert orders.data_tests[1].config.where == "status != 'gone'"
    columns = {c.name: c for c in orders.columns}
    assert list(columns) == ["order_id", "status", "customer_id", "amount"]
    unique, not_null = columns["order_id"].data_tests
    assert unique.config.tags == ("key",) and not_null.config.tags == ("nightly", "key")
    assert not_null.config.warn_if == ">10"
    (values,) = columns["status"].data_tests
    assert values.arguments == {"values": ["new", "paid"]} and values.config.alias == "status_is_known"
    assert values.config.where == "day > '2026-11-01'"
    assert values.config.store_failures and values.config.meta == {"owner": "finance"}
    assert told(columns["customer_id"].data_tests) == [
        ("relationships", {"to": "ref('customers')", "field": "id"}),
        ("relationships", {"to": "ref('people')", "field": "id"}),
    ]
    (between,) = columns["amount"].data_tests
    assert between.test == "accepted_range"
    assert between.arguments == {"min_value": 0, "max_value": 10, "inclusive": False}
    assert between.config.where == "status = 'new'"
    assert [t.name for t in project.tables] == ["customers", "raw_orders"]


def test_freshness_of_sources(tmp_path: Path) -> None:
    tables = sinks(loaded(tmp_path, imported(tmp_path, SCHEMA), day="2026-11-01"))
    assert told(tables["people"].data_tests) == [
        (
            "freshness",
            {
                "loaded_at_field": "loaded_at",
                "warn_after": {"count": 12, "period": "hour"},
                "error_after": {"count": 1, "period": "day"},
            },
        )
    ]
    assert not tables["crm_orders"].data_tests
    # The source's field, the table's own freshness.
    assert told(tables["late"].data_tests) == [
        (
            "freshness",
            {"loaded_at_field": "loaded_at", "warn_after": {"count": 1, "period": "hour"}, "filter": "id > 1"},
        )
    ]


def test_what_has_no_counterpart_is_a_comment_and_told(tmp_path: Path) -> None:
    found = imported(tmp_path, SCHEMA)
    assert found.tests == 14 and found.tables == 4
    assert len(found.left_out) == 5
    anomalies, regex, range_, jinja, unit = sorted(found.left_out, key=lambda s: (s.startswith("schema.yml"), s))[0:5]
    assert anomalies.startswith("orders: dbt_expectations.expect_column_values_to_match_regex: its argument flags has")
    assert regex.startswith("orders: dbt_utils.accepted_range: accepted_range has no argument 'max'")
    assert range_.startswith("orders: elementary.volume_anomalies: recon has no check of this name")
    assert jinja == "orders: not_null: recon.yml's Jinja has no {{ target.name == 'prod' }}"
    assert unit == "schema.yml: 1 unit tests, which are about SQL and not about data"
    assert "        # - elementary.volume_anomalies\n" in found.text.replace("          # ", "        # ")
    assert "regex: ^\\d{2}$" in found.text


def test_a_project_folder(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text(
        """
name: shop
model-paths: [marts]
data_tests:
  +store_failures: true
  shop:
    +severity: warn
    staging: {+severity: error}
"""
    )
    (tmp_path / "marts/deep").mkdir(parents=True)
    (tmp_path / "marts/a.yml").write_text("models: [{name: a, columns: [{name: id, data_tests: [unique]}]}]")
    (tmp_path / "marts/deep/b.yaml").write_text("models: [{name: b, columns: [{name: id, data_tests: [not_null]}]}]")
    (tmp_path / "marts/0.yml").write_text(
        "sources: [{name: raw, tables: [{name: a, columns: [{name: x, tests: [unique]}]}]}]"
    )
    (tmp_path / "tests/generic").mkdir(parents=True)
    (tmp_path / "tests/one.sql").write_text("select 1")
    (tmp_path / "tests/generic/two.sql").write_text("{% test x(model) %}{% endtest %}")
    found = read(tmp_path)
    project = loaded(tmp_path, found)
    assert project.name == "shop" and list(sinks(project)) == ["raw_a", "a", "b"]
    (unique,) = sinks(project)["a"].columns[0].data_tests
    assert unique.config.severity == "warn" and unique.config.store_failures
    assert found.left_out == (
        "1 SQL tests in tests/: copy them into data_tests/ next to recon.yml",
        "dbt_project.yml: data_tests of staging; write them as defaults of sinks",
    )


@pytest.mark.parametrize("text", ["models: [{name: a}]", "models: [", "- 1"])
def test_nothing_to_import(tmp_path: Path, text: str) -> None:
    with raises(ConfigError):
        imported(tmp_path, text)
    with raises(ConfigError):
        read(tmp_path / "none")


WORDS = st.text(st.sampled_from("ab '\"\\:#{}%-|>\n&*!\t,[]é"), min_size=1, max_size=12)


@settings(max_examples=60)
@given(before=WORDS, quote=st.sampled_from("'\""), after=WORDS)
def test_any_text_with_jinja_survives(tmp_path_factory: pytest.TempPathFactory, before: str, quote: str, after: str):
    """What dbt would see after Jinja is what recon.yml says after Jinja."""
    import yaml

    folder = tmp_path_factory.mktemp("dbt")
    # A line that begins with # is a comment to recon.yml's Jinja, in a text of several lines, too.
    plain = f"{before}{after}".replace("{", "").replace("}", "")
    assume(not re.search(r"^\s*#", f"{plain}X{plain}", re.MULTILINE))
    jinja = f"{{{{ var({quote}x{quote}) }}}}"
    for where, expected in ((f"{plain}{jinja}{plain}", f"{plain}X{plain}"), (plain, plain)):
        text = yaml.safe_dump(
            {"models": [{"name": "a", "data_tests": [{"not_null": {"column_name": "id", "where": where}}]}]}
        )
        (test,) = sinks(loaded(folder, imported(folder, text), x="X"))["a"].data_tests
        assert test.config.where == expected


def test_jinja_that_would_stop_the_file_is_a_comment(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "models: [{name: a, columns: [{name: id, data_tests: [unique, {not_null: {where: 'x {{ y'}}, "
        "{not_null: {where: '{% if x %}y{% endif %}'}}, {not_null: {where: '{{ source(1) }}'}}]}]}]",
    )
    assert len(found.left_out) == 3 and found.tests == 1
    assert loaded(tmp_path, found).pipelines


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "schema.yml").write_text(SCHEMA)
    out = tmp_path / "recon.yml"
    run = CliRunner().invoke(app, ["import", "dbt", str(tmp_path / "schema.yml")])
    assert run.exit_code == 0 and "pipelines:\n  - name: orders" in run.stdout
    assert "14 tests of 4 tables; 5 " in run.stderr
    run = CliRunner().invoke(app, ["import", "dbt", str(tmp_path / "schema.yml"), "--output", str(out)])
    assert run.exit_code == 0 and not run.stdout and load(tmp_path, {"day": "1"}).pipelines
    before = out.read_text()
    run = CliRunner().invoke(app, ["import", "dbt", str(tmp_path / "schema.yml"), "--output", str(out)])
    assert run.exit_code == 2 and "exists already" in run.stderr and out.read_text() == before


def test_fail_calc_stays_where_there_are_rows_to_count(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("{name: shop, data_tests: {+fail_calc: sum(n)}}")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.yml").write_text(
        """
models:
  - name: a
    columns:
      - name: id
        data_tests:
          - unique: {config: {fail_calc: max(n)}}
          - not_null: {config: {fail_calc: max(n), where: "day = '{{ var('day') }}'"}}
          - relationships: {arguments: {to: ref('b'), field: id}, config: {fail_calc: max(n)}}
"""
    )
    found = read(tmp_path)
    (column,) = sinks(loaded(tmp_path, found, day="x"))["a"].columns
    assert [(t.test, t.config.fail_calc) for t in column.data_tests] == [("relationships", "max(n)")]
    assert [said.split(" returns ")[0] for said in found.left_out] == [
        "a: unique: unique",
        "a: not_null: not_null",
        "dbt_project.yml: fail_calc of data_tests; write it at the SQL tests it is for",
    ]
    assert found.text.count("# TODO: unique returns no rows that fail_calc 'max(n)' could count") == 1


def test_tests_of_disabled_models_and_sources_are_left_out(tmp_path: Path) -> None:
    off = "{enabled: false}"
    found = imported(
        tmp_path,
        f"""
models:
  - {{name: a, config: {off}, columns: [{{name: id, data_tests: [unique]}}]}}
  - {{name: b, config: {{enabled: true}}, columns: [{{name: id, data_tests: [unique]}}]}}
sources:
  - name: crm
    config: {off}
    tables:
      - {{name: c, columns: [{{name: id, data_tests: [unique]}}]}}
      - {{name: d, config: {{enabled: true}}, columns: [{{name: id, data_tests: [unique]}}]}}
""",
    )
    assert list(sinks(loaded(tmp_path, found))) == ["b", "d"]
    why = "its tests, which dbt does not run: its config says enabled: false"
    assert found.left_out == (f"a: {why}", f"c: {why}")
