"""recon import odcs, recon export odcs: what a contract promises of rows, as tests, and the other way round."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from open_data_contract_standard.model import OpenDataContractStandard
from typer.testing import CliRunner

from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.cli.app import app
from recon.convert.odcs import Imported, contract_of, read
from recon.project import Project, Sink, load
from tests.support.messages import raises, same_message

HEAD = "{apiVersion: v3.1.0, kind: DataContract, id: shop, version: 1.0.0, status: active, name: my shop"

CONTRACT = r"""
apiVersion: v3.2.0
kind: DataContract
id: shop-1
name: my shop
version: 1.0.0
status: active
schema:
  - name: orders
    physicalName: s3://lake/orders
    description: One row per order.
    properties:
      - {name: id, physicalName: order_id, logicalType: integer, primaryKey: true, description: The key.}
      - {name: code, required: true, unique: true, logicalTypeOptions: {pattern: '^[A-Z]+$', minLength: 2, format: x}}
      - {name: amount, logicalTypeOptions: {minimum: 0, exclusiveMaximum: 100}}
      - {name: misspelt, requird: true}
      - {name: state, enum: [{value: new}, {value: paid}]}
      - {name: customer, relationships: [{to: customers.id}, {to: regions.id}]}
      - {name: at, logicalType: timestamp}
      - name: address
        logicalType: object
        properties: [{name: city, required: true}]
      - name: email
        quality:
          - {metric: nullValues, mustBe: 0, unit: rows, severity: warning, name: no null, dimension: completeness}
          - {metric: nullValues, mustBeLessThan: 5}
          - {metric: nullValues, mustBeLessOrEqualTo: 1, unit: percent}
          - {metric: nullValues, mustBeLessThan: 1, unit: percent}
          - {metric: missingValues, arguments: {missingValues: [null, '', "N/A'"]}, mustBeLessOrEqualTo: 3}
          - {metric: missingValues, arguments: {missingValues: [null]}, mustBe: 0}
          - {metric: invalidValues, arguments: {validValues: [a, null, b], pattern: '@'}, mustBe: 0}
          - {rule: duplicateValues, mustBe: 0}
          - type: sql
            query: "SELECT count(*) FROM {object} WHERE {property} like '%@%' or x is null"
            mustBeBetween: [0, 9]
          - {type: sql, name: newest, query: "SELECT max({property}) FROM {object}", mustBe: x, tags: [t]}
          - {metric: duplicateValues, mustBeLessThan: 10}
          - {metric: invalidValues, arguments: {validValues: [a]}, mustBeLessThan: 1, unit: percent}
          - {metric: nullValues}
          - {metric: nullValues, mustBe: 0.5}
          - {metric: median, mustBe: 0}
          - {type: text, description: The address was verified.}
          - {type: custom, engine: soda, implementation: "x: 1"}
          - {type: custom, engine: recon, implementation: {not_empty_string: {config: {where: "id > 1"}}}}
          - {type: custom, engine: recon, implementation: {no_such_check: {}}}
          - {type: sql, query: "SELECT 1 FROM elsewhere", mustBe: 1}
          - {type: sql, query: "SELECT max(x) FROM orders.raw", mustBe: 1}
          - {metric: invalidValues, arguments: {pattern: "{{ env_var('HOME') }}"}, mustBe: 0}
    quality:
      - {metric: rowCount, mustBeGreaterThan: 10}
      - {metric: rowCount, mustBeBetween: [5, 100]}
      - {metric: rowCount, mustNotBe: 7}
      - {metric: duplicateValues, mustBe: 0, arguments: {properties: [id, code]}}
      - {type: sql, name: many, query: "select count(*) from s3://lake/orders", mustBeGreaterThan: 3}
  - name: customers
    description: "{{ env_var('HOME') }}"
    properties:
      - {name: tenant, primaryKey: true, primaryKeyPosition: 2}
      - {name: id, primaryKey: true, primaryKeyPosition: 1}
slaProperties:
  - {property: Latency, value: 4, unit: d, element: orders.at, description: For reports.}
  - {property: latency, value: 2, unit: weeks, element: "orders.at, customers.since"}
  - {property: latency, value: 2, unit: m, element: orders.at}
  - {property: latency, value: 2, unit: h, element: s3://lake/orders.at}
  - {property: generalAvailability, value: 2022-05-12T09:30:10-08:00}
"""


def imported(folder: Path, text: str) -> Imported:
    (folder / "contract.odcs.yaml").write_text(text)
    return read(folder / "contract.odcs.yaml")


def loaded(folder: Path, found: Imported) -> Project:
    (folder / "recon.yml").write_text(found.text)
    for name, text in found.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return load(folder)


def sinks(project: Project) -> dict[str, Sink]:
    return {sink.name: sink for pipeline in project.pipelines for sink in pipeline.sinks}


def told(tests: Any) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [(t.test, t.arguments, t.config.model_dump(exclude_defaults=True)) for t in tests]


def test_a_contract_becomes_a_recon_yml_that_loads(tmp_path: Path) -> None:
    found = imported(tmp_path, CONTRACT)
    project = loaded(tmp_path, found)
    assert project.name == "my_shop" and [t.name for t in project.tables] == ["regions"]
    orders, customers = sinks(project)["orders"], sinks(project)["customers"]
    assert (orders.target, customers.target) == ("s3://lake/orders", "lake/customers")
    assert orders.description == "One row per order." and customers.description is None
    of = {column.name: told(column.data_tests) for column in orders.columns}
    assert of["order_id"] == [("not_null", {}, {}), ("unique", {}, {})]
    assert of["code"] == [("not_null", {}, {}), ("unique", {}, {}), ("matches_regex", {"regex": "^[A-Z]+$"}, {})]
    assert of["amount"] == [
        ("accepted_range", {"min_value": 0}, {}),
        ("accepted_range", {"max_value": 100, "inclusive": False}, {}),
    ]
    assert of["state"] == [("accepted_values", {"values": ["new", "paid"]}, {})]
    assert of["customer"] == [
        ("relationships", {"to": "ref('customers')", "field": "id"}, {}),
        ("relationships", {"to": "ref('regions')", "field": "id"}, {}),
    ]
    below_5 = {"warn_if": ">=5", "error_if": ">=5"}
    assert of["email"] == [
        ("not_null", {}, {"severity": "warn", "alias": "no_null", "meta": {"dimension": "completeness"}}),
        ("not_null", {}, below_5),
        ("not_null_proportion", {"at_least": 0.99}, {}),
        ("not_null_proportion", {"at_least": 0.9900000000000001}, {}),
        ("not_null", {}, {}),
        ("accepted_values", {"values": ["a", "b"]}, {}),
        ("matches_regex", {"regex": "@"}, {}),
        ("unique", {}, {}),
        ("not_empty_string", {}, {"where": "id > 1"}),
    ]
    outside = "not between 0 and 9"
    assert told(orders.data_tests) == [
        ("expression_is_true", {"expression": "length(code) >= 2"}, {}),
        (
            "expression_is_true",
            {"expression": "email is not null and email not in ('', 'N/A\\'')"},
            {"warn_if": ">3", "error_if": ">3"},
        ),
        (
            "expression_is_true",
            {"expression": "not (email like '%@%' or x is null)"},
            {"warn_if": outside, "error_if": outside},
        ),
        ("row_count", {"min_value": 11}, {}),
        ("row_count", {"min_value": 5, "max_value": 100}, {}),
        ("unique_combination_of_columns", {"combination_of_columns": ["order_id", "code"]}, {}),
        (
            "freshness",
            {"loaded_at_field": "at", "error_after": {"count": 4, "period": "day"}},
            {"description": "For reports."},
        ),
        ("freshness", {"loaded_at_field": "at", "error_after": {"count": 14, "period": "day"}}, {}),
        ("freshness", {"loaded_at_field": "at", "error_after": {"count": 2, "period": "hour"}}, {}),
    ]
    assert told(customers.data_tests) == [
        ("unique_combination_of_columns", {"combination_of_columns": ["id", "tenant"]}, {})
    ]
    assert {bound.kind for bound in bind(project)} == {"data"}
    assert found.tables == 2 and found.tests == len(bind(project))


def test_what_has_no_counterpart_is_a_comment_and_told(tmp_path: Path) -> None:
    assert same_message("\n".join(imported(tmp_path, CONTRACT).left_out))


def test_a_rule_of_sql_that_counts_no_rows_is_a_file(tmp_path: Path) -> None:
    found = imported(tmp_path, CONTRACT)
    assert found.files == {
        "data_tests/orders_newest.sql": "{{ config(tags=['t']) }}\nselect value from (\n"
        "SELECT max(email) FROM {{ ref('orders') }}\n) as rule(value)\nwhere not coalesce(value = 'x', false)\n",
        "data_tests/orders_many.sql": "select value from (\nselect count(*) from {{ ref('orders') }}\n"
        ") as rule(value)\nwhere not coalesce(value > 3, false)\n",
    }
    project = loaded(tmp_path, found)
    assert [bound.name for bound in bind(project)][-2:] == ["orders_many", "orders_newest"]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "schema: [",
        "just words",
        "{kind: Widget, apiVersion: v1}",
        "models: [{name: a}]",
        f"{HEAD}}}".replace("v3.1.0", "v3.3.0"),
        f"{HEAD}}}".replace("v3.1.0", "v4.0.0"),
        f"{HEAD}}}".replace("v3.1.0", "v2.2.2"),
        f"{HEAD}}}".replace("v3.1.0", "newest"),
        f"{HEAD}, schema: [{{name: [1]}}]}}",
        f"{HEAD}, surprise: 1}}",
        f"{HEAD}, schema: [{{name: a, properties: [{{name: b}}]}}]}}",
        f"{HEAD}, slaProperties: [{{property: retention, value: 3}}]}}",
    ],
)
def test_what_is_no_contract_is_one_sentence_and_exit_code_2(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "contract.yaml"
    if text is not None:
        file.write_text(text)
    with raises(ConfigError):
        read(file)
    run = CliRunner().invoke(app, ["import", "odcs", str(file), "-o", str(tmp_path / "recon.yml")])
    assert run.exit_code == 2 and len(run.stderr.strip().splitlines()) == 1 and not (tmp_path / "recon.yml").exists()


def test_without_the_package_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_data_contract_standard.model", None)
    with raises(ConfigError):
        imported(tmp_path, CONTRACT)


RECON = r"""
name: shop
ledger: lake/_recon
tables: [{name: customers, target: customers}]
pipelines:
  - name: stream
    checkpoint: c
    data_tests: [offset_continuity]
    sinks:
      - name: orders
        target: lake/orders
        description: One row per order.
        post_batch: [{not_null: {column_name: id}}]
        data_tests:
          - source_rows
          - row_count: {min_value: 1}
          - row_count: {min_value: 1, max_value: 9, config: {where: "id > 1"}}
          - row_count: {min_value: 3, max_value: 3}
          - row_count: {max_value: 9, severity: warn}
          - unique_combination_of_columns: {combination_of_columns: [id, line]}
          - expression_is_true: {expression: "amount > 0", error_if: ">3", warn_if: ">3"}
          - freshness: {loaded_at_field: at, error_after: {count: 6, period: hour}}
          - freshness: {loaded_at_field: at, warn_after: {count: 6, period: hour}}
          - schema_contract: {mode: open, columns: [{name: id, data_type: bigint}]}
        columns:
          - name: id
            data_type: bigint
            description: The key.
            data_tests:
              - not_null
              - unique
              - not_null: {config: {severity: warn, tags: [key], alias: id_there, meta: {dimension: completeness}}}
              - not_null: {config: {where: "line = 1", meta: {owner: finance}}}
              - not_null: {error_if: ">=5", warn_if: ">=5"}
              - not_null: {error_if: ">5"}
              - unique: {error_if: ">5", warn_if: ">5"}
              - relationships: {to: ref('customers'), field: id}
              - relationships: {to: ref('customers'), field: id, severity: warn}
              - not_null_proportion: {at_least: 0.95}
              - not_null_proportion: {at_least: 0.5, at_most: 0.9}
          - name: status
            data_type: array<string>
            data_tests:
              - accepted_values: {values: [new, 1, true]}
              - accepted_values: {values: ["date '2026-01-01'"], quote: false}
              - matches_regex: {regex: '^\\d+$'}
              - matches_regex: {regex: x, match: full}
              - accepted_range: {min_value: 0, max_value: 2026-01-01}
          - {name: at, data_tests: [{not_null: {column_name: at, store_failures: true}}]}
"""


def contract(folder: Path, text: str = RECON) -> tuple[dict[str, Any], Any]:
    (folder / "recon.yml").write_text(text)
    project = load(folder)
    exported = contract_of(project, [(p.name, s) for p in project.pipelines for s in p.sinks])
    return yaml.safe_load(exported.text), exported


def test_an_exported_contract_is_one_of_the_standard(tmp_path: Path) -> None:
    written, exported = contract(tmp_path)
    assert OpenDataContractStandard(**written).schema_
    schema = json.loads((files("open_data_contract_standard") / "schema.json").read_text())
    # It asks every property without a logicalType for a `map`, since its condition does not require the key.
    of_properties = schema["$defs"]["SchemaBaseProperty"]["allOf"]
    of_properties[:] = [rule for rule in of_properties if "'map'" not in str(rule.get("if"))]
    jsonschema.Draft201909Validator(schema).validate(written)
    (orders,) = written["schema"]
    of = {prop["name"]: prop for prop in orders["properties"]}
    assert of["id"]["required"] and of["id"]["unique"] and of["id"]["logicalType"] == "integer"
    assert of["id"]["relationships"] == [{"type": "foreignKey", "to": "customers.id"}]
    assert {rule.get("metric") for rule in of["status"]["quality"]} == {"invalidValues", None}
    assert written["slaProperties"] == [{"property": "latency", "value": 6, "unit": "h", "element": "orders.at"}]
    assert exported.tests == 26 and same_message("\n".join(exported.left_out))


def test_what_is_exported_comes_back(tmp_path: Path) -> None:
    """Every test of rows, with its arguments and config; a test of the stream is not the contract's."""

    def of_rows(project: Project) -> list[tuple[str, str, str]]:
        bounds = [bound for bound in bind(project) if bound.kind == "data"]
        changed = [b.config.model_dump(exclude_defaults=True) for b in bounds]
        return sorted(
            (str(b.check), b.sink or "", str(sorted(c.items()))) for b, c in zip(bounds, changed, strict=True)
        )

    written, exported = contract(tmp_path)
    before = of_rows(load(tmp_path))
    back = imported(tmp_path, exported.text)
    after = loaded(tmp_path, back)
    assert of_rows(after) == before and len(before) == exported.tests == back.tests
    assert sinks(after)["orders"].target == "lake/orders"
    again, _ = contract(tmp_path, back.text)
    assert _sorted(again["schema"]) == _sorted(written["schema"])


def _sorted(value: Any) -> Any:
    """Without the order of lists, and without types, which only the columns of the first project have."""
    if isinstance(value, dict):
        return {k: _sorted(v) for k, v in value.items() if k not in ("physicalType", "logicalType")}
    return sorted(map(_sorted, value), key=str) if isinstance(value, list) else value


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    command = ["import", "odcs", str(tmp_path / "contract.yaml")]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0 and "      - name: orders\n" in run.stdout
    assert "data_tests/orders_many.sql: a rule of SQL, which --output writes beside recon.yml" in run.stderr
    folder = tmp_path / "project"
    folder.mkdir()
    run = CliRunner().invoke(app, [*command, "-o", str(folder / "recon.yml")])
    assert run.exit_code == 0 and (folder / "data_tests" / "orders_many.sql").is_file()
    run = CliRunner().invoke(app, ["--project-dir", str(folder), "list"])
    assert run.exit_code == 0 and "orders_many" in run.stdout
    (folder / "recon.yml").rename(folder / "old.yml")
    run = CliRunner().invoke(app, [*command, "-o", str(folder / "recon.yml")])
    assert run.exit_code == 2 and "exists already" in run.stderr and not (folder / "recon.yml").exists()
    (folder / "old.yml").rename(folder / "recon.yml")
    exporting = ["--project-dir", str(folder), "export", "odcs"]
    run = CliRunner().invoke(app, [*exporting, "--sink", "customers", "-o", str(tmp_path / "out.yaml")])
    assert (
        run.exit_code == 0 and "Wrote 3 tests of 1 tables; 1 is left to you:\n  2 SQL files of data_tests" in run.stderr
    )
    assert [one["name"] for one in yaml.safe_load((tmp_path / "out.yaml").read_text())["schema"]] == ["customers"]
    assert CliRunner().invoke(app, [*exporting, "--sink", "none"]).exit_code == 2
