"""The stored state of a sink's proof: as it is written now, as earlier versions wrote it, and of later ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from recon.base.errors import LedgerError
from recon.judge.history.declared_deletions import StoredDeletion
from recon.judge.history.quarantine_log import QuarantineJudged
from recon.judge.history.record_history import OtherRows, TableFingerprint, TableJudged
from recon.judge.history.row_balance import CountedRows
from recon.judge.history.table_history import FormerEntries, JudgedDeletions, TableVersion
from recon.judge.kafka.clusters import KafkaClusters, TopicCluster
from recon.judge.kafka.judged_logs import KafkaLogs, LogJudged
from recon.judge.memories import MEMORIES
from recon.judge.row_counts import Filtered
from recon.judge.rows.foreign_rows import ForeignRows, OffsetsOfOthers
from recon.judge.rows.surplus_rows import EarlierBatches
from recon.judge.source import OffsetsWithoutRecord, WithoutRecord
from recon.model.memory import SinkMemory
from recon.model.wire.proof import UnknownFieldError, dump_proof, parse_proof

# Two states of a version that stored what is remembered in fields of the state: with all of it, and with none.
WITH_ALL, WITH_NONE = (Path(__file__).parent / "stored_states.jsonl").read_text(encoding="utf-8").splitlines()
ALL: tuple[SinkMemory, ...] = (
    EarlierBatches(wrote_rows=True),
    Filtered(),
    TableVersion(table_id="t-1", version=8),
    CountedRows(at=7, rows=40),
    OtherRows(rows=4),
    TableJudged(
        own=2,
        repeated=1,
        together=False,
        record=(9, 5, None),
        numbered=3,
        fingerprint=TableFingerprint(location="public.orders", newest=9, value=77, pending=((0, 4),)),
    ),
    QuarantineJudged(table_id="q-1", version=2, missing=1),
    ForeignRows(offsets=(OffsetsOfOthers(topic="orders", partition=1, ranges=((5, 7), (9, 10))),)),
    WithoutRecord(
        offsets=(
            OffsetsWithoutRecord(
                topic="orders", topic_id="id-1", partition=0, isolation_level="read_committed", ranges=((3, 4),)
            ),
        )
    ),
    KafkaLogs(
        logs=(
            LogJudged(
                topic="orders", topic_id="id-1", partition=0, leader_epoch=2, position=40, open_transactions=(38, 41)
            ),
        )
    ),
)
LATER: tuple[SinkMemory, ...] = (
    KafkaClusters(topics=(TopicCluster(topic="orders", topic_id="id-1", cluster_id="cluster-1"),)),
    FormerEntries(table_id="t-1", first=1, last=4),
    JudgedDeletions(
        table_id="t-1",
        shown=(
            StoredDeletion(
                version=9,
                at=datetime(2026, 11, 1, tzinfo=UTC),
                label="by job retention",
                rows=3,
                changed="",
                inside=(("orders", 0, ((3, 5),)),),
                young=(("orders", 0, ((8, 9),)),),
                ageless=(),
            ),
        ),
        offsets=(("orders", 0, ((0, 3),)),),
        counts=((4, 3),),
    ),
)
_READ = parse_proof(WITH_ALL, MEMORIES)
STORED = dump_proof(replace(_READ, memories={**_READ.memories, **{type(memory): memory for memory in LATER}}))


def _with(memory: str, **fields: Any) -> str:
    """The state as it is stored now, with other values in what is stored of one memory."""
    stored = json.loads(STORED)
    stored["memories"][memory] = {**stored["memories"].get(memory, {}), **fields}
    return json.dumps(stored)


def test_states_of_earlier_versions_are_read() -> None:
    state = parse_proof(WITH_ALL, MEMORIES)
    assert state.memories == {type(memory): memory for memory in ALL}
    assert (*state.memories, *map(type, LATER)) == MEMORIES, "the list has each once"
    assert (state.position, state.results_hash, len(state.coverage), len(state.open)) == (12, "cd34", 1, 1)
    assert parse_proof(WITH_NONE, MEMORIES).memories == {}
    # What was remembered later than other things is not in the states before.
    before = {name: value for name, value in json.loads(WITH_ALL).items() if name not in ("quarantine", "of_others")}
    kept = {kind: memory for kind, memory in state.memories.items() if kind not in (QuarantineJudged, ForeignRows)}
    assert parse_proof(json.dumps(before), MEMORIES) == replace(state, memories=kept)


def test_a_state_is_read_as_it_was_stored() -> None:
    for text in (WITH_ALL, WITH_NONE, STORED):
        state = parse_proof(text, MEMORIES)
        assert parse_proof(dump_proof(state), MEMORIES) == state
    names = list(json.loads(STORED)["memories"])
    assert names == [kind.name for kind in MEMORIES] and len(set(names)) == len(names)


@pytest.mark.parametrize(
    "text",
    [
        _with("weather", version=1, fields={}),
        _with("other_rows", version=2),
        _with("other_rows", fields={"rows": 4, "columns": 2}),
        WITH_ALL.replace('"missing"', '"left":0,"missing"'),
        WITH_ALL.replace('"table_id"', '"weather":3,"table_id"', 1),
    ],
)
def test_what_a_later_version_remembers_is_refused(text: str) -> None:
    with pytest.raises(UnknownFieldError, match="does not know its field"):
        parse_proof(text, MEMORIES)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "4",
        _with("other_rows", fields={"rows": "many"}),
        _with("other_rows", fields=None),
        _with("other_rows", version="1"),
        STORED.replace('"memories":{', '"memories":4,"ignored":{'),
        WITH_ALL.replace('"table_rows":[7,40]', '"table_rows":[7]'),
        WITH_ALL.replace('"of_others":[', '"of_others":[4,'),
    ],
)
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(LedgerError, match="cannot be read") as refused:
        parse_proof(text, MEMORIES)
    assert not isinstance(refused.value, UnknownFieldError)


def test_a_memory_of_an_earlier_version_is_brought_to_that_of_now() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Rows(SinkMemory):
        name: ClassVar[str] = "other_rows"
        format: ClassVar[int] = 2
        others: int

        @override
        @classmethod
        def upgraded(cls, fields: Any, version: int) -> Any:
            assert version == 1
            return {"others": fields["rows"]}

    kinds = [Rows if kind is OtherRows else kind for kind in MEMORIES]
    state = parse_proof(STORED, kinds)
    assert state.memory(Rows) == Rows(others=4)
    assert parse_proof(dump_proof(state), kinds) == state
