"""A function of one's own: what it is told, what its answers mean, and what is refused before the first micro-batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from recon import Batch, foreach_batch
from recon.base.errors import ConfigError, EvidenceError, SinkError
from recon.model import ReconStamp, offsets_text
from recon.model.offsets import OffsetSpan
from recon.project import CustomSink, load
from recon.write.hook import ForeachBatch
from recon.write.sinks import ConfirmedWrite
from recon.write.sinks.custom import CustomWriter
from tests.support.messages import raises

SPANS = (OffsetSpan("t", None, 0, 5, 9),)
STAMP = ReconStamp(
    pipeline="p",
    sink="s",
    epoch=1,
    batch_id=3,
    query_id="q",
    run_id=None,
    prev_hash="",
    offsets_text=offsets_text(SPANS),
)
YML = """\
version: 2
name: x
ledger: recon
pipelines:
  - name: p
    checkpoint: c
    sinks: [{name: s, kind: custom, target: crm, WHAT}]
"""


def writer(**keys: Any) -> CustomWriter:
    return CustomWriter("pipeline p, sink s", CustomSink(name="s", kind="custom", target="crm", **keys))


def test_the_function_gets_the_rows_and_the_micro_batch() -> None:
    seen: list[Any] = []
    sink = writer(write=lambda frame, batch: seen.append((frame, batch)))
    sink.write("rows", STAMP)  # type: ignore[arg-type]
    frame, batch = seen[0]
    assert frame == "rows" and isinstance(batch, Batch) and batch.key == "p:s:1:3"
    assert (batch.pipeline, batch.sink, batch.epoch, batch.batch_id, batch.offsets, batch.target, batch.query_id) == (
        "p", "s", 1, 3, SPANS, "crm", "q",
    )  # fmt: skip
    # Nothing confirms it: nothing is known of it, and the ledger is trusted on a replay.
    assert sink.confirm(STAMP) == ConfirmedWrite(version=None, rows=None) == sink.landed(STAMP, None)
    log = sink.log()
    assert (log.location, log.recorded, log.commits) == ("crm", False, ())


def test_its_error_goes_on_as_it_is() -> None:
    class Mine(Exception):
        pass

    def broken(frame: Any, batch: Batch) -> None:
        raise Mine("full")

    with raises(Mine):
        writer(write=broken).write("rows", STAMP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "landed"),
    [
        (7, ConfirmedWrite(version=None, rows=7)),
        (0, ConfirmedWrite(version=None, rows=0)),
        (True, ConfirmedWrite(version=None, rows=None)),
        ({"rows": 5, "given": 7}, ConfirmedWrite(version=None, rows=5, given=7)),
        ({"rows": None}, ConfirmedWrite(version=None, rows=None)),
        (None, None),
        (False, None),
    ],
)
def test_what_confirm_may_say(said: Any, landed: ConfirmedWrite | None) -> None:
    sink = writer(write=print, confirm=lambda batch: said)
    assert sink.landed(STAMP, None) == landed
    if landed is None:
        with raises(SinkError):
            sink.confirm(STAMP)
    else:
        assert sink.confirm(STAMP) == landed


def test_an_answer_that_means_nothing() -> None:
    for said in ("7", 7.5, {"count": 7}):
        with raises(SinkError):
            writer(write=print, confirm=lambda batch, said=said: said).confirm(STAMP)


def test_rows_are_read_by_a_function_or_not_at_all() -> None:
    with raises(EvidenceError):
        writer(write=print).table(None)  # type: ignore[arg-type]
    with raises(EvidenceError):
        writer(write=print, read=lambda spark: 7).table(None)  # type: ignore[arg-type]
    with raises(EvidenceError):
        writer(write=print, read="no_such:f").table(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "keys",
    [
        "",
        "write: no_such.module:f",
        "write: mine:nosuch",
        "write: mine:number",
        "write: broken:f",
        "write: mine:put, confirm: mine:nosuch",
    ],
)
def test_refused_before_any_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    (tmp_path / "recon.yml").write_text(YML.replace("WHAT", keys))
    (tmp_path / "mine.py").write_text("number = 7\ndef put(frame, batch): pass\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)
    with raises(ConfigError):
        foreach_batch(tmp_path, pipeline="p")


def test_functions_from_python_and_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recon.yml").write_text(YML.replace("WHAT", "write: 'mine:Put.it', declares: exactly-once"))
    (tmp_path / "mine.py").write_text("class Put:\n    @staticmethod\n    def it(frame, batch): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)
    made = foreach_batch(tmp_path, pipeline="p")
    assert isinstance(made, ForeachBatch)
    assert made.sink.guarantee == "exactly-once" and "declared by you, not confirmed" in made.sink.promise.how
    made = foreach_batch(tmp_path, pipeline="p", write=print, confirm=len)
    assert made.sink.write is print and "confirmed by your function" in made.sink.promise.how  # type: ignore[union-attr]
    made = foreach_batch(pipeline="p", checkpoint="c", ledger="l", kind="custom", write=print)
    assert made.sink.kind == "custom" and made.sink.guarantee == "at-least-once"  # type: ignore[union-attr]
    with raises(ConfigError):
        foreach_batch(pipeline="p", checkpoint="c", ledger="l", target="t", write=print)
    with raises(ConfigError):
        foreach_batch(pipeline="p", checkpoint="c", ledger="l", kind="custom")


def test_a_path_that_names_no_function(tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(YML.replace("WHAT", "write: mine.put"))
    with raises(ConfigError):
        load(tmp_path)
