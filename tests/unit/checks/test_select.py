"""dbt's --select and --exclude."""

from __future__ import annotations

import pytest

from recon.base.errors import ConfigError
from recon.checks.bound import Bound
from recon.checks.data.keys import Unique
from recon.checks.data.rows import NotNull
from recon.checks.select import asks_last_run, select, unmatched
from recon.project import CheckConfig
from tests.support.messages import raises


def bound(check, name, pipeline, sink, severity="error", tags=()):
    config = CheckConfig(severity=severity, tags=tags, meta={"owner": "ann"} if "m" in tags else {})
    return Bound(
        check=check,
        config=config,
        unique_id=f"test.lake.{name}",
        name=name,
        pipeline=pipeline,
        sink=sink,
        column="id",
        tags=tags,
    )


ID = {"column_name": "id"}
BOUNDS = [
    bound(NotNull(**ID), "not_null_a_id", "orders", "a", tags=("nightly",)),
    bound(Unique(**ID), "unique_a_id", "orders", "a", severity="warn"),
    bound(NotNull(**ID), "not_null_b_id", "payments", "b", severity="warn", tags=("nightly", "m")),
    bound(Unique(**ID), "unique_b_id", "payments", "b"),
]


def chosen(*wanted: str, exclude=()):
    return [b.name for b in select(BOUNDS, wanted, exclude)]


@pytest.mark.parametrize(
    ("selectors", "names"),
    [
        ([], ["not_null_a_id", "unique_a_id", "not_null_b_id", "unique_b_id"]),
        (["unique_a_id"], ["unique_a_id"]),
        (["test.lake.unique_a_id"], ["unique_a_id"]),
        (["not_null_*"], ["not_null_a_id", "not_null_b_id"]),
        (["*_[b]_id"], ["not_null_b_id", "unique_b_id"]),
        (["not_null"], []),  # a whole name, not a part of one
        (["tag:nightly"], ["not_null_a_id", "not_null_b_id"]),
        (["pipeline:orders"], ["not_null_a_id", "unique_a_id"]),
        (["sink:b"], ["not_null_b_id", "unique_b_id"]),
        (["test_name:unique"], ["unique_a_id", "unique_b_id"]),
        (["config.severity:warn"], ["unique_a_id", "not_null_b_id"]),
        (["config.enabled:true,sink:a"], ["not_null_a_id", "unique_a_id"]),
        (["config.meta.owner:ann"], ["not_null_b_id"]),
        (["config.tags:m"], ["not_null_b_id"]),
        (["sink:b", "unique_a_id"], ["unique_a_id", "not_null_b_id", "unique_b_id"]),
        (["sink:b unique_a_id"], ["unique_a_id", "not_null_b_id", "unique_b_id"]),
        (["tag:nightly,sink:b"], ["not_null_b_id"]),
        (["tag:nightly,sink:b unique_a_id"], ["unique_a_id", "not_null_b_id"]),
        (["TAG_A", "tag:none"], []),
        (["test_type:data"], ["not_null_a_id", "unique_a_id", "not_null_b_id", "unique_b_id"]),
        (["test_type:generic,sink:b"], ["not_null_b_id", "unique_b_id"]),
        (["test_type:evidence", "test_type:singular"], []),
    ],
)
def test_select(selectors, names):
    assert chosen(*selectors) == names


def test_exclude_wins_and_can_stand_alone():
    assert chosen(exclude=["tag:nightly"]) == ["unique_a_id", "unique_b_id"]
    assert chosen("sink:a", exclude=["test_name:unique config.severity:warn"]) == ["not_null_a_id"]


@pytest.mark.parametrize("selector", ["tags:nightly", "config.severty:warn"])
def test_an_unknown_method_is_an_error(selector):
    with raises(ConfigError):
        chosen(selector)


def test_unmatched_names_the_selector_and_the_nearest_check():
    assert unmatched(BOUNDS, ["unique_a_idd tag:nightly", "tag:weekly"]) == [
        "selector 'unique_a_idd' matches no check; did you mean 'unique_a_id'?",
        "selector 'tag:weekly' matches no check",
    ]
    assert unmatched(BOUNDS, []) == []


LAST = {"test.lake.unique_a_id": "fail", "test.lake.not_null_b_id": "warn", "test.lake.gone": "fail"}


def test_the_results_of_the_last_run():
    def of(*wanted, exclude=()):
        return [b.name for b in select(BOUNDS, wanted, exclude, LAST)]

    assert of("result:fail") == ["unique_a_id"]
    assert of("result:fail result:warn") == ["unique_a_id", "not_null_b_id"]
    assert of("result:*,tag:nightly") == ["not_null_b_id"]
    assert of("result:pass") == []
    assert of(exclude=["result:fail"]) == ["not_null_a_id", "not_null_b_id", "unique_b_id"]
    assert unmatched(BOUNDS, ["result:pass result:fail"], LAST) == ["selector 'result:pass' matches no check"]
    assert asks_last_run(["a", "tag:x,result:fail"]) and not asks_last_run(["tag:result", "resulting"])


def test_a_last_run_that_is_not_there_and_a_status_that_is_none():
    with raises(ConfigError):
        chosen("result:fail")
    with raises(ConfigError):
        select(BOUNDS, ["result:failed"], (), LAST)
