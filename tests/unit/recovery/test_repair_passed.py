"""What a repair's rows go through: the query's own transform, and the routes of the time when its rows were read."""

from __future__ import annotations

from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.model import REPAIRS
from recon.model.offsets import OffsetSpan
from recon.model.wire.processing_signature import parts_of
from recon.project import DeltaSink, Pipeline, Routes
from recon.recovery.repair.passed import require_route, require_same
from recon.testing.evidence import Entry, ledger, span
from recon.write.hook.routing import passed
from tests.support.messages import raises

OLD = Routes(by="land", to={"eu": "eu"}, otherwise="us")
NEW = Routes(by="land", to={"eu": "eu", "xx": "eu"}, otherwise="us")


def parse(frame: Any) -> Any:
    """A transform."""
    return frame


def entry(batch_id: int, start: int, end: int, routes: Routes | None, **head: Any) -> Entry:
    return Entry(batch_id, (start, end), **{"status": "committed", "transform": passed(parse, routes), **head})


def require(routes: Routes | None, start: int, end: int, *entries: Entry, partition: int = 0) -> None:
    where: OffsetSpan = span(start, end, partition)
    require_same("pipeline p, sink s", ledger(*entries), passed(parse, routes), [where])


def test_what_entries_name() -> None:
    both = passed(parse, OLD)
    assert both is not None and parts_of(both) == (f"{__name__}:parse", both[-8:])
    assert parts_of(passed(None, OLD)) == (None, both[-8:])
    assert (parts_of(passed(parse)), passed(None), parts_of(None)) == ((f"{__name__}:parse", None), None, (None, None))
    again = Routes(by="land", to={"xx": "eu", "eu": "eu"}, otherwise="us", persist=False)
    assert passed(parse, again) == passed(parse, NEW) != both


def test_the_routes_of_the_micro_batch_that_read_the_offsets_decide() -> None:
    entries = entry(0, 0, 10, OLD), entry(1, 10, 20, OLD), entry(2, 20, 30, NEW)
    require(OLD, 12, 15, *entries)
    require(NEW, 22, 25, *entries)
    with raises(ConfigError):
        require(NEW, 12, 15, *entries)
    with pytest.raises(ConfigError, match="has no routes"):
        require(None, 12, 15, *entries)


def test_nothing_is_read_again_into_a_sink_whose_route_was_removed() -> None:
    def require(routes: Routes | None, *entries: Entry) -> None:
        eu, us = (DeltaSink(name=name, target=name) for name in ("eu", "us"))
        pipeline = Pipeline(name="p", checkpoint="cp", sinks=(eu, us), routes=routes)
        require_route("pipeline p, sink eu", ledger(*entries), pipeline, eu)

    without = Routes(by="land", to={"us": "us"})
    with raises(ConfigError):
        require(without, entry(0, 0, 10, OLD))
    require(OLD, entry(0, 0, 10, OLD))
    require(None, entry(0, 0, 10, OLD))
    require(without, entry(0, 0, 10, None))  # a query of its own writes it


def test_of_offsets_that_nobody_read_its_neighbours_decide() -> None:
    before, behind = entry(0, 0, 10, OLD), entry(2, 20, 30, OLD)
    require(OLD, 10, 20, before, behind, entry(3, 30, 40, NEW))
    changed = entry(2, 20, 30, NEW)
    for routes in (OLD, NEW):  # which of them the micro-batch between would have met, nobody knows
        with pytest.raises(ConfigError, match="may send these records to other sinks"):
            require(routes, 10, 20, before, changed)
    require(NEW, 10, 20, changed)
    require(OLD, 30, 35, before, behind)


def test_restored_entries_and_repairs_tell_nothing() -> None:
    restored = entry(1, 10, 20, None, status="rebuilt", transform=None)
    repaired = entry(0, 10, 20, NEW, status="repaired", epoch=REPAIRS)
    require(OLD, 10, 20, entry(0, 0, 10, OLD), restored, repaired, entry(2, 20, 30, OLD))
    with pytest.raises(ConfigError, match="every entry of the ledger was restored"):
        require(OLD, 10, 20, restored)


def test_a_partition_that_was_never_read_goes_by_all_micro_batches() -> None:
    require(OLD, 0, 5, entry(0, 0, 10, OLD), entry(1, 10, 20, OLD), partition=3)
    with pytest.raises(ConfigError, match="may send these records"):
        require(NEW, 0, 5, entry(0, 0, 10, OLD), entry(1, 10, 20, NEW), partition=3)


def test_entries_of_an_earlier_version_do_not_tell_the_routes() -> None:
    with pytest.raises(ConfigError, match="were chosen by no routes that it names"):
        require(OLD, 0, 5, entry(0, 0, 10, None))


def test_the_transform_is_compared_by_the_newest_entry() -> None:
    require(None, 0, 5, entry(0, 0, 10, None, transform="old:gone"), entry(1, 10, 20, None))
    with pytest.raises(ConfigError, match="rows went through the transform other:parsed"):
        require(None, 0, 5, entry(0, 0, 10, None, transform="other:parsed"))
