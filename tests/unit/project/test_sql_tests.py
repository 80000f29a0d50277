"""A project's own SQL tests: how files are found, rendered and bound; nothing here runs SQL."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.checks.binding import bind, bind_post_batch
from recon.checks.bound import Bound
from recon.checks.data.sql import SqlTest, one_select
from recon.checks.select import select
from recon.project import Project, load
from recon.project.sql_tests import MODEL, sql_literal
from tests.support.messages import raises

RECON = """\
name: lake
ledger: _recon
tables: [{name: customers, target: customers}]
defaults: {severity: warn, tags: all}
pipelines:
  - name: p
    checkpoint: cp
    sinks:
      - name: orders
        target: orders
        defaults: {limit: 7}
        data_tests: [DATA_TESTS]
        columns: [{name: amount, data_tests: [COLUMN_TESTS]}]
  - name: q
    checkpoint: cp2
    sinks: [{name: orders, target: orders2}, {name: payments, target: payments}]
"""

Make = Callable[..., Project]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A project with files; keyword arguments are --vars."""
    monkeypatch.chdir(tmp_path)

    def write(
        files: dict[str, str], data_tests: str = "", column_tests: str = "", more: str = "", **vars: Any
    ) -> Project:
        text = RECON.replace("DATA_TESTS", data_tests).replace("COLUMN_TESTS", column_tests)
        (tmp_path / "recon.yml").write_text(text + more)
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        return load(tmp_path, vars)

    return write


def own(project: Project) -> list[Bound]:
    return [b for b in bind(project) if isinstance(b.check, SqlTest)]


def sql(bound: Bound) -> str:
    """The rendered query, with each reference in brackets."""
    assert isinstance(bound.check, SqlTest)
    rendered = bound.check.rendered
    return rendered.sql([f"<{name}>" for name in rendered.references])


# --- singular tests ---------------------------------------------------------------------------------------


def test_a_file_is_a_test_of_the_first_sink_it_refers_to(make: Make) -> None:
    project = make(
        {
            "data_tests/paid.sql": """{{ config(tags=['money'], limit=2, fail_calc='sum(n)') }}
select * from {{ ref("customers") }} c join {{ ref('payments') }} p using (id) where c.day = '{{ var("day") }}'
  and p.n < {{ var('n', 3) }} -- {{ ref('p', 'orders') }} {{ source('payments') }}""",
            "data_tests/deep/er/late.sql": "select 1 from {{ ref('p.orders') }}",
            "data_tests/notes.txt": "{{",
            "data_tests/off.sql": "{{ config(enabled=false) }} select 1",
        },
        day="2026-11-01",
    )
    late, paid = own(project)
    assert (late.name, late.pipeline, late.sink, late.kind, late.check.test) == (
        "late",
        "p",
        "orders",
        "data",
        "sql_test",
    )
    assert (paid.unique_id, paid.pipeline, paid.sink) == ("test.lake.paid", "q", "payments")
    assert "where c.day = '2026-11-01'\n  and p.n < 3 -- <ref('p', 'orders')> <ref('payments')>" in sql(paid)
    assert paid.check.own == {"ref('payments')"} and late.check.own == {"ref('p.orders')"}
    config = paid.config
    assert (config.severity, config.limit, config.fail_calc) == ("warn", 2, "sum(n)"), "its own over the defaults"
    assert paid.tags == ("all", "money") and late.config.limit == 7
    assert [b.name for b in select(bind(project), ["test_type:singular"])] == ["late", "paid"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("select 1", "data_tests/t.sql refers to nothing, and to no table of recon.yml, whose test it would be; write"),
        (
            "select 1 from {{ ref('orders') }}",
            "data_tests/t.sql: several pipelines have a sink 'orders'; write one of p",
        ),
        ("select\n{{ reff('payments') }}", "data_tests/t.sql:2: 'reff' is undefined; SQL tests know ref, source, var"),
        ("\n\n{% if %}", "data_tests/t.sql:3: not valid Jinja: "),
        ("\n{{ var('nope') }}", "data_tests/t.sql:2: variable nope is not given; pass --vars '{nope: …}'"),
        ("\n{{ env_var('NOPE_X') }}", "data_tests/t.sql:2: environment variable NOPE_X is not set; export it"),
        ("\n{{ config(sevrity='warn') }}", "t.sql:2: config has no key 'sevrity'; did you mean 'severity'?"),
        ("\n{{ config(limit=0) }}", "t.sql:2: config's 'limit' cannot be 0: input should be greater than"),
        ("{{ config('warn') }}", "t.sql:1: config takes keys and values: config(severity='warn')"),
        ("{{ config(error_if='many') }}{{ ref('payments') }}", "t.sql: threshold 'many' is not understood"),
        ("{{ ref() }}", "t.sql:1: ref takes a table's name"),
        ("{{ ''.__class__.__mro__ }}", "t.sql:1: access to attribute '__class__' of 'str' object is unsafe"),
        ("\n{{ [1].append(2) }}", "t.sql:2: access to attribute 'append' of 'list' object is unsafe"),
        ("{{ range(10 ** 9) }}", "t.sql:1: a Jinja expression fails with OverflowError"),
        ("{{ [] | sql_literal }}", "t.sql:1: sql_literal knows no SQL for a value of type list, or for an empty list"),
        ("{# nothing #}\n", "t.sql:1: renders to nothing"),
        ("{{ helper('x') }}", "macros/m.sql:2: 'nope' is undefined"),
        ("{{ helper() }}", "macros/m.sql:2: parameter 'a' was not provided"),
    ],
)
def test_what_jinja_refuses_is_told_with_file_and_line(make: Make, text: str, told: str) -> None:
    macro = "{% macro helper(a) %}\n{{ a ~ nope }}{% endmacro %}"
    with pytest.raises(ConfigError) as error:
        bind(make({"data_tests/t.sql": text, "macros/m.sql": macro}))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_two_files_of_one_name_and_a_missing_folder(make: Make, tmp_path: Path) -> None:
    query = "select 1 from {{ ref('payments') }}"
    with raises(ConfigError):
        bind(make({"data_tests/a/t.sql": query, "data_tests/b/t.sql": query}))
    with raises(ConfigError):
        bind(make({}, more="test_paths: [tets]\n"))
    (tmp_path / "data_tests/b/t.sql").unlink()
    (tmp_path / "data_tests/a/t.sql").write_bytes(b"\xff\xfe")
    with raises(ConfigError):
        bind(make({}))


def test_what_the_environment_gave_is_hidden(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECON_TEST_KEY", "hunter2-secret")
    project = make({"data_tests/t.sql": "select '{{ env_var('RECON_TEST_KEY') }}' from {{ ref('payments') }}"})
    (bound,) = own(project)
    assert "hunter2" not in repr(bound)
    assert bound.check.rendered.mask("cannot cast 'hunter2-secret'") == "cannot cast '***'"
    assert "hunter2-secret" in sql(bound)


# --- generic tests ----------------------------------------------------------------------------------------

AT_LEAST = """{% test at_least(model, column_name, least=0, to=none) -%}
{{ config(severity='error', tags='generic', fail_calc='count(1)') }}
select {{ column_name }} from {{ model }}
where {{ column_name }} < {{ least | sql_literal }}{% if to %} and {{ exists_in(to) }}{% endif %}
{%- endtest %}"""
EXISTS = "{% macro exists_in(to) %}id in (select id from {{ to }}){% endmacro %}"


def test_generic_tests_are_listed_like_built_in_checks(make: Make) -> None:
    files = {"data_tests/generic/at_least.sql": AT_LEAST, "macros/helpers.sql": EXISTS}
    project = make(
        files,
        "at_least: {column_name: x}, ",
        "at_least, at_least: {least: it's, to: ref('customers')}".replace("at_least: {least", "{at_least: {least")
        + "}",
    )
    below, plain, rich = own(project)
    assert [b.name for b in (below, plain, rich)] == [
        "at_least_orders_x",
        "at_least_orders_amount",
        "at_least_orders_amount_it_s_ref_customers_",
    ]
    assert sql(plain) == f"\nselect amount from <{MODEL}>\nwhere amount < 0"
    assert "< 'it\\'s' and id in (select id from <ref('customers')>)" in sql(rich)
    assert rich.column == "amount" and rich.check.columns() == ("amount",)
    assert (rich.config.severity, rich.config.fail_calc) == ("warn", "count(1)"), "the project's defaults win"
    assert rich.tags == ("generic", "all")
    assert [b.name for b in select(bind(project), ["test_name:at_least"])] == [b.name for b in (below, plain, rich)]
    assert [b.name for b in select(bind(project), ["test_type:generic,column:amount"])] == [plain.name, rich.name]


def test_a_macro_may_stand_anywhere_and_call_any_other(make: Make) -> None:
    files = {
        "macros/a.sql": "{% data_test t(model) %}{% do [1] %}{{ b() }}{% enddata_test %}{% macro c() %}1{% endmacro %}",
        "macros/z.sql": "{% macro b() %}select {{ c() }} from {{ d() }}{% endmacro %}{% macro d() %}x{% endmacro %}",
        "data_tests/s.sql": "{{ b() }}, {{ ref('payments') }}",
    }
    generic, singular = own(make(files, "t"))
    assert (sql(generic), sql(singular)) == ("select 1 from x", "select 1 from x, <ref('payments')>")


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (
            "at_least: {arguments: {leest: 1, column_name: a}}",
            "sink orders (line 12): at_least has no argument 'leest'; did you mean 'least'?",
        ),
        ("at_least", "(line 12): at_least needs the argument 'column_name': list it below a column"),
        ("at_last: {column_name: a}", "there is no check 'at_last'; did you mean 'at_least'?"),
        ("at_least: {column_name: a, to: 1, arguments: {least: []}}", "unknown key 'column_name' in at_least"),
        (
            "at_least: {column_name: a, to: x, least: {}}",
            "macros/g.sql:4: sql_literal knows no SQL for a value of type dict",
        ),
    ],
)
def test_arguments_are_held_to_the_signature(make: Make, item: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        bind(make({"macros/g.sql": AT_LEAST, "macros/h.sql": EXISTS}, item))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{% test t(x) %}{% endtest %}", "macros/g.sql:1: test 't' must take the argument 'model', the tested rows"),
        (
            "\n{% test unique(model) %}{% endtest %}",
            "macros/g.sql:2: test 'unique' has the name of a check that there is",
        ),
        ("{% macro ref(a) %}{% endmacro %}", "a macro cannot be named 'ref', which is a name of recon's own"),
        (
            "{% macro a() %}{% endmacro %}\n{% macro a() %}{% endmacro %}",
            "g.sql:2: 'a' is also in macros/g.sql; rename",
        ),
        ("\n{% test t(model) %}", "macros/g.sql:2: not valid Jinja: Unexpected end of template"),
    ],
)
def test_macros_that_cannot_be_used(make: Make, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        bind(make({"macros/g.sql": text}, "t"))
    assert told in str(error.value)


def test_macros_of_dbt_beside_a_project_without_sql_tests(make: Make) -> None:
    files = {"macros/m.sql": "{% materialization x, default %}{% endmaterialization %}"}
    assert own(make(files, "dbt_utils.unique: {column_name: a}")) == []
    with raises(ConfigError):
        bind(make({**files, "data_tests/t.sql": "select 1 from {{ ref('payments') }}"}))


def test_a_generic_test_below_a_pipeline_and_after_each_batch(make: Make) -> None:
    files = {"macros/g.sql": "{% test t(model) %}select 1 from {{ model }}{% endtest %}"}
    project = make(files)
    text = Path("recon.yml").read_text()
    Path("recon.yml").write_text(
        text.replace("        target: orders\n", "        target: orders\n        post_batch: [t]\n")
    )
    assert [b.name for b in bind_post_batch(load("."), "p", "orders")] == ["t_orders_post_batch"]
    Path("recon.yml").write_text(text.replace("    checkpoint: cp\n", "    checkpoint: cp\n    data_tests: [t]\n"))
    with raises(ConfigError):
        bind(load("."))
    assert [b.name for b in own(project)] == []


def test_a_project_with_tests_can_be_sent_away(make: Make) -> None:
    project = make({"macros/g.sql": "{% test t(model) %}select 1 from {{ model }}{% endtest %}"}, "t")
    assert len(own(project)) == 1
    assert [b.name for b in own(pickle.loads(pickle.dumps(project)))] == ["t_orders"]


# --- SQL as text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("select 1", None),
        ("select 1;", "select 1"),
        ("select ';', `a;b` -- ;\n;; /* done; */ -- yes\n", "select ';', `a;b` -- ;\n"),
        ("-- first\n/* a /* b */ c */ WITH x AS (select 1) select * from x", None),
        ("(select 1) union (select 2)", None),
        ("select ')', 'it\\'s (', \"(\", r'\\' -- (\n", None),
        ("values (1)", None),
        ("\n from x select 1", None),
        ("select transform(a, x -> x + 1), 'reflect(', reflect from x join y using (id) -- reflect('a')", None),
    ],
)
def test_one_select(text: str, kept: str | None) -> None:
    assert one_select(text, "t.sql") == (text if kept is None else kept)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drop table x", "t.sql begins with 'drop'; a SQL test is one SELECT that returns failing rows"),
        ("/* select */ insert into x select 1", "begins with 'insert'"),
        ("create table x as select 1", "begins with 'create'"),
        ("select 1; drop table x", "t.sql holds more than one statement"),
        ("select 1) ; drop table x; select (2", "the parentheses of t.sql do not match"),
        ("select (1", "the parentheses of t.sql do not match"),
        (" -- select 1", "t.sql holds no statement"),
        (";", "t.sql holds no statement"),
        ("select 1 /* x", "t.sql has a comment /* that does not end"),
        ("select Reflect ('a.B', 'c')", "t.sql calls reflect, which can run code outside of SQL; a SQL test may not"),
        ("select 1 where `java_method`/* x */('a.B', 'c') = 1", "t.sql calls java_method"),
        ("select system.builtin.try_reflect('a.B', 'c')", "t.sql calls try_reflect"),
        ("select identifier('ref' || 'lect')('a.B', 'c')", "t.sql calls identifier"),
        ("select transform(a) using 'sh x' from t", "t.sql runs a script (TRANSFORM … USING); a SQL test may not"),
        ('from t map a USING -- x\n "sh x"', "t.sql runs a script"),
        ("from t reduce a using r'sh x'", "t.sql runs a script"),
    ],
)
def test_what_is_no_select(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        one_select(text, "t.sql")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\\'b", r"'a\\\'b'"),
        (Decimal("1.10"), "1.10"),
        (1.5, "1.5"),
        (False, "false"),
        (None, "NULL"),
        (date(2026, 11, 1), "DATE '2026-11-01'"),
        (datetime(2026, 11, 1, tzinfo=UTC), "TIMESTAMP '2026-11-01 00:00:00+00:00'"),
        (("a", 2), "('a', 2)"),
    ],
)
def test_sql_literal(value: Any, text: str) -> None:
    assert sql_literal(value) == text


@pytest.mark.parametrize("value", [float("nan"), [], {}, object()])
def test_sql_literal_refuses_what_it_cannot_write(value: Any) -> None:
    with raises(ConfigError):
        sql_literal(value)
