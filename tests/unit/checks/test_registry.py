"""Checks by name, their arguments, and recon.yml's tests bound to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from recon.base.errors import ConfigError
from recon.checks.base import EvidenceCheck
from recon.checks.binding import bind, bind_post_batch
from recon.checks.data.rows import AcceptedValues, NotNull
from recon.checks.registry import REGISTRY, build, check_class, known
from recon.project import CheckConfig, CheckSpec, Column, DeltaSink, LedgerConfig, Pipeline, Project
from tests.support.messages import raises


@dataclass(frozen=True, kw_only=True)
class PerPipeline(EvidenceCheck):
    test: ClassVar[str] = "per_pipeline"

    def judge(self, witnesses):
        raise AssertionError("not judged here")


@dataclass(frozen=True, kw_only=True)
class PerSink(PerPipeline):
    test: ClassVar[str] = "per_sink"
    scope: ClassVar[str] = "sink"


@pytest.fixture
def evidence(monkeypatch):
    """Two evidence checks whose scope is this test's own business."""
    monkeypatch.setitem(REGISTRY, "per_pipeline", f"{__name__}:PerPipeline")
    monkeypatch.setitem(REGISTRY, "per_sink", f"{__name__}:PerSink")


def spec(test: str, column: str | None = None, line: int | None = None, config=None, **arguments) -> CheckSpec:
    return CheckSpec(test=test, column=column, line=line, arguments=arguments, config=CheckConfig(**(config or {})))


def project(*pipelines: Pipeline) -> Project:
    return Project(name="lake", ledger=LedgerConfig(location="_recon"), pipelines=pipelines)


def pipeline(name="orders", tests=(), sinks=()) -> Pipeline:
    return Pipeline(name=name, checkpoint="c", data_tests=tests, sinks=sinks or (DeltaSink(name=name, target="t"),))


def names(bounds) -> list[str]:
    return [b.name for b in bounds]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_line_of_the_registry_leads_to_a_check_of_that_name(name):
    found = check_class(name)
    assert found.test == name
    assert found.kind in ("evidence", "data")
    assert check_class(name).scope in ("pipeline", "sink", "table")
    assert found.__doc__


def test_known():
    assert known("not_null")
    assert not known("not_nul")


def test_a_columns_test_gets_its_column():
    assert build(spec("not_null", column="status"), "here") == NotNull(column_name="status")
    check = build(spec("accepted_values", column="status", values=["new", 1]), "here")
    assert check == AcceptedValues(column_name="status", values=("new", 1))


@pytest.mark.parametrize(
    "asked",
    [
        spec("not_nul", line=7),
        spec("zzz"),
        spec("not_null"),
        spec("accepted_values", column="s"),
        spec("accepted_values", column="s", values=[]),
        spec("accepted_values", column="s", values=["a", None]),
        spec("accepted_values", column="s", values="new"),
        spec("accepted_values", column="s", value=["new"]),
        spec("accepted_values", column="s", values=["new"], column_type="int"),
        spec("not_null", column="s", line=3, columns="s"),
        spec("unique_combination_of_columns", combination_of_columns=[]),
        spec("unique_combination_of_columns", combination_of_columns=[1]),
        spec("unique_combination_of_columns", column="s", combination_of_columns=["a"]),
        spec("not_null", column="s", config={"warn_if": "> many"}),
        spec("not_null", column="s", config={"error_if": ""}),
        spec("not_null", column="s", line=4, config={"fail_calc": "sum(n)"}),
    ],
)
def test_what_cannot_be_built_is_named(asked):
    with raises(ConfigError):
        build(asked, "here")


def test_bind_orders_names_and_places(evidence):
    columns = (
        Column(name="order_id", data_tests=(spec("not_null"), spec("unique"))),
        Column(name="status", data_tests=(spec("accepted_values", values=["new", "in transit"]),)),
    )
    lake = DeltaSink(
        name="orders_lake",
        target="t",
        data_tests=(
            spec("per_sink"),
            spec(
                "unique_combination_of_columns",
                combination_of_columns=["order_id", "line"],
                config={"tags": ["keys"]},
            ),
        ),
        columns=columns,
    )
    bounds = bind(project(pipeline(tests=(spec("per_pipeline"),), sinks=(lake,))))
    assert names(bounds) == [
        "per_pipeline_orders",
        "ledger_integrity_orders_lake",
        "per_sink_orders_lake",
        "unique_combination_of_columns_orders_lake_order_id__line",
        "not_null_orders_lake_order_id",
        "unique_orders_lake_order_id",
        "accepted_values_orders_lake_status__new__in_transit",
    ]
    assert [b.unique_id for b in bounds] == [f"test.lake.{name}" for name in names(bounds)]
    assert [b.sink for b in bounds] == [None, *["orders_lake"] * 6]
    assert {b.pipeline for b in bounds} == {"orders"}
    assert [b.column for b in bounds] == [None, None, None, None, "order_id", "order_id", "status"]
    assert [b.kind for b in bounds] == ["evidence"] * 3 + ["data"] * 4
    assert (bounds[1].tags, bounds[3].tags) == (("implicit",), ("keys",))


def test_a_sink_scoped_check_below_the_pipeline_is_bound_for_each_sink(evidence):
    two = (DeltaSink(name="a", target="t"), DeltaSink(name="b", target="u"))
    bounds = bind(project(pipeline(tests=(spec("per_sink"), spec("per_pipeline")), sinks=two)))
    assert [(b.name, b.sink) for b in bounds] == [
        ("per_sink_a", "a"),
        ("per_sink_b", "b"),
        ("per_pipeline_orders", None),
        ("ledger_integrity_a", "a"),
        ("ledger_integrity_b", "b"),
    ]


def test_a_pipeline_scoped_check_below_a_sink_is_bound_for_that_sink(evidence):
    sink = DeltaSink(name="a", target="t", data_tests=(spec("per_pipeline"),))
    bounds = bind(project(pipeline(sinks=(sink, DeltaSink(name="b", target="u")))))
    assert [(b.name, b.sink) for b in bounds if b.check.test == "per_pipeline"] == [("per_pipeline_a", "a")]


def test_the_foundation_is_bound_once_and_can_be_switched_off():
    listed = DeltaSink(name="a", target="t", data_tests=(spec("ledger_integrity", config={"severity": "warn"}),))
    bounds = bind(project(pipeline(sinks=(listed,))))
    assert [(b.name, b.config.severity, b.tags) for b in bounds] == [("ledger_integrity_a", "warn", ())]
    above = bind(project(pipeline(tests=(spec("ledger_integrity"),))))
    assert [(b.name, b.tags) for b in above] == [("ledger_integrity_orders", ())]
    off = DeltaSink(name="a", target="t", data_tests=(spec("ledger_integrity", config={"enabled": False}),))
    assert bind(project(pipeline(sinks=(off,)))) == []


def test_a_data_check_below_the_pipeline_is_refused():
    with raises(ConfigError):
        bind(project(pipeline(tests=(spec("unique", line=9, column_name="id"),))))


def test_an_unknown_check_below_the_pipeline_is_named():
    with raises(ConfigError):
        bind(project(pipeline(tests=(spec("offset_continuty"),))))


def test_fail_calc_is_for_checks_with_a_query():
    of_query = spec("relationships", "s", to="ref('b')", field="id", config={"fail_calc": "sum(1)"})
    (check,) = (b for b in bind(project(pipeline(sinks=(_with(of_query),)))) if b.check.test == "relationships")
    assert check.config.fail_calc == "sum(1)"
    around = DeltaSink(
        name="a", target="t", defaults={"fail_calc": "sum(1)"}, data_tests=(spec("row_count", min_value=1),)
    )
    with raises(ConfigError):
        bind(project(pipeline(sinks=(around,))))


def _with(*tests) -> DeltaSink:
    return DeltaSink(name="a", target="t", data_tests=tests)


def test_a_disabled_test_is_not_bound_but_still_read():
    bad = Column(name="s", data_tests=(spec("accepted_values", config={"enabled": False}),))
    with raises(ConfigError):
        bind(project(pipeline(sinks=(DeltaSink(name="a", target="t", columns=(bad,)),))))


def test_a_disabled_test_that_recon_does_not_know_is_passed_over():
    off = spec("elementary.volume_anomalies", x=1, config={"enabled": False})
    assert names(bind(project(pipeline(tests=(off,), sinks=(_with(off),))))) == ["ledger_integrity_a"]
    with raises(ConfigError):
        bind(project(pipeline(sinks=(_with(spec("elementary.volume_anomalies")),))))


def test_names_are_unique_and_an_alias_wins():
    tests = (
        spec("not_null", config={"where": "a > 1"}),
        spec("not_null", config={"where": "a > 2"}),
        spec("not_null", config={"where": "a > 3"}),
        spec("unique", config={"alias": "ids"}),
        spec("not_null", config={"alias": "ids"}),
    )
    sink = DeltaSink(name="a", target="t", columns=(Column(name="id", data_tests=tests),))
    assert names(bind(project(pipeline(sinks=(sink,)))))[1:] == [
        "not_null_a_id",
        "not_null_orders_a_id",
        "not_null_a_id_2",
        "ids",
        "ids_a",
    ]
    assert names(bind(project(pipeline("p"), pipeline("q", sinks=(DeltaSink(name="p", target="t"),))))) == [
        "ledger_integrity_p",
        "ledger_integrity_q_p",
    ]


def test_a_long_name_is_cut_and_stays_distinct():
    def name_of(*values: str) -> str:
        tests = (spec("accepted_values", values=[*values]),)
        sink = DeltaSink(name="a", target="t", columns=(Column(name="id", data_tests=tests),))
        return names(bind(project(pipeline(sinks=(sink,)))))[1]

    one, other = name_of(*"x" * 60, "one"), name_of(*"x" * 60, "other")
    assert len(one) == len(other) == 100
    assert one != other
    assert one.startswith("accepted_values_a_id__x__x")


def test_post_batch():
    tests = (
        spec("not_null", column_name="id", config={"on_failure": "stop"}),
        spec("unique", column_name="id", config={"enabled": False}),
    )
    of = project(pipeline(sinks=(DeltaSink(name="a", target="t", post_batch=tests),)))
    bounds = bind_post_batch(of, "orders", "a")
    assert [(b.name, b.sink, b.column, b.config.on_failure) for b in bounds] == [
        ("not_null_a_id_post_batch", "a", "id", "stop")
    ]
    assert names(bind(of)) == ["ledger_integrity_a"]
    judged = project(pipeline(sinks=(DeltaSink(name="a", target="t", post_batch=(spec("ledger_integrity", line=4),)),)))
    with raises(ConfigError):
        bind_post_batch(judged, "orders", "a")
    with raises(ConfigError):
        bind_post_batch(of, "order", "a")
    with raises(ConfigError):
        bind_post_batch(of, "orders", "b")
