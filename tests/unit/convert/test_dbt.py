"""recon import dbt: what stands in dbt's YAML stands in recon.yml, or in a comment and on stderr."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.cli.app import app
from recon.convert.dbt import Imported, read
from recon.project import Project, Sink, load
from tests.support.messages import raises, same_message

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
              flags: c
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
        loaded_at_field: at
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
    # The source's limit, the table's own over it, as dbt merges them.
    assert told(tables["late"].data_tests) == [
        (
            "freshness",
            {
                "loaded_at_field": "at",
                "warn_after": {"count": 1, "period": "hour"},
                "error_after": {"count": 1, "period": "day"},
                "filter": "id > 1",
            },
        )
    ]


def test_a_query_for_freshness_is_no_other_column(tmp_path: Path) -> None:
    """As dbt 1.10 finds them: a table's own field or query goes before those of its source, also one that is null."""
    text = """
sources:
  - name: by_field
    loaded_at_field: at
    config: {freshness: {error_after: {count: 1, period: day}}}
    tables:
      - {name: a, loaded_at_query: "select max(loaded_at) from {{ this }}"}
      - {name: b, config: {loaded_at_query: select 1}}
      - {name: c, loaded_at_field: null}
      - {name: d, config: {loaded_at_field: own}}
  - name: by_query
    config: {loaded_at_query: select 1, freshness: {error_after: {count: 1, period: day}}}
    tables:
      - {name: e}
      - {name: f, loaded_at_field: own}
      - {name: g, loaded_at_field: null, data_tests: [row_count: {min_value: 1}]}
"""
    found = imported(tmp_path, text)
    tables = sinks(loaded(tmp_path, found))
    fields = {
        n: t.arguments["loaded_at_field"] for n, s in tables.items() for t in s.data_tests if len(t.arguments) > 1
    }
    assert fields == {"d": "own", "f": "own"}
    assert found.text.count("# TODO: its loaded_at_query has no counterpart") == 3
    assert found.text.count("# TODO: it has no loaded_at_field") == 2
    assert same_message("\n".join(found.left_out))


def test_a_table_changes_or_ends_a_limit_of_its_sources_freshness(tmp_path: Path) -> None:
    text = """
sources:
  - name: crm
    loaded_at_field: at
    freshness: {warn_after: {count: 12, period: hour}, error_after: {count: 1, period: day}}
    tables:
      - {name: a, freshness: {error_after: {count: 2}}}
      - {name: b, freshness: {error_after: null}}
      - {name: c, freshness: null, config: {freshness: {warn_after: {count: 3, period: day}}}}
      - {name: d, freshness: {}}
"""
    tables = sinks(loaded(tmp_path, imported(tmp_path, text)))
    limits = {
        name: {key: tuple(after.values()) for key, after in test.arguments.items() if key != "loaded_at_field"}
        for name, sink in tables.items()
        for test in sink.data_tests
    }
    assert limits == {
        "a": {"warn_after": (12, "hour"), "error_after": (2, "day")},
        "b": {"warn_after": (12, "hour")},
        "c": {"warn_after": (3, "day")},
        "d": {"warn_after": (12, "hour"), "error_after": (1, "day")},
    }


def test_what_has_no_counterpart_is_a_comment_and_told(tmp_path: Path) -> None:
    found = imported(tmp_path, SCHEMA)
    assert found.tests == 14 and found.tables == 4
    assert len(found.left_out) == 5
    anomalies, regex, range_, jinja, unit = sorted(found.left_out, key=lambda s: (s.startswith("schema.yml"), s))[0:5]
    assert anomalies.startswith("orders: dbt_expectations.expect_column_values_to_match_regex: its flags 'c' have")
    assert regex.startswith("orders: dbt_utils.accepted_range: accepted_range has no argument 'max'")
    assert range_.startswith("orders: elementary.volume_anomalies: recon has no check of this name")
    assert jinja == "orders: not_null: recon.yml's Jinja has no {{ target.name == 'prod' }}"
    assert unit == "schema.yml: 1 unit test of SQL, which say nothing of data"
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
        "1 SQL test in tests/: copy them into data_tests/ next to recon.yml",
        "dbt_project.yml: data_tests: shop: staging has config, and no tests are there",
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


def test_an_enabled_that_only_dbt_s_jinja_can_read_is_evaluated(tmp_path: Path) -> None:
    found = read(
        a_project(
            tmp_path,
            models__a_yml=r"""
models:
  - name: a
    columns:
      - name: id
        data_tests:
          - unique: {config: {enabled: "{{ (var('with_old')) | as_bool }}"}}
          - not_null: {config: {enabled: "{{ (var('with_new', true)) | as_bool }}"}}
          - not_null: {config: {where: "{{ var('day') | as_text }}"}}
          - not_null: {config: {where: "{{ var('day') ~ target.name }}"}}
          - not_null: {config: {where: "{{ var('day') | upper }}"}}
""",
        )
    )
    first, second = sinks(loaded(tmp_path, found))["a"].columns[0].data_tests
    assert (first.config.where, second.config.where) == (None, "2026-11-02")
    assert found.tests == 2 and len([said for said in found.left_out if "recon.yml's Jinja has no" in said]) == 2


def test_jinja_that_would_stop_the_file_is_a_comment(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        "models: [{name: a, columns: [{name: id, data_tests: [unique, {not_null: {where: 'x {{ y'}}, "
        "{not_null: {where: '{% if x %}y{% endif %}'}}, {not_null: {where: '{{ source(1) }}'}}]}]}]",
    )
    assert len(found.left_out) == 3 and found.tests == 1
    twice = imported(tmp_path, _models("a", "b", column="{name: id, data_tests: [unique, elementary.x, elementary.x]}"))
    assert twice.left_out[0].startswith("4 tests of a, b: elementary.x: recon has no check")
    assert loaded(tmp_path, found).pipelines


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "schema.yml").write_text(SCHEMA)
    out = tmp_path / "recon.yml"
    run = CliRunner().invoke(app, ["import", "dbt", str(tmp_path / "schema.yml")])
    assert run.exit_code == 0 and "      - name: orders\n" in run.stdout
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
    assert found.left_out == ("2 tests of a, c, which dbt does not run: their table's config says enabled: false",)


PROJECT = """
name: shop
vars:
  day: "2026-11-01"
  states: [new, paid]
  least: 3
  with_old: false
  empty: null
  shop: {day: "2026-11-02"}
models:
  shop:
    staging:
      +enabled: false
      kept: {+enabled: true}
    old: {+enabled: "{{ var('with_old') }}"}
    perhaps: {+enabled: "{{ target.name == 'prod' }}"}
seeds: {+enabled: false}
sources: {shop: {staging: {crm: {lost: {+enabled: false}}}}}
data_tests:
  shop:
    staging: {+severity: warn, +store_failures_as: view}
    quiet: {+enabled: false}
    nowhere: {+severity: warn}
"""


def a_project(folder: Path, **files: str) -> Path:
    """A dbt project whose files are given by their paths, with `__` for a slash and `_yml`, `_sql` for a suffix."""
    (folder / "dbt_project.yml").write_text(PROJECT)
    for name, text in files.items():
        path, _, suffix = name.replace("__", "/").rpartition("_")
        file = folder / f"{path}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def _models(*names: str, column: str = "{name: id, data_tests: [unique, not_null]}") -> str:
    return "models:\n" + "".join(f"  - {{name: {name}, columns: [{column}]}}\n" for name in names)


def test_what_dbt_does_not_run_is_not_taken_over(tmp_path: Path) -> None:
    """As dbt 1.11 does: the model's file, else its YAML, else dbt_project.yml by the folder of the model's file."""
    found = read(
        a_project(
            tmp_path,
            models__staging__a_sql="select 1",
            models__staging__kept__b_sql="select 1",
            models__c_sql="{{ config(meta={'x': {'y': 1}}, enabled=false) }} select 1",
            models__staging__d_sql="{# {{ config(enabled=false) }} #} {{ config(enabled=var('with_old') == false) }}",
            models__old__e_sql="select 1",
            models__perhaps__f_sql="select 1",
            models__old__m_sql="{{ config(enabled=var('none_such', True) | as_bool) }}",
            models__perhaps__g_sql="{{ config(schema=target.schema, enabled=true) }}",
            models__n_sql="{% if target.name == 'x' %} {{ config(enabled=false) }} {% endif %} select 1",
            models__o_sql="{{ config(enabled=true) }} {{ config(enabled=false) }}",
            models__unlisted_sql="{{ config(enabled=False) }}",
            seeds__h_csv="id",
            models__all_yml=_models("a", "b", "c", "d", "e", "f", "g", "m", "n", "o")
            + "seeds: [{name: h, data_tests: [unique]}]",
            models__staging__sources_yml="sources: [{name: crm, tables: [{name: lost, data_tests: [row_count]}, "
            "{name: people, columns: [{name: id, data_tests: [not_null]}]}]}]",
            models__quiet__t_yml=_models("i")
            + "  - {name: j, columns: [{name: id, data_tests: [unique, not_null: {config: {enabled: true}}]}]}",
            models__rest_yml=_models(
                "k",
                column="{name: id, data_tests: [unique: {enabled: false}, not_null: {arguments: {enabled: false}}, "
                "relationships: {to: ref('unlisted'), field: id}, "
                "relationships: {to: \"source('crm', 'lost')\", field: id}]}",
            )
            + _models("l", column="{name: id, data_tests: [not_null: {enabled: \"{{ var('with_old') }}\"}, unique]}")[
                8:
            ],
        )
    )
    project = loaded(tmp_path, found)
    assert list(sinks(project)) == ["b", "d", "f", "g", "m", "n", "j", "l", "people"]
    assert [t.test for t in sinks(project)["j"].columns[0].data_tests] == ["not_null"]
    assert [t.test for t in sinks(project)["l"].columns[0].data_tests] == ["unique"]
    people = sinks(project)["people"].columns[0].data_tests[0]
    assert (
        people.config.severity == "warn" and people.config.store_failures and people.config.enabled
    )  # by the folder of its YAML
    assert found.tests == 6 * 2 + 3
    assert same_message("\n".join(found.left_out))


def test_variables_of_the_command_go_before_those_of_the_project(tmp_path: Path) -> None:
    where = "{name: id, data_tests: [not_null: {where: \"d > '{{ var('day') }}'\"}]}"
    a_project(tmp_path, models__old__a_sql="select 1", models__a_yml=_models("a", column=where))
    out = tmp_path / "recon.yml"
    command = ["import", "dbt", str(tmp_path), "-o", str(out)]
    assert CliRunner().invoke(app, command).exit_code == 2
    run = CliRunner().invoke(app, ["--vars", "{with_old: true, day: '2027-01-01'}", *command])
    assert run.exit_code == 0
    (test,) = sinks(load(tmp_path))["a"].columns[0].data_tests
    assert test.config.where == "d > '2027-01-01'"


def test_a_project_of_which_dbt_runs_nothing(tmp_path: Path) -> None:
    with raises(ConfigError):
        read(a_project(tmp_path, models__staging__a_sql="select 1", models__a_yml=_models("a")))


def test_config_within_arguments_is_config(tmp_path: Path) -> None:
    """As dbt does from 1.10 on: what is in `arguments` goes over what stands beside it."""
    found = imported(
        tmp_path,
        """
models:
  - name: a
    columns:
      - name: id
        data_tests:
          - not_null: {arguments: {severity: warn, where: "id > 1", tags: [x], name: no_null, description: Why.}}
          - accepted_values: {severity: warn, arguments: {values: [1], severity: error, error_if: ">3"}}
          - unique: {config: {where: "id > 1"}, arguments: {config: {severity: warn}}}
          - unique: {arguments: {store_failures_as: view, column_name: line}}
""",
    )
    assert not found.left_out and found.tests == 4
    null, values, unique, line = sinks(loaded(tmp_path, found))["a"].columns[0].data_tests
    assert null.arguments == {} and null.config.severity == "warn" and null.config.where == "id > 1"
    assert (null.config.tags, null.config.alias, null.config.description) == (("x",), "no_null", "Why.")
    assert values.arguments == {"values": [1]}
    assert (values.config.severity, values.config.error_if) == ("error", ">3")
    assert (unique.config.severity, unique.config.where) == ("warn", None)
    assert line.arguments == {"column_name": "line"} and line.config.store_failures


def test_vars_of_the_project_are_the_defaults_of_var(tmp_path: Path) -> None:
    found = read(
        a_project(
            tmp_path,
            models__a_yml=r"""
models:
  - name: a
    data_tests:
      - expression_is_true:
          expression: "day > '{{ var('day') }}' and n > {{ var( \"least\" , (1 + 1)) }} {{ var('empty', 'e') }}"
      - dbt_utils.expression_is_true: {expression: "{{ var('other', 'x > 1') }}"}
      - row_count: {min_value: "{{ var('least') }}"}
    columns:
      - name: state
        data_tests:
          - accepted_values: {values: "{{ var('states') }}"}
          - accepted_values:
              arguments: {values: "var('states', [])", quote: true}
              config: {where: "'{{ var('day') }}' < d"}
""",
        )
    )
    sink = sinks(loaded(tmp_path, found))["a"]
    written, other, count = sink.data_tests
    assert written.arguments == {"expression": "day > '2026-11-02' and n > 3 e"}
    assert other.arguments == {"expression": "x > 1"} and count.arguments == {"min_value": 3}
    first, second = sink.columns[0].data_tests
    assert first.arguments["values"] == second.arguments["values"] == ["new", "paid"]
    assert second.config.where == "'2026-11-02' < d"
    given = sinks(loaded(tmp_path, found, day="2027-01-01", least=5))["a"]
    assert given.data_tests[0].arguments == {"expression": "day > '2027-01-01' and n > 5 e"}
    assert [said for said in found.left_out if "var" in said] == [
        f"dbt_project.yml: the value of var {name} is no text, so it stands in the tests, and --vars does not change it"
        for name in ("least", "states")
    ]


@settings(max_examples=40)
@given(value=st.text(st.sampled_from("ab '\"\\:#|>\n\té"), max_size=10))
def test_any_text_of_a_var_survives(tmp_path_factory: pytest.TempPathFactory, value: str):
    import yaml

    folder = tmp_path_factory.mktemp("dbt")
    (folder / "models").mkdir()
    (folder / "dbt_project.yml").write_text(yaml.safe_dump({"name": "shop", "vars": {"x": value}}))
    where = {"not_null": {"column_name": "id", "where": "a {{ var('x', 'y') }} b"}}
    (folder / "models/a.yml").write_text(yaml.safe_dump({"models": [{"name": "a", "data_tests": [where]}]}))
    (test,) = sinks(loaded(folder, read(folder)))["a"].data_tests
    assert test.config.where == f"a {value} b"


@pytest.mark.parametrize(
    ("test", "file", "sql"),
    [
        ("not_null", "macros/own.sql", "{% test not_null(model, column_name) %}{% endtest %}"),
        ("unique", "tests/generic/own.sql", "{%- data_test unique(model) -%}{% enddata_test %}"),
        ("unique", "macros/deep/own.sql", "{% macro default__test_unique(model, column_name) %}{% endmacro %}"),
        ("dbt_utils.not_constant", "macros/own.sql", "{% macro spark__test_not_constant(model) %}{% endmacro %}"),
        ("unique", "macros/own.sql", "{% macro test_unique(model, column_name) %}{% endmacro %}"),
    ],
)
def test_a_test_that_the_project_overrides_is_not_taken_over(tmp_path: Path, test: str, file: str, sql: str) -> None:
    """recon's own would take its place without a word; dbt runs the project's."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(sql)
    found = read(
        a_project(tmp_path, models__a_yml=_models("a", column=f"{{name: id, data_tests: [{test}, not_empty_string]}}"))
    )
    assert [t.test for t in sinks(loaded(tmp_path, found))["a"].columns[0].data_tests] == ["not_empty_string"]
    assert f"# TODO: {file} overrides it" in found.text
    assert any(
        said.startswith(f"1 test of a, left as comments: {file} overrides {test}, and recon's")
        for said in found.left_out
    )


def test_macros_that_override_nothing_change_nothing(tmp_path: Path) -> None:
    found = read(
        a_project(
            tmp_path,
            macros__own_sql="{# {% test not_null(model) %} #} {% test not_constant(model) %}{% endtest %} "
            "{% macro unique(model) %}{% endmacro %} {% macro test_latest_test_unique() %}{% endmacro %}",
            models__a_yml=_models("a", column="{name: id, data_tests: [unique, not_null, dbt_utils.not_constant]}"),
        )
    )
    assert found.tests == 3


def test_null_among_accepted_values_means_what_it_means_in_dbt(tmp_path: Path) -> None:
    """dbt writes '{{ value }}': null is the text None, true the text True; without quotes, null hides every failure."""
    found = imported(
        tmp_path,
        """
models:
  - name: a
    columns:
      - name: c
        data_tests:
          - accepted_values: {values: [a, null, true, 1]}
          - accepted_values: {values: ["'a'", null], quote: false}
          - accepted_values: {values: ["'a'", " NULL "], quote: false}
          - dbt_expectations.expect_column_values_to_be_in_set: {value_set: [null, b]}
""",
    )
    sink = sinks(loaded(tmp_path, found))["a"]
    assert told(sink.columns[0].data_tests) == [("accepted_values", {"values": ["a", "None", "True", 1]})]
    assert told(sink.data_tests) == [("expression_is_true", {"expression": "coalesce(c in ('None', 'b'), false)"})]
    assert same_message("\n".join(found.left_out))


def test_an_audit_of_an_imported_project_runs_its_data_tests_and_nothing_else(tmp_path: Path) -> None:
    """No hook ever wrote: there is no ledger, and one error for each table would say nothing."""
    found = imported(tmp_path, _models("a", "b", "c"))
    bounds = bind(loaded(tmp_path, found))
    assert len(bounds) == 6 and {bound.kind for bound in bounds} == {"data"}
    run = CliRunner().invoke(app, ["--project-dir", str(tmp_path), "audit", "--no-spark"])
    assert run.exit_code == 0 and "ERROR=0 SKIP=6 TOTAL=6" in run.stdout
    assert "there is no ledger" not in run.stdout and "not proved complete" not in run.stdout


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("{expect_column_values_to_match_regex: {regex: a, flags: c}}", "its flags 'c' have no counterpart"),
        ("{expect_column_mean_to_be_between: {min_value: 1, group_by: [a]}}", "its argument group_by has"),
        ("{expect_column_values_to_be_in_set: {value_set: x}}", "its value_set is no list of values"),
        ("{expect_column_values_to_be_in_set: {value_set: [null], quote_values: false}}", "dbt writes the null"),
        ("{expect_column_value_lengths_to_be_between: {}}", "it has neither min_value nor max_value"),
        ("{expect_table_row_count_to_equal_other_table: {compare_model: ref('b'), factor: 2}}", "its factor has"),
        (
            "{expect_table_row_count_to_equal_other_table: {compare_model: x, group_by: [x], compare_group_by: [y]}}",
            "its compare_group_by names other columns",
        ),
        (
            "{expect_compound_columns_to_be_unique: {column_list: [x], ignore_row_if: never}}",
            "its ignore_row_if 'never'",
        ),
        ("{expression_is_true: {expression: x, test_condition: = false}}", "its test_condition has"),
        ("{expect_column_values_to_be_of_type: {column_type: NUMBER}}", "its column_type number is no type"),
        ("{expect_column_values_to_be_increasing: {}}", "recon has no check of this name"),
    ],
)
def test_what_a_macro_does_and_no_check_is_a_comment(tmp_path: Path, test: str, reason: str) -> None:
    text = f"models: [{{name: a, columns: [{{name: c, data_tests: [unique, {test}]}}]}}]".replace(
        "{exp", "{dbt_expectations.exp"
    )
    found = imported(tmp_path, text)
    assert found.tests == 1 and reason in found.left_out[0] and f"# TODO: {reason}" in found.text


def test_keys_and_groups_may_be_expressions(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        """
models:
  - name: a
    data_tests:
      - dbt_utils.unique_combination_of_columns:
          combination_of_columns: [id, '"Order ID"', "`my col`", lower(x), a || b, "{{ var('key', 'k') }}"]
      - dbt_utils.unique_combination_of_columns: {combination_of_columns: [a.b], quote_columns: true}
      - dbt_utils.equal_rowcount: {compare_model: ref('b'), group_by_columns: [x + 1]}
""",
    )
    first, exact, groups = sinks(loaded(tmp_path, found))["a"].data_tests
    key = ["id", "`Order ID`", "`my col`", "lower(x)", "(a || b)", "k"]
    assert first.arguments == {"combination_of_columns": key}
    assert exact.arguments == {"combination_of_columns": ["`a.b`"]}
    assert groups.arguments["group_by_columns"] == ["(x + 1)"]


def test_a_condition_of_a_macro_is_added_to_the_where_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("{name: shop, data_tests: {+where: x > 1, shop: {a: {+where: x > 2}}}}")
    rows = "dbt_expectations.expect_table_row_count_to_be_between: {min_value: 1"
    for folder in ("models", "models/a"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.yml").write_text(
            f"models: [{{name: {folder[-1]}, data_tests: [{rows}}}, {rows}, row_condition: y}}, {rows}, where: z, "
            "row_condition: y}]}]"
        )
    tables = sinks(loaded(tmp_path, read(tmp_path)))
    written = {name: [test.config.where for test in sink.data_tests] for name, sink in tables.items()}
    assert written == {f: [w, f"({w}) and (y)", "(z) and (y)"] for f, w in (("s", "x > 1"), ("a", "x > 2"))}


def test_types_and_names_of_columns_are_schema_contracts(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        """
models:
  - name: a
    columns:
      - name: x
        data_tests:
          - dbt_expectations.expect_column_to_exist
          - dbt_expectations.expect_column_values_to_be_of_type: {column_type: bigint}
      - name: y
        data_tests:
          - dbt_expectations.expect_column_values_to_be_of_type: {column_type: string}
          - dbt_expectations.expect_column_values_to_be_in_type_list: {column_type_list: [NUMBER, INTEGER, date]}
""",
    )
    bounds = bind(loaded(tmp_path, found))
    assert len({bound.unique_id for bound in bounds}) == len(bounds) == 4
    contracts, (types,) = [b.check for b in bounds[:3]], [b.check for b in bounds[3:]]
    assert [c.columns_[0].data_type for c in contracts] == [None, "bigint", "string"]
    assert types.condition() == "typeof(y) in ('number', 'int', 'date')"


def test_ephemeral_models_are_no_tables(tmp_path: Path) -> None:
    """As dbt finds it: the model's file, else its YAML, else the nearest folder of dbt_project.yml, else a view."""
    (tmp_path / "dbt_project.yml").write_text(
        "{name: shop, models: {shop: {+materialized: table, steps: {+materialized: ephemeral}}}}"
    )
    models = {"a": "", "steps/b": "", "steps/c": "{{ config(materialized='incremental') }}", "d": "", "e": "", "f": ""}
    models["e"] = "{{ config(materialized='ephemeral') }}"
    models["f"] = "{{ config(materialized=target.kind) }}"
    for name, config in models.items():
        (tmp_path / f"models/{name}.sql").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"models/{name}.sql").write_text(f"{config} select 1")
    (tmp_path / "models/all.yml").write_text(
        _models("b", "c", "e", "f")
        + """
  - name: a
    config: {materialized: view}
    columns: [{name: id, data_tests: [unique, relationships: {to: ref('b'), field: id}]}]
  - name: d
    config: {materialized: ephemeral}
    data_tests: [dbt_utils.equal_rowcount: {compare_model: ref('c')}]
"""
    )
    found = read(tmp_path)
    assert list(sinks(loaded(tmp_path, found))) == ["c", "f", "a"]
    assert not load(tmp_path).tables
    assert same_message("\n".join(found.left_out))


def test_a_project_of_ephemeral_models_has_no_table(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("{name: shop, models: {+materialized: ephemeral}}")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.sql").write_text("select 1")
    (tmp_path / "models/a.yml").write_text(_models("a"))
    with raises(ConfigError):
        read(tmp_path)
