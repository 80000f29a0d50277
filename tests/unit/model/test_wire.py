"""Formats that cross a process: what is written is read back, what was written long ago is still read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import recon
from recon.base.errors import EvidenceError
from recon.model import RELEASES, ReconStamp, dump_stamp, offsets_text, parse_offsets, parse_stamp
from recon.model.offsets import OffsetSpan
from recon.model.wire import app_ids, columns, ledger_row, manifests, markers, quarantine
from recon.model.wire.app_ids import AppId, parse_app_id
from recon.witness.jdbc_ledger import ledger_table

AWKWARD = [
    "a",
    "ä.b-c",
    "a:b",
    "a/b",
    'a"b',
    "a'b",
    "a\\b",
    "[a,b]",
    "a b",
    "日本",
    "recon:1",
    '{"recon":1,',
    ',"offsets":',
]
texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(AWKWARD)
# What recon.yml allows as a name.
names = st.from_regex(r"[\w.-]+", fullmatch=True)
numbers = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**63 - 1)
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
starts = st.dictionaries(st.integers(0, 1000), counts, max_size=4)
stamps = st.builds(
    ReconStamp,
    pipeline=texts,
    sink=texts,
    epoch=st.integers(-1, 1000),
    batch_id=counts,
    query_id=texts,
    run_id=st.none() | texts,
    prev_hash=texts,
    offsets_text=st.just("[]") | texts.map(lambda topic: offsets_text([OffsetSpan(topic, None, 0, 1, 2)])),
    given=st.none() | counts,
    taken=st.none() | counts,
    number=st.none() | counts,
    by=st.none() | texts,
    reason=st.none() | texts | st.just('a,"offsets":b'),
)
owners = st.builds(markers.Owner, texts, texts, texts)


parts = st.builds(AppId, names, names, st.integers(-1, 1000), st.just("claim") | counts.map(str))


@given(parts | st.builds(AppId, names, names))
def test_app_ids(app: AppId) -> None:
    assert parse_app_id(app.dump()) == app


@given(names, names, counts)
def test_app_ids_by_what_they_are_for(pipeline: str, sink: str, number: int) -> None:
    assert parse_app_id(app_ids.app_id(pipeline, sink)) == AppId(pipeline, sink)
    release = parse_app_id(app_ids.numbered_app_id(pipeline, sink, RELEASES, number))
    assert release is not None and release.number == number
    for other in (app_ids.claim_app_id(pipeline, sink), app_ids.quarantine_app_id(pipeline, sink, number)):
        parsed = parse_app_id(other)
        assert parsed is not None and parsed.number is None
    assert app_ids.parse_chain_id(app_ids.chain_id(pipeline, sink)) == (pipeline, sink)


def test_app_ids_as_tables_have_them() -> None:
    assert app_ids.app_id("orders", "lake") == "recon:orders:lake"
    assert app_ids.quarantine_app_id("orders", "lake", 2) == "recon:orders:lake:2:quarantine"
    assert app_ids.claim_app_id("orders", "lake") == "recon:orders:lake:-1:claim"
    assert app_ids.numbered_app_id("orders", "lake", RELEASES, 7) == "recon:orders:lake:-1:7"
    assert app_ids.numbers_taken(["recon:orders:lake:-1:4", "recon:orders:lake", "x"], "orders", "lake", RELEASES) == {
        4
    }
    assert app_ids.chain_id("orders", "lake") == "chain:orders/lake"
    assert app_ids.transactional_id("orders", "out", "topic", "driver") == "recon:orders:out:topic:driver"
    assert app_ids.transactional_id("orders", "out", "topic", 3) == "recon:orders:out:topic:3"
    for foreign in ("mine", "recon:orders", "9b2d1c1e-query-id", "recon:a:b:c", ""):
        assert parse_app_id(foreign) is None


@given(stamps)
def test_stamps(stamp: ReconStamp) -> None:
    assert parse_stamp(dump_stamp(stamp)) == stamp


def test_a_stamp_as_tables_have_it() -> None:
    text = (
        '{"recon":1,"pipeline":"p","sink":"s","epoch":0,"batch_id":41,"query_id":"q","run_id":null,"prev_hash":"ab",'
        '"given":9,"offsets":[[0,"orders","id",[0,1],[0,5],[7,9]]]}'
    )
    stamp = parse_stamp(text)
    assert stamp is not None and dump_stamp(stamp) == text
    assert (stamp.batch_id, stamp.given, stamp.taken) == (41, 9, None)
    spans = (OffsetSpan("orders", "id", 0, 0, 7), OffsetSpan("orders", "id", 1, 5, 9))
    assert parse_offsets(stamp.offsets_text) == spans and offsets_text(spans) == stamp.offsets_text


@given(st.lists(st.builds(OffsetSpan, texts, st.none() | texts, counts, counts, counts, st.integers(0, 3)), max_size=6))
def test_offsets(spans: list[OffsetSpan]) -> None:
    read = parse_offsets(offsets_text(spans))
    assert sorted(map(str, read)) == sorted(map(str, spans))
    assert offsets_text(read) == offsets_text(spans)


@given(owners, counts, counts, owners)
def test_marker_keys(owner: markers.Owner, one: int, other: int, stranger: markers.Owner) -> None:
    keys = {
        markers.plan_key(owner): ("plan", ()),
        markers.task_key(owner, one): ("task", (one,)),
        markers.batch_key(owner, one, other): ("batch", (one, other)),
    }
    for key, parsed in keys.items():
        assert markers.parse_key(key) == parsed
        assert key.startswith(owner.prefix) and key.startswith(stranger.prefix) == (stranger == owner)


plans = st.builds(
    markers.Plan,
    query_id=texts,
    epoch=counts,
    batch_id=counts,
    offsets_text=texts,
    tasks=counts,
    starts=starts,
    schema=st.none() | texts,
    offset=counts,
)


@given(
    st.builds(replace, plans, behind=st.lists(plans, max_size=2).map(tuple)),
    st.builds(
        markers.TaskMarker,
        query_id=texts,
        epoch=counts,
        batch_id=counts,
        task=counts,
        tasks=counts,
        rows=counts,
        ids=numbers,
        content=numbers,
        sources=st.lists(st.tuples(texts, counts, counts, counts, counts), max_size=3),
    ),
    st.builds(
        markers.BatchMarker,
        stamp=stamps,
        tasks=counts,
        rows=counts,
        ids=numbers,
        content=numbers,
        at=times,
        starts=starts,
    ),
)
def test_markers(plan: markers.Plan, task: markers.TaskMarker, batch: markers.BatchMarker) -> None:
    assert markers.Plan.parse(plan.dump(), plan.offset) == plan
    assert markers.TaskMarker.parse(task.dump()) == task
    assert markers.BatchMarker.parse(batch.dump(), batch.at) == batch


def test_markers_as_topics_have_them() -> None:
    owner = markers.Owner("p", "s", "out")
    assert markers.plan_key(owner) == b'["p","s","out","plan"]'
    assert markers.task_key(owner, 1) == b'["p","s","out","task",1]'
    assert markers.batch_key(owner, 0, 3) == b'["p","s","out","batch",0,3]'
    plan = (
        b'{"query_id":"q","epoch":0,"batch_id":3,"offsets":"[]","tasks":2,"behind":[],"starts":[[0,5]],"schema":null}'
    )
    task = (
        b'{"query_id":"q","epoch":0,"batch_id":3,"task":1,"tasks":2,"rows":4,"ids":-9,"content":7,'
        b'"sources":[["\xc3\xbc",1,0,3,4]]}'
    )
    batch = (
        b'{"stamp":"{\\"recon\\":1,\\"pipeline\\":\\"p\\",\\"sink\\":\\"s\\",\\"epoch\\":0,\\"batch_id\\":3,'
        b'\\"query_id\\":\\"q\\",\\"run_id\\":null,\\"prev_hash\\":\\"\\",\\"offsets\\":[]}","tasks":2,"rows":4,'
        b'"ids":1,"content":2,"starts":[[0,5]]}'
    )
    at = datetime(2026, 11, 21, tzinfo=UTC)
    assert markers.Plan.parse(plan, 17).dump() == plan
    assert (
        markers.TaskMarker.parse(task).sources == [("ü", 1, 0, 3, 4)] and markers.TaskMarker.parse(task).dump() == task
    )
    assert markers.BatchMarker.parse(batch, at).dump() == batch


# Names of files and folders; a manifest with a path that leaves its folder is refused (test_manifest_bounds.py).
file_names = texts.map(lambda text: text.translate(dict.fromkeys(map(ord, "/\\\x00"), "_"))).filter(
    lambda text: text not in ("", ".", "..")
)
paths = st.lists(file_names, min_size=1, max_size=3).map("/".join)


@given(
    st.builds(
        manifests.Manifest,
        stamp=stamps,
        attempt=file_names,
        at=times,
        rows=st.none() | counts,
        layout=file_names,
        files=st.lists(st.builds(manifests.DataFile, path=paths, size=counts, rows=st.none() | counts), max_size=3).map(
            tuple
        ),
    ),
    st.builds(
        manifests.Layout,
        format=texts,
        schema=st.dictionaries(texts, texts, max_size=3),
        partition_by=st.lists(texts, max_size=3).map(tuple),
        options=st.dictionaries(texts, texts, max_size=3),
    ),
)
def test_manifests_and_layouts(manifest: manifests.Manifest, layout: manifests.Layout) -> None:
    of_files = [file.rows for file in manifest.files]
    if None not in of_files and manifest.rows is not None:
        total = sum(rows or 0 for rows in of_files)
        assume(total < 2**63)  # what the format holds
        manifest = replace(manifest, rows=total)
    line = manifests.dump_manifest(manifest)
    assert "\n" not in line and manifests.parse_manifest(line, "here") == manifest
    assert manifests.parse_layout(manifests.dump_layout(layout)) == layout


@pytest.mark.parametrize("files", [(), (manifests.DataFile("a.parquet", 9, 4), manifests.DataFile("b.parquet", 9, 5))])
def test_a_manifest_says_other_rows_than_its_files(files: tuple[manifests.DataFile, ...]) -> None:
    made = manifests.Manifest(
        stamp=ReconStamp(
            pipeline="p", sink="s", epoch=0, batch_id=0, query_id="q", run_id=None, prev_hash="", offsets_text="[]"
        ),
        attempt="a",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        rows=10,
        layout="l",
        files=files,
    )
    with pytest.raises(EvidenceError, match="here says 10 rows, and the files that it names have"):
        manifests.parse_manifest(manifests.dump_manifest(made), "here")


def test_a_manifest_as_folders_have_it() -> None:
    assert manifests.manifest_path(1, 2345) == "_recon_manifests/1/2/2345.json"
    assert manifests.merged_path(1, 2) == "_recon_manifests/1/2.jsonl.gz"
    assert manifests.layout_path("ab") == "_recon_manifests/layouts/ab.json"
    assert manifests.folder_of(1, 2345) == "_recon_epoch=1/_batch_id=2345"
    line = (
        '{"recon_manifest":1,"stamp":"{\\"recon\\":1,\\"pipeline\\":\\"p\\",\\"sink\\":\\"s\\",\\"epoch\\":0,'
        '\\"batch_id\\":3,\\"query_id\\":\\"q\\",\\"run_id\\":null,\\"prev_hash\\":\\"\\",\\"offsets\\":[]}",'
        '"attempt":"a1","at":"2026-11-21T00:00:00+00:00","rows":4,"layout":"ab","files":[["x=1/part-0.parquet",10,4]]}'
    )
    manifest = manifests.parse_manifest(line, "here")
    assert manifests.dump_manifest(manifest) == line
    assert manifest.paths == ["_recon_epoch=0/_batch_id=3/_recon_attempt=a1/x=1/part-0.parquet"]
    layout = b'{"format":"parquet","options":{},"partition_by":["x"],"schema":{"type":"struct"}}'
    assert manifests.dump_layout(manifests.parse_layout(layout)) == layout
    with pytest.raises(EvidenceError):
        manifests.parse_manifest("{}", "here")


@given(
    st.builds(
        ledger_row.JdbcEntry,
        # The table has no columns for these fields of the stamp.
        stamp=stamps.map(lambda stamp: replace(stamp, given=None, taken=None, by=None, reason=None)),
        target=texts,
        given=counts,
        rows=counts,
        at=times,
        recon_version=texts,
    )
)
def test_rows_of_recon_ledger(entry: ledger_row.JdbcEntry) -> None:
    assert ledger_row.parse_ledger_row(ledger_row.dump_ledger_row(entry)) == entry


def test_columns_of_recon_ledger() -> None:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    stamp = ReconStamp(
        pipeline="p", sink="s", epoch=0, batch_id=3, query_id="q", run_id=None, prev_hash="", offsets_text="[]"
    )
    entry = ledger_row.JdbcEntry(stamp=stamp, target="orders", given=2, rows=1, at=at, recon_version="1")
    table = ledger_table(None)
    assert set(ledger_row.dump_ledger_row(entry)) == {column.name for column in table.columns}
    assert {column.name for column in table.primary_key} == set(ledger_row.KEY)


@given(
    st.builds(
        quarantine.ClaimNote,
        token=st.none() | texts,
        expressions=st.none() | st.dictionaries(texts, texts, max_size=3),
        function=st.booleans(),
        force=st.booleans(),
        by=st.none() | texts,
        reason=st.none() | texts,
    ),
    counts,
)
def test_notes_of_releases(claim: quarantine.ClaimNote, number: int) -> None:
    assert quarantine.parse_claim(quarantine.dump_claim(claim)) == claim
    assert quarantine.parse_returned(quarantine.dump_returned(number)) == number
    for other in (quarantine.dump_claim(claim), quarantine.dump_closed(number), None, "", "recon_given_back", "[1]"):
        assert quarantine.parse_returned(other) is None


def test_notes_of_releases_as_tables_have_them() -> None:
    text = '{"recon_claim": 1, "token": "t", "expressions": {"a": "b"}, "function": false, "force": true}'
    claim = quarantine.parse_claim(text)
    assert quarantine.dump_claim(claim) == text and (claim.token, claim.force) == ("t", True)
    assert quarantine.dump_closed(7) == '{"recon_closed": 7}'
    assert quarantine.dump_returned(7) == '{"recon_given_back": 7}'


def test_headers_as_records_have_them() -> None:
    ours = columns.batch_headers("p", "ü", 1, 3) + columns.source_headers("orders", 2, 41)
    assert ours == [
        ("_batch_id", b"3"),
        ("_epoch", b"1"),
        ("_pipeline", b"p"),
        ("_sink", "ü".encode()),
        ("_source_topic", b"orders"),
        ("_source_partition", b"2"),
        ("_source_offset", b"41"),
    ]
    assert tuple(name for name, _ in ours) == columns.RECON_HEADERS


# -- no other module spells them ----------------------------------------------------------------------------------

ROOT = Path(recon.__file__).parent
EXACT = {*columns.RECON_HEADERS, *columns.QUARANTINE_COLUMNS, manifests.FOLDER, ledger_row.LEDGER_TABLE}
OPENINGS = ("recon:", "chain:", '{"recon', "recon_claim", "recon_closed", "recon_given_back", "recon_manifest")


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text in the code but docstrings and other texts that stand alone."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_no_other_module_spells_them() -> None:
    # What `recon start` and the demo write for users is an example of a user's own program.
    written = [
        p for p in ROOT.rglob("*.py") if "templates" not in p.parts and (ROOT / "model" / "wire") not in p.parents
    ]
    found: list[Any] = [
        f"{path.relative_to(ROOT)}:{line}: {text[:60]!r}"
        for path in written
        for line, text in literals(ast.parse(path.read_text()))
        if text in EXACT or text.startswith(OPENINGS)
    ]
    assert found == [], "use recon.model.wire"
