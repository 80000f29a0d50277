"""The ledger on a real Delta table by deltalake: append, order, seal, read by time."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - pyarrow imports it when first used
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from recon.base.errors import LedgerError, UnreachedLedgerError
from recon.model import LedgerEntry, RangeTable, offsets_text, parse_offsets
from recon.model.integrity import verify
from recon.model.ledger import RELEASES, REMOVALS
from recon.model.offsets import OffsetSpan, Spans
from recon.write.ledger import columns, coverage, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.reader import in_order
from recon.write.ledger.store import BeingMerged, Filter, Housekeeping, merging
from tests.support.ledger_entries import AT, data_files, entry, later, merged_days_ago, project, tidy
from tests.support.messages import raises


def test_entries_come_back_whole_and_chained(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    written = [ledger.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(3)]
    assert written[0].prev_hash == ""
    assert [e.prev_hash for e in written[1:]] == [e.entry_hash for e in written[:-1]]
    assert open_ledger(project(tmp_path)).entries() == written


def test_nothing_is_created_by_reading(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    assert ledger.entries() == [] and ledger.tail("orders", "orders") is None and not ledger.exists()
    assert ledger.slice("orders", "orders").heads == []
    assert list(tmp_path.iterdir()) == []


def test_a_slice_carries_the_entry_before_the_period_as_anchor(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(6):
        ledger.append(entry(n, at=AT + timedelta(days=n)))
    cut = ledger.slice("orders", "orders", AT + timedelta(days=3), AT + timedelta(days=5))
    assert [h.batch_id for h in cut.heads] == [2, 3, 4] and cut.anchors == 1 and not cut.complete
    whole = ledger.slice("orders", "orders")
    assert [h.batch_id for h in whole.heads] == list(range(6)) and whole.anchors == 0 and whole.complete
    assert whole.broken == []


def test_chains_of_two_sinks_are_apart(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0))
    other = ledger.append(entry(0, sink="copy"))
    assert other.prev_hash == ""
    assert [h.sink for h in ledger.slice("orders", "copy").heads] == ["copy"]


def _rewrite(path: Path, **changes: object) -> None:
    """What someone with write access to the folder can do: read all rows, change some, overwrite."""
    table = columns.to_table([])
    import pyarrow as pa

    rows = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    for row in rows:
        if row["batch_id"] == 1:
            row.update(changes)
    write_deltalake(str(path), pa.Table.from_pylist(rows, schema=table.schema), mode="overwrite")


@pytest.mark.parametrize(
    "changes",
    [{"rows_written": 21}, {"committed_at": AT + timedelta(seconds=1, microseconds=1)}, {"status": "rebuilt"}],
)
def test_an_edited_entry_breaks_its_seal(tmp_path: Path, changes: dict[str, object]) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(3):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    _rewrite(tmp_path / "_recon/ledger", **changes)
    cut = open_ledger(project(tmp_path)).slice("orders", "orders")
    assert [cut.heads[i].batch_id for i in cut.broken] == [1]
    assert "WRITE overwrite" in [operation for _, operation in cut.operations]


def test_edited_ranges_break_the_seal(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(3):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    spans = [s._replace(end_offset=s.end_offset + 1)._asdict() for s in entry(1).offsets]
    _rewrite(tmp_path / "_recon/ledger", offsets=spans)
    assert len(open_ledger(project(tmp_path)).slice("orders", "orders").broken) == 1


def test_compaction_changes_no_entry(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    written = [ledger.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(12)]
    metrics = ledger.compact()["ledger"]
    assert metrics["numFilesRemoved"] == 12 and metrics["numFilesAdded"] == 1
    again = open_ledger(project(tmp_path))
    assert again.entries() == written
    assert again.append(entry(12, at=AT + timedelta(minutes=1))).prev_hash == written[-1].entry_hash


def test_two_processes_lose_no_entry_and_fork_no_chain(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from datetime import UTC, datetime
        from pathlib import Path
        from recon.write.ledger import open_ledger
        from tests.support.ledger_entries import entry, project
        ledger = open_ledger(project(Path(sys.argv[1])))
        for n in range(15):
            ledger.append(entry(n, at=datetime.now(UTC), query_id=sys.argv[2]))
        """
    )
    root = Path(__file__).parents[3]
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name], cwd=root) for name in ("q-a", "q-b")
    ]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    entries = open_ledger(project(tmp_path)).entries()
    assert sorted((e.query_id, e.batch_id) for e in entries) == [(q, n) for q in ("q-a", "q-b") for n in range(15)]
    assert [e.prev_hash for e in entries] == ["", *[e.entry_hash for e in entries[:-1]]]


def test_a_newer_schema_version_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(
        str(tmp_path / "_recon/ledger"), schema=columns.ENTRIES.schema, description="recon ledger, schema version 2"
    )
    with raises(LedgerError):
        open_ledger(project(tmp_path)).entries()


def test_a_foreign_table_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "_recon/ledger"), schema=columns.ENTRIES.schema)
    with raises(LedgerError):
        open_ledger(project(tmp_path)).append(entry())


def test_a_torn_log_is_one_sentence(tmp_path: Path) -> None:
    open_ledger(project(tmp_path)).append(entry())
    log = tmp_path / "_recon/ledger/_delta_log"
    for file in log.glob("*.json"):
        file.write_text('{"commitInfo": {')
    with raises(LedgerError) as caught:
        open_ledger(project(tmp_path)).entries()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "moves_it_away"),
    [
        (PermissionError(13, "Permission denied"), False),
        (OSError("Generic S3 error: Error performing GET …: Server returned 403 Forbidden"), False),
        (OSError("Generic MicrosoftAzure error: Account must be specified"), False),
        (OSError("Generic S3 error: the credential provider was not enabled"), False),
        (OSError("Kernel error: Json error: Truncated record whilst reading object"), True),
        (OSError("Object at location date=2026-11-20/part-0.parquet not found"), True),
    ],
)
def test_only_a_damaged_table_is_to_be_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, moves_it_away: bool
) -> None:
    ledger = open_ledger(project(tmp_path))

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("deltalake.DeltaTable", fails)
    for store in (ledger.store, ledger.results):
        with pytest.raises(LedgerError) as caught:
            store.exists()
        assert ("move it away" in str(caught.value)) == moves_it_away
        assert ("rebuild" in str(caught.value)) == (moves_it_away and store is ledger.store)


def test_a_table_that_is_not_reached_is_not_one_that_is_not_there(tmp_path: Path) -> None:
    """As where this user may not enter the folder: delta-rs says of both that there is no table."""
    (tmp_path / "_recon").write_text("a file where the folder would be")
    ledger = open_ledger(project(tmp_path))
    for read in (
        ledger.store.exists,
        ledger.entries,
        ledger.chains,
        lambda: ledger.proofs.since(["orders"], AT),
        lambda: ledger.append(entry(0)),
    ):
        with pytest.raises(UnreachedLedgerError, match=r"cannot be read: Not a directory; check its path"):
            read()


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "_recon").write_text("a file stands where the folder should be")
    with raises(LedgerError):
        open_ledger(project(tmp_path)).append(entry())


_spans = st.lists(
    st.builds(
        OffsetSpan,
        st.sampled_from(["orders", 'pay"ments', "заказы"]),
        st.sampled_from([None, "id-1", "id-2"]),
        st.integers(0, 300),
        st.integers(0, 10**12),
        st.integers(0, 10**12),
        st.integers(0, 2),
    ),
    unique_by=lambda s: (s.source, s.topic, s.topic_id, s.partition),
    max_size=12,
)


@given(st.lists(_spans, min_size=1, max_size=5))
def test_the_columns_spell_the_same_text_as_the_entry(ranges: list[list[OffsetSpan]]) -> None:
    entries = [link(entry(n, offsets=tuple(spans)), "") for n, spans in enumerate(ranges)]
    table = columns.to_table(entries)
    assert columns.texts(columns.ranges(table), len(entries)) == [offsets_text(e.offsets) for e in entries]
    cut = columns.to_slice(table, pipeline="orders", sink="orders", anchors=0, complete=True, operations=())
    assert cut.broken == []


@given(_spans)
def test_the_text_of_ranges_can_be_read_back(spans: list[OffsetSpan]) -> None:
    assert sorted(parse_offsets(offsets_text(spans)), key=str) == sorted(spans, key=str)


def test_an_empty_ledger_has_an_empty_range_table() -> None:
    found = columns.ranges(columns.to_table([]))
    assert isinstance(found, RangeTable) and len(found) == 0
    assert columns.texts(found, 0) == []
    assert columns.texts(columns.ranges(columns.to_table([replace(entry(), offsets=())])), 1) == ["[]"]


def test_the_anchors_hold_the_furthest_batch_though_an_older_one_was_restored_later(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(3, at=AT, epoch=0))
    ledger.append(entry(0, at=AT + timedelta(minutes=1), epoch=1))
    ledger.append(entry(1, at=AT + timedelta(minutes=2), epoch=1))
    ledger.append(entry(0, at=AT + timedelta(minutes=3), epoch=1, attempt=2))
    ledger.append(entry(2, at=AT + timedelta(days=1), epoch=1))
    cut = ledger.slice("orders", "orders", AT + timedelta(hours=12))
    assert [(h.epoch, h.batch_id) for h in cut.heads] == [(0, 3), (1, 1), (1, 0), (1, 2)] and cut.anchors == 3


def test_a_shared_ledger_gives_each_sink_its_own_ranges(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(130):
        ledger.append(entry(n, at=AT + timedelta(seconds=n), sink=("orders", "copy", "orders")[n % 3]))
    ledger.compact()
    cut = open_ledger(project(tmp_path)).slice("orders", "copy", AT + timedelta(seconds=60))
    mine = [n for n in range(130) if n % 3 == 1]
    assert [h.batch_id for h in cut.heads] == [n for n in mine if n >= 58] and cut.anchors == 1
    assert cut.ranges.end.tolist() == [n * 10 + 10 for n in mine if n >= 58 for _ in range(2)]
    assert cut.broken == []


def test_rows_are_read_from_a_folder_with_blanks(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path / "a lake"))
    written = [ledger.append(entry(n, at=AT + timedelta(hours=9 * n))) for n in range(5)]
    assert open_ledger(project(tmp_path / "a lake")).entries() == written


def test_the_ledger_keeps_little_of_its_own_log(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry())
    properties = DeltaTable(str(tmp_path / "_recon/ledger")).metadata().configuration
    assert properties["delta.logRetentionDuration"] == "interval 2 days"


def test_housekeeping_merges_a_days_files(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path), housekeeping=Housekeeping(many_files=5))
    written, files = [], []
    for n in range(30):
        written.append(ledger.append(entry(n, at=AT + timedelta(seconds=n))))
        files.append(ledger.store.small_files())
    assert 5 <= max(files) <= 10, "the hook looks at every fifth append, from one of the first five on"
    tidy(tmp_path, many_files=1)
    assert open_ledger(project(tmp_path)).store.small_files() == 1
    assert open_ledger(project(tmp_path)).entries() == written


def test_a_day_that_grows_is_not_rewritten_at_each_merge(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))

    def one(n: int, day: int = 0) -> LedgerEntry:
        large = random.Random(n).randbytes(10_000).hex()
        return entry(n, at=AT + timedelta(days=day, seconds=n), checks_fingerprint=large)

    def live() -> list[str]:
        return sorted(DeltaTable(ledger.location).file_uris())

    written = [*ledger.extend([one(n) for n in range(80)], after=0)]
    (whole,) = live()
    written += [ledger.append(one(n)) for n in range(80, 84)]
    tidy(tmp_path, many_files=4, large=1)
    assert whole in live() and len(live()) == 3, "what is larger than an eighth of the day stays"
    written += [ledger.append(one(n, day=1)) for n in range(84, 89)]
    tidy(tmp_path, many_files=4, large=1)
    assert whole not in live() and len([path for path in live() if f"date={AT.date()}" in path]) == 1
    assert open_ledger(project(tmp_path)).entries() == written and ledger.verify() == []


def test_a_process_that_merges_files_which_another_one_merged_meanwhile(tmp_path: Path) -> None:
    """delta-rs would commit both, and each entry would be there twice."""
    first, second = open_ledger(project(tmp_path)), open_ledger(project(tmp_path))
    written = [first.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(4)]
    assert second.store.small_files() == 4
    first.compact()
    with pytest.MonkeyPatch.context() as patched, raises(BeingMerged):
        patched.setattr(DeltaTable, "update_incremental", lambda _: None)  # it looked at the table just before
        second.store.compact()
    written.append(second.append(entry(4, at=AT + timedelta(seconds=4))))
    assert open_ledger(project(tmp_path)).entries() == written


def test_a_process_that_died_while_it_merged(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    written = [ledger.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(4)]
    died = merging.claimed(DeltaTable(ledger.location), "the ledger")
    died.__enter__()
    with pytest.raises(BeingMerged):
        ledger.store.compact()
    tidy(tmp_path, many_files=3)  # housekeeping leaves it to the other one
    assert ledger.store.small_files() == 4
    with later(hours=1):
        tidy(tmp_path, many_files=3)
    assert ledger.store.small_files() == 1
    assert ledger.entries() == written and ledger.verify() == []


def test_files_that_were_merged_are_removed_two_days_later(tmp_path: Path) -> None:
    """Of a stream of 10 s micro-batches they are 8,640 a day, and 86 merged ones but the last."""
    ledger, folder = open_ledger(project(tmp_path)), tmp_path / "_recon/ledger"
    written = [ledger.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(4)]
    tidy(tmp_path, many_files=3)  # merges, looks for old files, and finds none
    assert len(data_files(folder)) == 5
    merged_days_ago(folder, 3)
    again = open_ledger(project(tmp_path))
    written += [again.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(4, 8)]
    tidy(tmp_path, many_files=3)
    assert len(data_files(folder)) == 10, "none are looked for twice a day"
    with later(days=1):
        tidy(tmp_path, many_files=3)
    # The first four are gone. The first merged file and the four behind it were replaced a moment ago: a reader that
    # began before may still open them.
    assert len(data_files(folder)) == 6
    assert open_ledger(project(tmp_path)).entries() == written and ledger.verify() == []
    assert again.append(entry(8, at=AT + timedelta(minutes=1))).prev_hash == written[-1].entry_hash


def test_one_of_two_processes_removes_files(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(4):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    folder, location = tmp_path / "_recon/ledger", str(tmp_path / "_recon/ledger")
    assert not merging.claims_vacuum(DeltaTable(location)), "nothing was merged yet"
    ledger.store.compact()
    one, other = DeltaTable(location), DeltaTable(location)
    assert merging.claims_vacuum(one) and not merging.claims_vacuum(other)
    assert not merging.claims_vacuum(DeltaTable(location)), "not again on this day"
    merged_days_ago(folder, 3)
    ledger.compact()
    assert len(data_files(folder)) == 5
    # A clock that was a day ahead, once, does not keep files for good.
    with later(days=2):
        ledger.compact()
    assert len(data_files(folder)) == 1
    assert merging.claims_vacuum(DeltaTable(location))


def test_files_of_rows_that_somebody_deleted_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, folder = open_ledger(project(tmp_path)), tmp_path / "_recon/ledger"
    written = [ledger.append(entry(n, at=AT + timedelta(seconds=n))) for n in range(4)]
    ledger.compact()
    before = DeltaTable(str(folder)).version()
    DeltaTable(str(folder)).delete("batch_id = 2")
    merged_days_ago(folder, 3)
    for days in (1, 2):
        with later(days=days):
            tidy(tmp_path)
    # As if the log had forgotten the DELETE meanwhile.
    monkeypatch.setattr("recon.write.ledger.store.delta_rs.is_lawful", lambda _: True)
    with later(days=3):
        open_ledger(project(tmp_path)).compact()
    assert len(data_files(folder)) == 6, "four small ones, the merged one, and what the DELETE made of it"
    assert [one.code for one in ledger.verify()] == ["TAMPERED", "TAMPERED"]
    DeltaTable(str(folder)).restore(before)
    assert open_ledger(project(tmp_path)).entries() == written


def test_old_files_that_cannot_be_removed_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(4):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))

    def refused(*_: Any, **__: Any) -> None:
        raise OSError("permission denied")

    monkeypatch.setattr(DeltaTable, "vacuum", refused)
    assert ledger.compact()["ledger"]["numFilesRemoved"] == 4 and len(ledger.entries()) == 4


def test_processes_that_append_and_merge_at_the_same_time(tmp_path: Path) -> None:
    stream = """
        import sys
        from datetime import timedelta
        from pathlib import Path
        from recon.write.ledger import open_ledger
        from recon.write.ledger.store import Housekeeping
        from tests.support.ledger_entries import AT, entry, project

        mine = open_ledger(project(Path(sys.argv[1])), housekeeping=Housekeeping(many_files=4))
        for n in range(25):
            mine.append(entry(n, pipeline=sys.argv[2], at=AT + timedelta(seconds=n)))
        """
    command = [sys.executable, "-c", textwrap.dedent(stream), str(tmp_path)]
    streams = [subprocess.Popen([*command, f"stream_{n}"]) for n in range(3)]
    assert [stream.wait(120) for stream in streams] == [0, 0, 0]
    ledger = open_ledger(project(tmp_path))
    assert len(ledger.entries()) == 75 and ledger.verify() == []
    assert any(operation == "OPTIMIZE" for _, operation in ledger.store.operations())


def test_an_earlier_epochs_end_is_an_anchor_however_long_ago(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(3):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    for n in range(5):
        ledger.append(entry(n, at=AT + timedelta(days=n + 1), epoch=1, query_id="q-2"))
    cut = ledger.slice("orders", "orders", AT + timedelta(days=4, hours=12))
    assert [(h.epoch, h.batch_id) for h in cut.heads] == [(0, 2), (1, 3), (1, 4)] and cut.anchors == 2
    assert verify(cut) == [], "anchors of two epochs need not follow each other"


def test_a_day_of_restored_entries_is_no_anchor_alone(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in (0, 1, 3, 4):
        ledger.append(entry(n, at=AT + timedelta(seconds=n)))
    ledger.append(entry(2, at=AT + timedelta(days=1), status="rebuilt"))
    ledger.append(entry(5, at=AT + timedelta(days=2)))
    cut = ledger.slice("orders", "orders", AT + timedelta(days=1, hours=12))
    assert [h.batch_id for h in cut.heads] == [4, 2, 5] and cut.anchors == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 20)), max_size=20))
def test_coverage_in_columns_is_the_union(parts: list[tuple[int, int, int]]) -> None:
    entries = [
        link(entry(n, offsets=(OffsetSpan("orders", "id", p, a, a + size),)), "")
        for n, (p, a, size) in enumerate(parts)
    ]
    found = coverage.of(columns.ranges(columns.to_table(entries)))
    for partition in range(3):
        expected = Spans.of((a, a + size) for p, a, size in parts if p == partition)
        assert found.get(("orders", "id", partition), Spans()) == expected


def test_a_day_that_somebody_rewrote_is_read_beside_the_others(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for n in range(4):
        ledger.append(entry(n, at=AT + timedelta(hours=20 * n)))
    DeltaTable(str(tmp_path / "_recon/ledger")).update({"rows_written": "19"}, predicate="batch_id = 1")
    for start in (None, AT + timedelta(hours=30)):
        cut = open_ledger(project(tmp_path)).slice("orders", "orders", start)
        assert [cut.heads[i].batch_id for i in cut.broken] == [1]
        assert cut.ranges.end.tolist() == [h.batch_id * 10 + 10 for h in cut.heads for _ in range(2)]


@pytest.mark.parametrize("reason", ["15", "Protocol changed since last commit: protocol changed"])
def test_an_append_that_others_crowd_out_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """delta-rs gives up after 15 versions of others, and where another one made the table at the same moment.

    Both are contention, not a folder that cannot be written.
    """
    import deltalake
    from deltalake.exceptions import CommitFailedError

    written, write = [], deltalake.write_deltalake

    def crowded(*of: object, **more: object) -> None:
        written.append(1)
        if len(written) < 3:
            raise CommitFailedError(f"Failed to commit transaction: {reason}")
        write(*of, **more)

    monkeypatch.setattr(deltalake, "write_deltalake", crowded)
    ledger = open_ledger(project(tmp_path))
    assert [ledger.append(entry(0)).batch_id, len(written), len(ledger.entries())] == [0, 3, 1]


def test_files_whose_bounds_exclude_every_wanted_row_are_not_opened(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    for sink, n in [*(("orders", n) for n in range(4)), ("copy", 0)]:
        ledger.append(entry(n, sink=sink))
        files = set(Path(ledger.location).glob("date=*/*.parquet"))
        if (sink, n) in {("orders", 0), ("orders", 3), ("copy", 0)}:
            max(files, key=lambda file: file.stat().st_mtime_ns).unlink()
    found = ledger.store.read(replace(Filter.of("orders", "orders"), above=1, upto=3), ["sequence"])
    assert sorted(found["sequence"].to_pylist()) == [2, 3]
    with pytest.raises(LedgerError):
        ledger.store.read(Filter(upto=2))


@given(st.data())
def test_no_file_is_left_out_that_has_a_wanted_row(data: st.DataObject) -> None:
    names, numbers = st.sampled_from(["a", "b", "ö", "bb"]), st.integers(0, 9)
    files = data.draw(st.lists(st.lists(st.tuples(names, numbers), min_size=1, max_size=3), max_size=4))
    known = data.draw(st.lists(st.booleans(), min_size=len(files), max_size=len(files)))
    name, above, upto = data.draw(names), data.draw(st.none() | numbers), data.draw(st.none() | numbers)
    columns = {
        f"{end}.{column}": pa.array(
            [
                least([row[place] for row in rows]) if bounds else None
                for rows, bounds in zip(files, known, strict=True)
            ],
            kind,
        )
        for end, least in (("min", min), ("max", max))
        for place, (column, kind) in enumerate((("sink", pa.string()), ("sequence", pa.int64())))
    }
    adds = pa.table({"path": [str(place) for place in range(len(files))], **columns})
    found = replace(Filter.of(sink=name), above=above, upto=upto).files(adds, "committed_at")
    kept = {int(path) for path in found["path"].to_pylist()}
    for place, rows in enumerate(files):
        wanted = any(n == name and (above is None or s > above) and (upto is None or s <= upto) for n, s in rows)
        assert place in kept or (known[place] and not wanted)


@given(
    st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=3)),
    st.none() | st.integers(0, 20_000),
    st.none() | st.integers(0, 20_000),
)
def test_no_file_is_left_out_that_has_an_entry_of_the_period(
    files: list[list[int]], begin: int | None, end: int | None
) -> None:
    def at(micros: int) -> datetime:
        return datetime(2026, 11, 26, tzinfo=UTC) + timedelta(microseconds=micros)

    instants = pa.timestamp("us", tz="UTC")
    adds = pa.table(
        {
            "path": pa.array([str(place) for place in range(len(files))], pa.string()),
            # As Delta's writers do, cut off to milliseconds.
            "min.committed_at": pa.array([at(min(of) // 1000 * 1000) for of in files], instants),
            "max.committed_at": pa.array([at(max(of) // 1000 * 1000) for of in files], instants),
        }
    )
    which = Filter(from_=None if begin is None else at(begin), to=None if end is None else at(end))
    kept = which.files(adds, "committed_at")["path"].to_pylist()
    for place, of in enumerate(files):
        wanted = any((begin is None or n >= begin) and (end is None or n < end) for n in of)
        assert str(place) in kept or not wanted
    assert which.files(adds.select(["path"]), "committed_at").num_rows == len(files), "bounds not known"


def test_what_entries_quarantined_is_read_of_the_files_that_may_say_so(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    opened: list[str] = []
    for n, rows in enumerate((0, 7, 0)):
        before = set(Path(ledger.location).glob("date=*/*.parquet"))
        ledger.append(entry(n, rows_quarantined=rows))
        if not rows:
            opened += [file.name for file in set(Path(ledger.location).glob("date=*/*.parquet")) - before]
    ledger.append(entry(1, epoch=RELEASES, rows_quarantined=0, rows_read=3, offsets=()))
    ledger.append(entry(2, epoch=REMOVALS, rows_quarantined=0, offsets=()))
    assert ledger.quarantined("orders", "orders") == ({(0, 1): 7}, {1: 3})
    assert ledger.quarantined("orders", "copy") == ({}, {})
    for name in opened:
        next(Path(ledger.location).glob(f"date=*/{name}")).unlink()
    assert ledger.quarantined("orders", "orders") == ({(0, 1): 7}, {1: 3}), "files with zeros alone are not opened"


def test_a_count_that_one_entry_of_a_micro_batch_has_is_its_count(tmp_path: Path) -> None:
    ledger = open_ledger(project(tmp_path))
    ledger.append(entry(0, rows_quarantined=0))
    ledger.append(entry(0, attempt=2, status="already_committed", rows_quarantined=None))
    ledger.append(entry(1, rows_quarantined=None))
    ledger.append(entry(2, rows_quarantined=4))
    ledger.append(entry(2, attempt=2, status="already_committed", rows_quarantined=None))
    assert ledger.quarantined("orders", "orders") == ({(0, 1): None, (0, 2): 4}, {})


@given(st.lists(st.lists(st.tuples(st.integers(-3, 1), st.none() | st.integers(0, 2)), min_size=1, max_size=3)))
def test_no_file_is_left_out_that_has_a_count_or_the_epoch(files: list[list[tuple[int, int | None]]]) -> None:
    counts = [[count for _, count in rows if count is not None] for rows in files]
    adds = pa.table(
        {
            "path": pa.array([str(place) for place in range(len(files))], pa.string()),
            "min.rows_quarantined": pa.array([min(of, default=None) for of in counts], pa.int64()),
            "max.rows_quarantined": pa.array([max(of, default=None) for of in counts], pa.int64()),
            "null_count.rows_quarantined": pa.array(
                [len(rows) - len(of) for rows, of in zip(files, counts, strict=True)], pa.int64()
            ),
            "min.epoch": pa.array([min(epoch for epoch, _ in rows) for rows in files], pa.int64()),
            "max.epoch": pa.array([max(epoch for epoch, _ in rows) for rows in files], pa.int64()),
        }
    )
    which = Filter(not_zero=("rows_quarantined", RELEASES))
    kept = which.files(adds, "committed_at")["path"].to_pylist()
    for place, rows in enumerate(files):
        wanted = [count != 0 or epoch == RELEASES for epoch, count in rows]
        table = pa.table(
            {
                "epoch": pa.array([epoch for epoch, _ in rows], pa.int64()),
                "rows_quarantined": pa.array([count for _, count in rows], pa.int64()),
            }
        )
        mask = which.mask(table, "committed_at")
        assert (mask.to_pylist() if mask is not None else [True] * len(rows)) == wanted
        assert str(place) in kept or not any(wanted)
    unknown = adds.drop_columns(["null_count.rows_quarantined"])
    assert which.files(unknown, "committed_at").num_rows == len(files), "bounds not known"


@given(st.permutations(range(12)))
def test_entries_are_put_in_order_whatever_lies_together(order: list[int]) -> None:
    table = pa.table({"sequence": pa.array(order, pa.int64()), "value": [f"v{n}" for n in order]})
    assert in_order(table)["value"].to_pylist() == [f"v{n}" for n in range(12)]


def test_many_pieces_are_put_in_order_at_once() -> None:
    order = [*range(1, 1000, 2), *range(0, 1000, 2)]
    table = pa.table({"sequence": pa.array(order, pa.int64())})
    assert in_order(table)["sequence"].to_pylist() == list(range(1000))
