"""Two drivers write one sink, in every order of their moves: nothing is lost, nothing doubled."""

from __future__ import annotations

import logging
import os
from typing import Literal

import pytest

from tests.model.sinks import Database, Delta, Files, Kafka, SinkModel
from tests.model.two_drivers import Setting, explore
from tests.support.marks import long

# `RECON_MODEL_STARTS=4 make test PYTEST_ARGS=tests/model` lets drivers die once more.
STARTS = int(os.environ.get("RECON_MODEL_STARTS", "3"))
SINKS = {"delta": Delta(), "database": Database(), "files": Files(), "kafka": Kafka()}
# Protocols that are not enough, and the fault that the model must find in each.
REFUTED: dict[str, tuple[SinkModel, str]] = {
    "delta, an app id per epoch": (Delta(reopens=False, counts=False, by="batch"), "doubled"),
    "delta, one app id, by epoch and batch": (Delta(counts=False, by="epoch and batch"), "doubled"),
    "database, the micro-batch alone is the key": (Database(reopens=False, counts=False), "doubled"),
    "files, the manifest alone": (Files(reopens=False, counts=False), "doubled"),
    "files, folders that drivers share": (Files(shared=True), "lost"),
    "kafka, fenced at the first write": (Kafka(late=True), "doubled"),
    "kafka, a plan forgets the one before it": (Kafka(forgets=True), "doubled"),
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "recon")


@pytest.mark.parametrize("checkpoints", ["one", "two", "copied"])
@pytest.mark.parametrize("name", SINKS)
def test_nothing_is_lost_or_doubled(name: str, checkpoints: Literal["one", "two", "copied"]) -> None:
    explored = explore(Setting(SINKS[name], checkpoints, starts=STARTS))
    print(f"{name}, checkpoints: {checkpoints}: {explored}")
    assert explored.violation is None, str(explored)
    assert explored.states > 500


@pytest.mark.parametrize("checkpoints", ["one", "two", *long("copied")])
@pytest.mark.parametrize("name", sorted(SINKS.keys() - {"kafka"}))
def test_a_checkpoint_that_starts_in_a_hole_doubles_nothing(
    name: str, checkpoints: Literal["one", "two", "copied"]
) -> None:
    """Every micro-batch of an epoch is held against the entries of the others, not its first one alone."""
    explored = explore(Setting(SINKS[name], checkpoints, offsets=3, starts=2, holes=True))
    print(f"{name}, with holes, checkpoints: {checkpoints}: {explored}")
    assert explored.violation is None, str(explored)
    assert explored.states > 500


def test_a_kafka_sink_forgets_records_of_a_dead_driver_that_lie_beyond_a_hole() -> None:
    """A limit (docs/limits.md): they have no batch marker, and the driver that comes to them finished a plan since."""
    explored = explore(Setting(SINKS["kafka"], "two", offsets=3, starts=2, holes=True))
    print(f"kafka, with holes: {explored}")
    assert explored.violation is not None and explored.violation.startswith("doubled"), str(explored)


@pytest.mark.parametrize("name", REFUTED)
def test_the_model_refutes_what_is_not_enough(name: str) -> None:
    sink, fault = REFUTED[name]
    explored = explore(Setting(sink, "two"))
    print(f"{name}: {explored}")
    assert explored.violation is not None and explored.violation.startswith(fault), str(explored)


@pytest.mark.parametrize("checkpoints", ["one", "two", "copied"])
@pytest.mark.parametrize("sink", [Delta(), Files()])
def test_a_repair_beside_queries_loses_and_doubles_nothing(
    sink: SinkModel, checkpoints: Literal["one", "two", "copied"]
) -> None:
    """It takes the sink's next number; a query that it refuses goes on."""
    explored = explore(Setting(sink, checkpoints, starts=STARTS - 1, repairs=2))
    print(f"a repair of {type(sink).__name__}, checkpoints: {checkpoints}: {explored}")
    assert explored.violation is None, str(explored)
    assert explored.states > 500


@pytest.mark.long  # minutes: two kinds of sinks, all orders
@pytest.mark.parametrize("sink", [Delta(), Files()])
def test_a_repair_of_a_hole_beside_queries_loses_and_doubles_nothing(sink: SinkModel) -> None:
    explored = explore(Setting(sink, "two", offsets=3, starts=2, repairs=1, holes=True))
    print(f"a repair of {type(sink).__name__}, with holes: {explored}")
    assert explored.violation is None, str(explored)


# Repairs under app ids of their own: where no query runs beside them nothing is doubled, else it may be.
UNNUMBERED = Delta(numbers_repairs=False)


def test_a_repair_without_a_number_needs_that_the_query_is_stopped() -> None:
    explored = explore(Setting(UNNUMBERED, "two", starts=2, repairs=2, alone=True))
    print(f"a repair without a number, the query is stopped: {explored}")
    assert explored.violation is None, str(explored)
    explored = explore(Setting(UNNUMBERED, "two", starts=2, repairs=1))
    print(f"a repair without a number beside a query: {explored}")
    assert explored.violation is not None and explored.violation.startswith("doubled"), str(explored)


@pytest.mark.parametrize("sink", [Delta(repairs_late=True), Files(repairs_late=True)])
def test_a_repair_that_reads_its_number_behind_the_rows_may_double(sink: SinkModel) -> None:
    explored = explore(Setting(sink, "two", starts=2, repairs=1))
    print(f"a repair of {type(sink).__name__}, its number behind the rows: {explored}")
    assert explored.violation is not None and explored.violation.startswith("doubled"), str(explored)
