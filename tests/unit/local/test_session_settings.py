"""Which settings a session on one machine gets."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recon.local.spark import local_conf
from recon.spark.session import _quiet, on_one_machine
from recon.spark.settings import without_constraints

SNAPSHOT = "spark.databricks.delta.snapshotPartitions"


@pytest.mark.parametrize(("master", "tasks"), [("local", 2), ("local[2]", 4), ("local[ 8 , 3 ]", 16)])
def test_tasks_follow_the_cores_of_a_local_master(master: str, tasks: int) -> None:
    assert on_one_machine(master)[SNAPSHOT] == str(tasks)


def test_all_cores_are_those_of_the_machine() -> None:
    assert on_one_machine("local[*]")[SNAPSHOT] == str(2 * (os.cpu_count() or 1))


@pytest.mark.parametrize("master", ["", "yarn", "spark://h:7077", "k8s://h", "local-cluster[2,1,1024]", "localhost"])
def test_a_cluster_keeps_its_own(master: str) -> None:
    assert on_one_machine(master) == {}


def test_an_audit_leaves_shuffles_to_adaptive_execution_and_a_stream_does_not() -> None:
    assert "spark.sql.shuffle.partitions" not in on_one_machine("local[2]")
    assert on_one_machine("local").items() <= local_conf().items()
    assert local_conf()["spark.sql.shuffle.partitions"] == "2"


class _Conf(dict[str, Any]):
    """A session's settings; one that is fixed takes none."""

    fixed = False

    def set(self, name: str, value: str) -> None:
        if self.fixed:
            raise RuntimeError("CONFIG_NOT_AVAILABLE")
        self[name] = value

    def unset(self, name: str) -> None:
        if self.fixed:
            raise RuntimeError("CONFIG_NOT_AVAILABLE")
        self.pop(name)


CONSTRAINTS = "spark.sql.constraintPropagation.enabled"


@pytest.mark.parametrize("before", [{}, {CONSTRAINTS: "true"}])
def test_a_setting_for_one_query_is_as_before_afterwards(before: dict[str, str]) -> None:
    conf = _Conf(before)
    with pytest.raises(ValueError, match="broken"), without_constraints(cast(Any, SimpleNamespace(conf=conf))):
        assert conf[CONSTRAINTS] == "false"
        raise ValueError("broken")
    assert conf == before


def test_a_session_whose_settings_are_fixed_runs_the_query_as_it_is() -> None:
    conf, ran = _Conf(), []
    conf.fixed = True
    with without_constraints(cast(Any, SimpleNamespace(conf=conf))):
        ran.append(True)
    assert ran and not conf


def test_pyspark_warns_of_pandas_in_vain_and_others_do_not() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        _quiet()
        warnings.warn("PySpark does not yet fully support pandas >= 3.0.0.", FutureWarning, stacklevel=2)
        warnings.warn("another", FutureWarning, stacklevel=2)
    assert [str(one.message) for one in shown] == ["another"]
