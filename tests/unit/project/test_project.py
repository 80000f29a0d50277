"""recon.yml: every form that is accepted, and one clear sentence for everything that is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.project import CheckSpec, Project, find, load, sink_class, sink_kinds
from tests.support.messages import raises

BASE = """\
version: 2
name: orders_lake
ledger: lake/_recon
kafka:
  bootstrap.servers: localhost:9092
  session.timeout.ms: 6000
  enable.ssl.certificate.verification: false
pipelines:
  - name: orders
    checkpoint: checkpoints/orders
    source: {topics: [orders], isolation_level: read_committed}
    data_tests:
      - offset_continuity
      - kafka_end_offsets: {arguments: {warn_after: {count: 5, period: minute}}, config: {severity: warn}}
    sinks:
      - name: orders
        target: lake/orders
        data_tests: [delta_history]
        columns:
          - name: status
            data_tests:
              - not_null
              - accepted_values: {arguments: {values: [new, paid]}}
"""
COLUMN_TEST = "              - not_null\n"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes BASE with one replacement into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(old: str = "", new: str = "", text: str | None = None) -> Path:
        assert old in BASE
        (tmp_path / "recon.yml").write_text(BASE.replace(old, new, 1) if text is None else text)
        return tmp_path

    return write


def refused(folder: Path, **vars: Any) -> str:
    with pytest.raises(ConfigError) as error:
        load(folder, vars)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None  # a traceback would print pydantic's copy of the values
    return str(error.value)


# --- what is accepted -------------------------------------------------------------------------------------


def test_a_whole_file(written: Callable[..., Path]) -> None:
    folder = written()
    project = load(folder)
    assert project == load(folder / "recon.yml")
    assert project.project_dir == folder
    assert project.ledger.location == "lake/_recon"
    assert project.kafka == {
        "bootstrap.servers": "localhost:9092",
        "session.timeout.ms": "6000",
        "enable.ssl.certificate.verification": "false",
    }
    (pipeline,) = project.pipelines
    assert [(t.test, t.line) for t in pipeline.data_tests] == [("offset_continuity", 13), ("kafka_end_offsets", 14)]
    assert pipeline.data_tests[1].arguments == {"warn_after": {"count": 5, "period": "minute"}}
    assert pipeline.data_tests[1].config.severity == "warn"
    (sink,) = pipeline.sinks
    assert [(t.test, t.column, t.line) for t in sink.columns[0].data_tests] == [
        ("not_null", "status", 22),
        ("accepted_values", "status", 23),
    ]
    assert sink.data_tests[0].column is None
    assert project.resolve(sink.target) == str(folder / "lake/orders")
    assert project.resolve("s3a://bucket/x") == "s3a://bucket/x"


@pytest.mark.parametrize(
    ("form", "arguments", "config"),
    [
        ("- not_null", {}, {}),
        ("- not_null:", {}, {}),
        ("- not_null: {arguments: {a: 1}, config: {severity: warn}}", {"a": 1}, {"severity": "warn"}),
        ("- not_null: {a: 1, severity: WARN, where: b > 1}", {"a": 1}, {"severity": "warn", "where": "b > 1"}),
        ("- not_null: {a: 1, config: {limit: 3}, tags: x}", {"a": 1}, {"limit": 3, "tags": ("x",)}),
        ("- not_null: {name: mine, description: why}", {}, {"alias": "mine", "description": "why"}),
        ("- {name: mine, test_name: not_null, arguments: {a: 1}}", {"a": 1}, {"alias": "mine"}),
        ("- not_null: {arguments: , config: }", {}, {}),
    ],
)
def test_dbts_forms_of_a_test(
    written: Callable[..., Path], form: str, arguments: dict[str, Any], config: dict[str, Any]
) -> None:
    spec = load(written(COLUMN_TEST, f"              {form}\n")).pipelines[0].sinks[0].columns[0].data_tests[0]
    assert (spec.test, spec.column, spec.line) == ("not_null", "status", 22)
    assert spec.arguments == arguments
    assert {k: getattr(spec.config, k) for k in spec.config.model_fields_set} == config


def test_the_older_key_tests(written: Callable[..., Path]) -> None:
    project = load(written("        data_tests: [delta_history]", "        tests: [delta_history]"))
    assert [(t.test, t.line) for t in project.pipelines[0].sinks[0].data_tests] == [("delta_history", 18)]
    both = refused(written("        data_tests: [delta_history]", "        data_tests: []\n        tests: []"))
    assert both == "recon.yml:19: sink 'orders' has both 'data_tests' and 'tests'; keep 'data_tests'"


def test_what_dbt_says_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(
        """
name: lake
ledger: _recon
pipelines:
  - name: orders
    checkpoint: c
    sinks:
      - name: orders
        target: t
        columns:
          - name: customer
            data_type: bigint
            meta: {owner: finance}
            quote: true
            tags: key
            data_tests:
              - not_null
              - relationships:
                  arguments: {to: '{{ ref("customers") }}', field: id}
                  config: {tags: [nightly]}
              - relationships: {to: "{{ ref('other', 'it') }}", field: id}
"""
    )
    (column,) = load(tmp_path).pipelines[0].sinks[0].columns
    assert [t.config.tags for t in column.data_tests] == [("key",), ("key", "nightly"), ("key",)]
    assert [t.arguments.get("to") for t in column.data_tests] == [None, "ref('customers')", "ref('other', 'it')"]
    assert {t.column for t in column.data_tests} == {"customer"}


def test_post_batch_tests_know_their_line(written: Callable[..., Path]) -> None:
    text = "        target: lake/orders\n        post_batch:\n          - not_null: {on_failure: stop}\n"
    (spec,) = load(written("        target: lake/orders\n", text)).pipelines[0].sinks[0].post_batch
    assert (spec.test, spec.config.on_failure, spec.line) == ("not_null", "stop", 19)


@pytest.mark.parametrize(
    ("given", "location", "table", "writer"),
    [
        ("{location: a}", "a", None, "deltalake"),
        ("{location: a, writer: spark}", "a", None, "spark"),
        ("{table: c.s.t}", None, "c.s.t", "spark"),
        ("{table: c.s.t, writer: spark}", None, "c.s.t", "spark"),
    ],
)
def test_the_ledgers_forms(
    written: Callable[..., Path], given: str, location: str | None, table: str | None, writer: str
) -> None:
    ledger = load(written("lake/_recon", given)).ledger
    assert (ledger.location, ledger.table, ledger.writer) == (location, table, writer)


def test_specs_made_in_python() -> None:
    assert CheckSpec.model_validate("unique").test == "unique"
    assert CheckSpec(test="unique", arguments={"column_name": "a"}).arguments == {"column_name": "a"}


def test_anchors_and_merge_keys(written: Callable[..., Path]) -> None:
    text = BASE.replace("kafka:\n", "kafka: &k\n").replace(
        "pipelines:", "spark:\n  conf: {<<: *k, enable.ssl.certificate.verification: true}\npipelines:"
    )
    conf = load(written(text=text)).spark.conf
    assert (conf["session.timeout.ms"], conf["enable.ssl.certificate.verification"]) == ("6000", "true")


def test_the_nearest_project_is_found_from_below(written: Callable[..., Path]) -> None:
    folder = written()
    (folder / "a" / "b").mkdir(parents=True)
    assert find(folder / "a" / "b") == folder


def test_no_project(tmp_path: Path) -> None:
    with raises(ConfigError):
        find(tmp_path)
    assert f"no recon.yml at {tmp_path}/recon.yml" in refused(tmp_path)


# --- Jinja ------------------------------------------------------------------------------------------------


def test_env_var_and_var(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECON_NAME", "from_env")
    monkeypatch.setenv("RECON_WARN", "true")
    text = (
        BASE.replace("name: orders_lake", "name: {{ env_var('RECON_NAME') }}")
        .replace("lake/_recon", "{{ env_var('RECON_NOT_SET', 'a') }}/{{ var('place', 'b') }}")
        .replace("target: lake/orders", "target: x\n        stamp_source_offsets: {{ env_var('RECON_WARN') }}")
        .replace("topics: [orders]", "topics: {{ var('topics') }}")
    )
    project = load(written(text=text), {"topics": ["a", "b"]})
    assert (project.name, project.ledger.location) == ("from_env", "a/b")
    assert project.pipelines[0].sinks[0].stamp_source_offsets is True
    assert project.pipelines[0].source.topics == ("a", "b")


_PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs", "Co")), min_size=1, max_size=30
)


@given(password=_PRINTABLE, quote=st.sampled_from(['"', "'"]))
def test_any_password_arrives_as_it_is(password: str, quote: str) -> None:
    import tempfile

    line = f"  sasl.password: {quote}{{{{ env_var('RECON_PASSWORD') }}}}{quote}\n"
    if quote == "'":
        line = line.replace("('RECON_PASSWORD')", '("RECON_PASSWORD")')
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("RECON_PASSWORD", password)
        (Path(folder) / "recon.yml").write_text(BASE.replace("pipelines:", line + "pipelines:"))
        project = load(folder)
        assert project.kafka["sasl.password"] == password


def test_a_missing_variable_names_itself_and_its_line(written: Callable[..., Path]) -> None:
    folder = written("localhost:9092", "\"{{ env_var('RECON_NOT_SET') }}\"")
    assert refused(folder).startswith("recon.yml:5: environment variable RECON_NOT_SET is not set; export it")
    folder = written("localhost:9092", "\"{{ var('place') }}\"")
    assert refused(folder).startswith("recon.yml:5: variable place is not given; pass --vars")


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("{{ env_vra('A') }}", "'env_vra' is undefined; recon.yml knows env_var('NAME'), var('name') and ref('table')"),
        ("{{ env_var('A' }}", "not valid Jinja: unexpected '}', expected ')'"),
        ("{% if %}", "not valid Jinja: Expected an expression, got 'end of statement block'"),
        ("{{ 1 / 0 }}", "a Jinja expression fails with ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 'a' | nope }}", "not valid Jinja: No filter named 'nope'."),
    ],
)
def test_jinja_errors(written: Callable[..., Path], expression: str, told: str) -> None:
    assert refused(written("localhost:9092", expression)).startswith(f"recon.yml:5: {told}")


def test_lines_are_those_of_the_file_after_loops_and_comments(written: Callable[..., Path]) -> None:
    loop = "{# two\nlines #}\n{% for x in range(3) %}\n# {{ x }}\n{% endfor %}\npipelines:"
    message = refused(written(text=BASE.replace("pipelines:", loop).replace("checkpoint:", "chekpoint:")))
    assert message.startswith("recon.yml:15: unknown key 'chekpoint' in pipeline 'orders'; did you mean 'checkpoint'?")


def test_commented_lines_ask_for_nothing(written: Callable[..., Path]) -> None:
    folder = written("kafka:", "# {{ env_var('RECON_NOT_SET') }} {% if %}\nkafka:")
    assert load(folder).name == "orders_lake"


# --- YAML -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("    checkpoint: checkpoints/orders", "   checkpoint: x", "10: not valid YAML"),
        ("version: 2", "\tversion: 2", "1: not valid YAML: found character '\\t' that cannot start any token; indent"),
        ("name: orders_lake", "name: a\nname: b", "3: not valid YAML: the key 'name' is already given at line 2"),
        ("version: 2", "kafka: *x", "1: not valid YAML: found undefined alias 'x'"),
        ("lake/_recon", "&x [*x]", "3: not valid YAML: an alias is inside its own anchor"),
        ("version: 2", "a: !!python/object/apply:os.system [ls]", "1: not valid YAML: the tag"),
        ("version: 2", "a: 2024-99-99", "1: not valid YAML: a value is not a valid timestamp"),
        ("version: 2", "1: 2", "1: not valid YAML: a key must be a string; put it in quotes"),
    ],
)
def test_yaml_errors(written: Callable[..., Path], old: str, new: str, told: str) -> None:
    assert refused(written(old, new)).startswith(f"recon.yml:{told}")


def test_files_that_are_no_project(written: Callable[..., Path]) -> None:
    assert refused(written(text="")) == "recon.yml is empty; 'recon init' writes a first one"
    assert refused(written(text="# only a comment\n")).startswith("recon.yml is empty")
    assert refused(written(text="- a\n")) == "recon.yml:1: must be a mapping (key: value) at the top"
    assert "expected a single document" in refused(written(text="a: 1\n---\nb: 2\n"))
    folder = written()
    (folder / "recon.yml").write_bytes(b"name: \xff\xfe\n")
    with raises(ConfigError):
        load(folder)


# --- types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "severity: warn",
            "sevrity: warn",
            "14: unknown key 'sevrity' in config of kafka_end_offsets; did you mean 'severity'?",
        ),
        (
            "- not_null",
            "- not_null: {sevrity: warn}",
            "22: unknown key 'sevrity' in not_null; did you mean 'severity'?",
        ),
        (
            "- not_null",
            "- not_null: {arguments: {}, values: 1}",
            "22: unknown key 'values' in not_null; did you mean 'samples'?",
        ),
        ("version: 2", "versoin: 2", "1: unknown key 'versoin' in recon.yml; did you mean 'version'?"),
        ("version: 2", "project_dir: /", "1: unknown key 'project_dir' in recon.yml; known keys: version, name,"),
        ("target:", "taget:", "17: unknown key 'taget' in sink 'orders'; did you mean 'target'?"),
        (
            "severity: warn",
            "severity: wran",
            "14: severity in config of kafka_end_offsets must be 'error' or 'warn', found 'wran'; did you mean 'warn'?",
        ),
        (
            "read_committed",
            "committed",
            "11: isolation_level in source of pipeline 'orders' must be 'read_committed' or 'read_uncommitted'",
        ),
        ("version: 2", "version: 3", "1: version must be 2, found 3"),
        ("    checkpoint: checkpoints/orders\n", "", "9: missing key 'checkpoint' in pipeline 'orders'"),
        ("checkpoints/orders", "[a]", "10: checkpoint of pipeline 'orders' must be a string, found a list"),
        (
            "checkpoints/orders",
            "2026",
            "10: checkpoint of pipeline 'orders' must be a string, found 2026; put it in quotes",
        ),
        (
            "topics: [orders]",
            "topics: orders",
            "11: topics in source of pipeline 'orders' must be a list, found 'orders'",
        ),
        ("localhost:9092", "", "5: bootstrap.servers in kafka must be a string, found nothing"),
        ("severity: warn", "limit: 0", "14: limit in config of kafka_end_offsets must be at least 1, found 0"),
        (
            "severity: warn",
            "limit: few",
            "14: limit in config of kafka_end_offsets must be a whole number, found 'few'",
        ),
        (
            "severity: warn",
            "enabled: maybe",
            "14: enabled in config of kafka_end_offsets must be true or false, found 'maybe'",
        ),
        (
            "config: {severity: warn}",
            "config: warn",
            "14: config of kafka_end_offsets must be a mapping (key: value), found 'warn'",
        ),
        ("- not_null", "- 5", "22: a test must be its name, or its name with arguments and config below it"),
        ("- not_null", "- not_null: 5", "22: the content of not_null must be a mapping: arguments and config"),
        (
            "- not_null",
            "- {not_null: , config: {}}",
            "22: a test must be one name, found the keys 'not_null', 'config'",
        ),
        (
            "- not_null",
            "- not_null: {severity: warn, config: {severity: warn}}",
            "22: 'severity' is given twice for not_null",
        ),
        (
            "name: orders_lake",
            "name: orders lake",
            "2: name may hold only letters, digits, '_', '-' and '.', found 'orders lake'",
        ),
        ("lake/_recon", "", "3: ledger must be a folder, or a mapping with 'location' or 'table', found nothing"),
        ("lake/_recon", "{}", "3: ledger needs 'location' (a folder) or 'table' (a catalog table)"),
        ("lake/_recon", "{location: a, table: b}", "3: ledger has both 'location' and 'table'; keep one of them"),
        ("lake/_recon", "{table: b, writer: deltalake}", "3: ledger is a catalog 'table', which only Spark can write"),
        (
            "lake/_recon",
            "{location: a, writer: dletalake}",
            "3: writer in ledger must be 'deltalake' or 'spark', found 'dletalake'; did you mean 'deltalake'?",
        ),
    ],
)
def test_one_sentence_per_mistake(written: Callable[..., Path], old: str, new: str, told: str) -> None:
    assert refused(written(old, new)).startswith(f"recon.yml:{told}")


TOP, SINK = "version: 2\n", "        target: lake/orders\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (TOP, "defaults: {severty: warn}\n", "1: unknown key 'severty' in defaults; did you mean 'severity'?"),
        (
            TOP,
            "defaults:\n  +tags: a\n  +severity: wran\n",
            "3: severity in defaults must be 'error' or 'warn', found 'wran'; did you mean 'warn'?",
        ),
        (
            SINK,
            SINK + "        defaults:\n          tags: a\n          +limit: few\n",
            "20: limit in defaults of sink 'orders' must be a whole number, found 'few'",
        ),
        (
            SINK,
            SINK + "        defaults: [a]\n",
            "18: defaults of sink 'orders' must be a mapping (key: value), found a",
        ),
        (
            SINK,
            SINK + "        quarantine: {stop_above: 200%}\n",
            "18: stop_above in quarantine of sink 'orders' must be a share of the rows, from 0 to 1 or such as 1%, "
            "found '200%'",
        ),
        (
            SINK,
            SINK + "        quarantine: {stop_above: 1.5}\n",
            "18: stop_above in quarantine of sink 'orders' must be",
        ),
        (
            SINK,
            SINK + "        quarantine: {stop_above: few}\n",
            "18: stop_above in quarantine of sink 'orders' must be",
        ),
        (
            SINK,
            SINK + "        quarantine: {stop_above: true}\n",
            "18: stop_above in quarantine of sink 'orders' must be",
        ),
        (
            "severity: warn",
            "store_failures: often",
            "14: store_failures in config of kafka_end_offsets must be true or false, found 'often'",
        ),
        (
            "severity: warn",
            "if_empty: skipp",
            "14: if_empty in config of kafka_end_offsets must be 'skip' or 'pass' or 'fail', found 'skipp'; "
            "did you mean 'skip'?",
        ),
        ("severity: warn", "on_failure: halt", "14: on_failure in config of kafka_end_offsets must be 'warn' or 'quar"),
        ("severity: warn", "fail_calc: [a]", "14: fail_calc in config of kafka_end_offsets must be a string, found a"),
        ("severity: warn", "incremental: 2", "14: incremental in config of kafka_end_offsets must be true or false"),
        (TOP, "test_paths: data_tests\n", "1: test_paths must be a list, found 'data_tests'"),
        (TOP, "tables: [{nam: a, target: b}]\n", "1: unknown key 'nam' in table number 1; did you mean 'name'?"),
        (TOP, "tables: [{name: a}]\n", "1: table 'a' needs 'target' (a path, URI or catalog table), or 'options'"),
        (
            TOP,
            "tables:\n  - {name: a, target: b}\n  - {name: a, target: c}\n",
            "3: two tables are named 'a'; give one of them another name",
        ),
    ],
)
def test_one_sentence_per_mistake_in_defaults_and_the_like(
    written: Callable[..., Path], old: str, new: str, told: str
) -> None:
    assert refused(written(old, new)).startswith(f"recon.yml:{told}")


@pytest.mark.parametrize(("given", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("0.25", 0.25), ("1", 1), ("100%", 1)])
def test_a_share(written: Callable[..., Path], given: str, share: float) -> None:
    project = load(written(SINK, SINK + f"        quarantine: {{stop_above: {given}}}\n"))
    assert project.pipelines[0].sinks[0].quarantine.stop_above == share


CHECKPOINT = "    checkpoint: checkpoints/orders\n"


def test_what_a_transform_does_with_rows(written: Callable[..., Path]) -> None:
    declared = "    rows: {filters: true, explodes: false}\n    max_filtered: 1%\n"
    (pipeline,) = load(written(CHECKPOINT, CHECKPOINT + declared)).pipelines
    assert (pipeline.rows.filters, pipeline.rows.explodes, pipeline.max_filtered) == (True, False, 0.01)
    (pipeline,) = load(written("a", "a")).pipelines
    assert (pipeline.rows.filters, pipeline.rows.explodes, pipeline.max_filtered) == (None, None, None)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("rows: {filter: true}", "11: unknown key 'filter' in rows of pipeline 'orders'; did you mean 'filters'?"),
        ("rows: {explodes: often}", "11: explodes in rows of pipeline 'orders' must be true or false, found 'often'"),
        ("max_filterd: 1%", "11: unknown key 'max_filterd' in pipeline 'orders'; did you mean 'max_filtered'?"),
        (
            "max_filtered: 101%",
            "11: max_filtered of pipeline 'orders' must be a share of the rows, from 0 to 1 or such",
        ),
        (
            "rows: {filters: false}\n    max_filtered: 1%",
            "12: max_filtered of pipeline 'orders' allows filtered rows, and rows: filters: false allows none",
        ),
    ],
)
def test_mistakes_in_what_a_transform_does_with_rows(written: Callable[..., Path], keys: str, told: str) -> None:
    assert refused(written(CHECKPOINT, CHECKPOINT + f"    {keys}\n")).startswith(f"recon.yml:{told}")


def test_the_nearest_config_wins(written: Callable[..., Path]) -> None:
    text = BASE.replace(TOP, "defaults: {+severity: warn, +tags: all, meta: {owner: ann, team: a}, limit: 9}\n")
    text = text.replace(
        "    checkpoint:", "    defaults: {tags: [p, all], meta: {team: b}, where: a > 1}\n    checkpoint:"
    )
    text = text.replace(
        SINK, SINK + "        defaults: {severity: ERROR, store_failures: true}\n        post_batch: [unique]\n"
    )
    text = text.replace(
        COLUMN_TEST, COLUMN_TEST.replace("not_null", "not_null: {tags: mine, where: b > 1, meta: {owner: bo}}")
    )
    (pipeline,) = load(written(text=text)).pipelines
    above, own, flat = (
        pipeline.data_tests[0].config,
        pipeline.data_tests[1].config,
        pipeline.sinks[0].data_tests[0].config,
    )
    assert (above.severity, above.limit, above.where, above.store_failures) == ("warn", 9, "a > 1", False)
    assert (above.tags, above.meta) == (("all", "p"), {"owner": "ann", "team": "b"})
    assert own.severity == "warn" and own.tags == ("all", "p")
    assert (flat.severity, flat.store_failures, flat.limit) == ("error", True, 9)
    nearest = pipeline.sinks[0].columns[0].data_tests[0].config
    assert (nearest.where, nearest.severity, nearest.store_failures) == ("b > 1", "error", True)
    assert (nearest.tags, nearest.meta) == (("all", "p", "mine"), {"owner": "bo", "team": "b"})
    assert pipeline.sinks[0].post_batch[0].config == flat
    assert nearest.warn_if == "!=0" and nearest.model_fields_set >= {"where", "tags"}, "what nobody said is the default"


def test_empty_lists(written: Callable[..., Path]) -> None:
    text = BASE[: BASE.index("pipelines:")]
    for nothing in ("", "pipelines: []\n", "tables: []\n"):
        assert refused(written(text=text + nothing)).startswith("recon.yml:1: recon.yml has neither 'pipelines' nor")
    assert "did you mean 'pipelines'?" in refused(written(text=text + "piplines: []\n"))
    text = BASE[: BASE.index("    sinks:")] + "    sinks: []\n"
    assert refused(written(text=text)) == "recon.yml:15: sinks of pipeline 'orders' must list at least one of them"


def test_two_of_one_name(written: Callable[..., Path]) -> None:
    sink = "      - name: orders\n        target: lake/other\n"
    assert refused(written(text=BASE + sink)) == (
        "recon.yml:24: two sinks of pipeline 'orders' are named 'orders'; give one of them another name"
    )
    pipeline = "  - name: orders\n    checkpoint: x\n    sinks: [{name: b, target: y}]\n"
    assert refused(written(text=BASE + pipeline)) == (
        "recon.yml:24: two pipelines are named 'orders'; give one of them another name"
    )
    assert refused(written(text=BASE + "          - name: status\n")) == (
        "recon.yml:24: two columns of sink 'orders' are named 'status'; give one of them another name"
    )
    other = "  - name: b\n    checkpoint: x\n    sinks: [{name: orders, target: y}]\n"
    assert len(load(written(text=BASE + other)).pipelines) == 2


def test_an_unknown_check_is_named_with_its_line(written: Callable[..., Path]) -> None:
    project = load(written("- not_null", "- not_nul"))
    with raises(ConfigError):
        bind(project)


def test_the_file_is_named_as_the_user_sees_it(written: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "recon.yml").write_text("nme: x\n")
    assert refused(tmp_path / "sub").startswith("sub/recon.yml:1: ")


# --- secrets ----------------------------------------------------------------------------------------------

SECRET = "hunter2-very-secret"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("severity: warn", "severity: '{{ env_var(\"S\") }}'"),
        ("{severity: warn}", "{'{{ env_var(\"S\") }}': warn}"),
        ("checkpoints/orders", "[{{ env_var('S') }}]"),
        ("target: lake/orders", "target: x\n        partition_by: {{ env_var('S') }}"),
        ("target: lake/orders", "target: x\n        partition_by: {{ env_var('S') | upper }}"),
        ("target: lake/orders", "target: x\n        stamp_source_offsets: a-{{ env_var('S') }}-b"),
        ("target: lake/orders", "target: x\n        stamp_source_offsets: {{ env_var('S') + 'x' }}"),
        ("name: orders_lake", "name: 'a {{ env_var(\"S\") }}'"),
        ("version: 2", "version: {{ env_var('S') }}"),
        ("version: 2", "x: !!int '{{ env_var(\"S\") }}'"),
        ("version: 2", "{{ env_var('S') | int('x') / 0 }}"),
        ("version: 2", "{{ env_var('S').nope }}"),
        ("version: 2", "'{{ env_var(\"S\") }}': 1\n'{{ env_var(\"S\") }}': 1"),
        ("version: 2", "{% set s = env_var('S') %}\nversion: {{ s }}"),
        ("- not_null", "- not_null: {'{{ env_var(\"S\") }}': 1, arguments: {}}"),
    ],
)
def test_no_error_quotes_the_environment(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setenv("S", SECRET)
    message = refused(written(old, new))
    assert re.match(r"recon\.yml:\d+: ", message)
    assert SECRET.casefold() not in message.casefold()
    assert "hunter2" not in message.casefold()


def test_the_projects_secrets_are_masked_later(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", SECRET)
    monkeypatch.setenv("BROKER", "broker.example:9092")
    monkeypatch.setenv("SHORT", "abc")
    text = (
        BASE.replace("localhost:9092", "\"{{ env_var('BROKER') }}\"")
        .replace("session.timeout.ms: 6000", "sasl.username: \"{{ env_var('S') }}\"\n  ssl.key.password: literal-pw")
        .replace("pipelines:", "storage_options: {key: \"x-{{ env_var('SHORT') }}\"}\npipelines:")
    )
    project = load(written(text=text))
    told = project.mask(f"cannot log in to broker.example:9092 as {SECRET} with literal-pw abc")
    assert told == "cannot log in to broker.example:9092 as *** with *** abc"
    assert SECRET not in repr(project)


# --- the documentation ------------------------------------------------------------------------------------


def _models(model: type[BaseModel], seen: dict[str, type[BaseModel]]) -> dict[str, type[BaseModel]]:
    seen[model.__name__] = model
    for field in model.model_fields.values():
        pending = [field.annotation]
        while pending:
            found = pending.pop()
            pending.extend(get_args(found))
            if isinstance(found, type) and issubclass(found, BaseModel) and found.__name__ not in seen:
                _models(found, seen)
    return seen


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "recon_yml.md").read_text()
    models = _models(Project, {})
    for kind in sink_kinds():
        _models(sink_class(kind), models)
    assert {"Project", "Pipeline", "CheckConfig", "JdbcUpsertSink"} <= set(models)
    of_tests = {("CheckSpec", "test"), ("CheckSpec", "column"), ("CheckSpec", "line")}
    filled_in = {("Project", "project_dir"), ("Compliance", "line"), *of_tests}
    keys = {(name, key) for name, model in models.items() for key in model.model_fields} - filled_in
    assert [pair for pair in sorted(keys) if f"`{pair[1]}`" not in page] == []


def test_the_documented_example_loads(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "recon_yml.md").read_text()
    (tmp_path / "recon.yml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert [p.name for p in load(tmp_path).pipelines] == ["orders"]
