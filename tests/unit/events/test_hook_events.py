"""What the hook tells: a micro-batch that is written, replayed, failed; it waits for no consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recon.base.errors import SinkError
from recon.write.hook import ForeachBatch
from recon.write.sinks import open_sink
from tests.support.events import Install, Kept, consumers  # noqa: F401
from tests.unit.hook.test_writer import Rows, Sink, make_hook, sink  # noqa: F401

LONG = 60.0
Make = Callable[..., ForeachBatch]


@pytest.fixture
def kept(consumers: Install) -> Kept:  # noqa: F811
    kept = Kept()
    consumers(kept)
    return kept


def _close(hook: ForeachBatch) -> None:
    hook.emitter.close(LONG)


def test_micro_batches_are_told_written_then_replayed(kept: Kept, make_hook: Make) -> None:  # noqa: F811
    hook = make_hook()
    hook.write(Rows(10), 0)
    hook.write(Rows(10), 0)
    _close(hook)
    written, replayed = kept.dicts
    assert (written["kind"], replayed["kind"]) == ("micro_batch.written", "micro_batch.replayed")
    assert (written["pipeline"], written["sink"], written["batch_id"], written["attempt"]) == ("p", "s", 0, 1)
    assert (written["rows_read"], written["rows_written"], replayed["attempt"]) == (10, 8, 2)
    assert written["offsets"] == [
        {"topic": "orders", "topic_id": None, "partition": 0, "start_offset": 0, "end_offset": 10}
    ]


def test_the_time_in_the_hook_includes_that_of_the_write(kept: Kept, make_hook: Make) -> None:  # noqa: F811
    hook = make_hook()
    hook.write(Rows(10), 0)
    hook.write(Rows(10), 0)
    _close(hook)
    written, replayed = kept.dicts
    assert written["seconds"] >= written["write_seconds"] > 0
    assert (replayed["seconds"] > 0, replayed["write_seconds"]) == (True, 0)


def test_a_micro_batch_that_fails_is_told_with_its_error(kept: Kept, make_hook: Make, sink: Sink) -> None:  # noqa: F811
    hook = make_hook()
    sink.confirms = None
    with pytest.raises(SinkError):
        hook.write(Rows(10), 0)
    _close(hook)
    (failed,) = kept.dicts
    assert (failed["kind"], failed["error"], failed["batch_id"]) == ("micro_batch.failed", "SinkError", 0)
    assert failed["message"]


def test_no_value_of_a_row_is_in_an_event(kept: Kept, make_hook: Make, sink: Sink) -> None:  # noqa: F811
    hook = make_hook()

    def breaks(*_: object) -> None:
        raise ValueError("[CAST_INVALID_INPUT] The value 'ada@example.org' of the type \"STRING\" cannot be cast")

    broken = hook.sink.model_copy(update={"write": breaks})
    hook.writer = open_sink(hook.project, "p", broken)
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        hook.write(Rows(10), 0)
    _close(hook)
    (failed,) = kept.dicts
    assert "CAST_INVALID_INPUT" in failed["message"] and "ada@example.org" not in failed["message"]


@pytest.mark.parametrize("hold", [True, False])
def test_a_consumer_that_hangs_or_fails_is_waited_for_by_no_micro_batch(
    consumers: Install,  # noqa: F811
    make_hook: Make,  # noqa: F811
    sink: Sink,  # noqa: F811
    hold: bool,
) -> None:
    bad = Kept("bad", hold=hold)
    bad.fails = OSError("connection refused")
    consumers(bad)
    hook = make_hook()
    for n in range(3):
        hook.write(Rows(10), n)  # a test that waits for `go` would end after 60 s by an assertion in the thread
    assert len(sink.writes) == 3
    bad.go.set()
    _close(hook)
