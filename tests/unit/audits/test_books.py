"""The books of pipelines, against a world that knows what was read, written, lost and doubled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.audits.books import books
from recon.audits.incidents import Item
from recon.model import RELEASES, REMOVALS, REPAIRS, Code, EntryHead, Finding, LedgerSlice
from recon.model.books import BookLine, TableWrite
from recon.model.delta_offsets import BEGINNING, offset_of, topic_of
from recon.model.offsets import OffsetSpan
from recon.project import DeltaMergeSink, DeltaSink, LedgerConfig, Pipeline, Project, Source
from recon.reports.books import balance, table
from recon.testing.evidence import Entry, head_of, range_table

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
HOPS = ("bronze", "silver", "gold")
READS = {"silver": "bronze", "gold": "silver"}
NOISE = ("release", "replay", "rebuilt", "in part", "no id")


# -- a world ---------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """An entry of a pipeline; its rows are version `version` of its table."""

    at: datetime
    version: int
    counts: dict[str, Any]
    span: OffsetSpan
    head: dict[str, Any] = field(default_factory=dict)
    rows: int = 0  # that it really brought into the table


@dataclass
class World:
    """Three pipelines, each of which reads the table of the one before it; every hour some of them write.

    The drivers' clocks differ. With `noise`, entries are as a ledger has them after restarts, releases and lost
    counts; `fault` says what goes wrong in a micro-batch of a pipeline.
    """

    seed: int
    days: int = 4
    noise: bool = False
    fault: Callable[[str, int], str] = lambda *_: ""
    written: dict[str, list[Written]] = field(default_factory=lambda: {name: [] for name in HOPS})
    faults: list[tuple[str, date, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.read_to = {"silver": self.random.choice([0, 0, 3]), "gold": 0}
        self.starts = dict(self.read_to)
        self.skew = {name: timedelta(minutes=self.random.randrange(-90, 90)) for name in HOPS}
        self.batches = dict.fromkeys(HOPS, 0)
        for hour in range(24 * self.days):
            for name in HOPS:
                if self.random.random() < 0.2:
                    self._write(name, BEGIN + timedelta(hours=hour) + self.skew[name])

    def _write(self, name: str, at: datetime) -> None:
        batch, version = self.batches[name], self._next_version(name)
        if name == "bronze":
            read, span = self.random.randrange(50), OffsetSpan("orders", "id-1", 0, 100 * batch, 100 * (batch + 1))
        else:
            first, upto = (
                self.read_to[name],
                min(self._next_version(READS[name]), self.read_to[name] + self.random.randrange(1, 4)),
            )
            if upto <= first:
                return
            read = sum(one.rows for one in self.written[READS[name]] if first <= one.version < upto)
            start = BEGINNING if first == 0 and not self.starts[name] else offset_of(first, 0)
            span = OffsetSpan(topic_of(f"table-{READS[name]}"), None, 0, start, offset_of(upto, 0))
            self.read_to[name] = upto
        self.batches[name] += 1
        filtered = self.random.randrange(read + 1) if self.random.random() < 0.3 else 0
        made = self.random.randrange(9) if not filtered and self.random.random() < 0.2 else 0
        quarantined = self.random.randrange(read - filtered + 1) if self.random.random() < 0.2 else 0
        counts: dict[str, Any] = {
            "rows_read": read,
            "rows_returned": read + made - filtered,
            "rows_filtered": filtered,
            "rows_quarantined": quarantined,
            "rows_written": read + made - filtered - quarantined,
        }
        told = self.fault(name, batch)
        if told == "lost in the sink" and counts["rows_written"]:
            counts["rows_written"] -= 1
        elif told == "doubled in the sink":
            counts["rows_written"] += 2
        elif told == "read twice" and name != "bronze" and read:
            counts |= {key: counts[key] + read for key in ("rows_read", "rows_returned", "rows_written")}
        elif told == "not read" and name != "bronze" and read:
            counts |= dict.fromkeys(counts, 0)
        else:
            told = ""
        if told:
            self.faults.append((name, at.date(), told))
        one = Written(at, version, counts, span, {"batch_id": batch}, counts["rows_written"])
        self.written[name].append(one)
        if self.noise:
            self._disturb(name, one)

    def _next_version(self, name: str) -> int:
        return max((one.version for one in self.written[name]), default=-1) + 1

    def _disturb(self, name: str, one: Written) -> None:
        what = self.random.choice((*NOISE, *[""] * 10))
        if what == "release":
            counts = {"rows_read": 4, "rows_written": 4, "rows_quarantined": 0}
            head = {"epoch": RELEASES, "status": "released", "sink_table_id": None}
            self.written[name].append(Written(one.at, one.version + 1, counts, replace_span(one.span), head, 4))
        elif what == "replay":
            again = {**one.head, "status": "already_committed", "sink_table_id": None}
            self.written[name].append(Written(one.at + timedelta(minutes=1), one.version, one.counts, one.span, again))
        elif what == "rebuilt":
            one.counts = {"rows_written": one.rows, "rows_read": None, "rows_quarantined": None, "rows_filtered": None}
            one.head |= {"status": "rebuilt", "sink_table_id": None}
        elif what == "no id":
            one.head["sink_table_id"] = None
        elif what == "in part" and name != "bronze":
            one.span = one.span._replace(end_offset=one.span.end_offset + 2)

    def slices(self, *, begins: Mapping[str, datetime] | None = None) -> dict[tuple[str, str], LedgerSlice]:
        """The ledger from some time on, with the entry before it."""
        found = {}
        for name, written in self.written.items():
            begin = (begins or {}).get(name, datetime.min.replace(tzinfo=UTC))
            first = next((i for i, one in enumerate(written) if one.at >= begin), len(written))
            chosen = range(max(first - 1, 0), len(written))
            found[name, "t"] = LedgerSlice(
                pipeline=name,
                sink="t",
                heads=[head(name, i, written[i]) for i in chosen],
                ranges=range_table([(written[i].span,) for i in chosen]),
                anchors=min(first, 1),
                complete=first == 0,
            )
        return found

    def writes(self, above: int = 0) -> dict[tuple[str, str], list[TableWrite]]:
        return {names: writes_of(of_sink, above) for names, of_sink in self.slices().items()}


def replace_span(span: OffsetSpan) -> OffsetSpan:
    return span._replace(start_offset=span.end_offset, end_offset=span.end_offset)


def writes_of(ledger: LedgerSlice, above: int = 0) -> list[TableWrite]:
    return [
        TableWrite(one.sequence, one.epoch, one.status, one.sink_table_id, one.sink_version, one.rows_written)
        for one in ledger.heads
        if one.sequence > above
    ]


def head(name: str, at: int, one: Written, **changes: Any) -> EntryHead:
    fields = {
        "pipeline": name,
        "sink": "t",
        "sequence": at + 1,
        "sink_version": one.version,
        "sink_table_id": f"table-{name}",
        "committed_at": one.at,
        **one.counts,
        **one.head,
        **changes,
    }
    return head_of(Entry(fields.pop("batch_id", at), **fields), at, "")


def project(folder: Path) -> Project:
    sources = {"bronze": Source(topics=("orders",)), "silver": Source(delta="bronze"), "gold": Source(delta="silver")}
    pipelines = [
        Pipeline(name=name, checkpoint=f"cp/{name}", source=sources[name], sinks=(DeltaSink(name="t", target=name),))
        for name in HOPS
    ]
    return Project(name="lake", ledger=LedgerConfig(location="_recon"), pipelines=tuple(pipelines), project_dir=folder)


def of_hop(lines: Sequence[BookLine], name: str) -> list[BookLine]:
    return [line for line in lines if line.pipeline == name]


# -- what holds always -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_the_whole_ledger_balances(tmp_path: Path, seed: int) -> None:
    world = World(seed)
    lines = books(project(tmp_path), world.slices(), {}, writes=world.writes())
    for line in lines:
        assert balance(line) == ("balances", ""), line
        assert line.hop == HOPS.index(line.pipeline) + 1
        if line.hop > 1:
            assert line.source == (f"{READS[line.pipeline]}.t",) and line.written_before == line.read
    assert sum(line.read or 0 for line in of_hop(lines, "bronze")) == sum(
        one.counts["rows_read"] for one in world.written["bronze"]
    )


@pytest.mark.parametrize("seed", range(120))
def test_nothing_differs_where_nothing_is_wrong(tmp_path: Path, seed: int) -> None:
    """Releases, replays, restored entries, versions read in part, and slices that begin at different times."""
    world = World(seed, noise=True)
    pick = random.Random(seed)
    begins = {name: BEGIN + timedelta(hours=pick.choice([-9, 20, 40])) for name in HOPS}
    for slices, writes in (
        (world.slices(), world.writes()),
        (world.slices(begins=begins), world.writes()),
        (world.slices(begins=begins), world.writes(above=pick.randrange(9))),
        (world.slices(), {}),
    ):
        for line in books(project(tmp_path), slices, {}, writes=writes):
            assert balance(line)[0] != "differs", line
            if line.reads_table and None not in (line.written_before, line.read):
                assert line.written_before == line.read


@pytest.mark.parametrize("told", ["lost in the sink", "doubled in the sink", "read twice", "not read"])
def test_what_does_not_balance(tmp_path: Path, told: str) -> None:
    """One fault in some micro-batch: its day and hop differ, and no other line does."""
    seen = 0
    for seed in range(60):
        chosen = random.Random(seed).choice(HOPS), random.Random(seed).randrange(3, 12)
        world = World(seed, fault=lambda name, batch, chosen=chosen: told if (name, batch) == chosen else "")
        lines = books(project(tmp_path), world.slices(), {}, writes=world.writes())
        differing = [(line.pipeline, line.day) for line in lines if balance(line)[0] == "differs"]
        assert differing == [(name, day) for name, day, _ in world.faults]
        seen += len(differing)
    assert seen > 5


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_a_day_do_not_cancel_each_other(tmp_path: Path, seed: int) -> None:
    def fault(_: str, batch: int) -> str:
        return ("lost in the sink", "doubled in the sink", "read twice", "not read")[batch % 4]

    world = World(seed, fault=fault)
    lines = books(project(tmp_path), world.slices(), {}, writes=world.writes())
    differing = {(line.pipeline, line.day) for line in lines if balance(line)[0] == "differs"}
    assert differing == {(name, day) for name, day, _ in world.faults}
    lost = sum(told == "lost in the sink" for _, _, told in world.faults)
    doubled = sum(told == "doubled in the sink" for _, _, told in world.faults)
    assert sum(line.unwritten for line in lines) == lost and sum(line.more_written for line in lines) == 2 * doubled


# -- single cases ----------------------------------------------------------------------------------------------------


def wrote(
    version: int, rows: int, *, hour: float = 0, start: int = 0, end: int = 0, table: str = "", **more: Any
) -> Written:
    counts = {"rows_read": rows, "rows_returned": rows, "rows_written": rows, "rows_quarantined": 0}
    span = OffsetSpan(topic_of(f"table-{table}") if table else "orders", None, 0, start, end)
    return Written(BEGIN + timedelta(hours=hour), version, {**counts, **more}, span)


def read(version: int, rows: int, start: int, end: int, **more: Any) -> Written:
    """A micro-batch of silver."""
    return wrote(version, rows, start=start, end=end, table="bronze", **more)


def lines_of(folder: Path, *hops: Sequence[Written], items: Any = None, of: Project | None = None) -> list[BookLine]:
    world = World(0, days=0)
    world.written |= {name: list(written) for name, written in zip(HOPS, hops, strict=False)}
    of = of or project(folder)
    there = {pipeline.name for pipeline in of.pipelines}
    slices, writes = (
        {names: one for names, one in all_.items() if names[0] in there} for all_ in (world.slices(), world.writes())
    )
    return list(books(of, slices, items or {}, writes=writes))


def test_versions_passed_over_and_read_again_do_not_cancel(tmp_path: Path) -> None:
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    silver = [
        read(0, 20, BEGINNING, offset_of(2, 0), hour=5),
        read(1, 10, offset_of(1, 0), offset_of(2, 0), hour=6, epoch=1),
        read(2, 10, offset_of(3, 0), offset_of(4, 0), hour=7, epoch=2),
    ]
    (line,) = of_hop(lines_of(tmp_path, bronze, silver), "silver")
    assert (line.written_before, line.read, line.again, line.passed_over) == (40, 40, 10, 10)
    assert balance(line) == ("differs", "10 rows in versions that no micro-batch read; 10 rows read again")


def test_what_a_lost_checkpoint_reads_again_counts_for_the_day_it_does(tmp_path: Path) -> None:
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    silver = [
        read(0, 40, BEGINNING, offset_of(4, 0), hour=5),
        read(1, 10, BEGINNING, offset_of(1, 0), hour=25, epoch=1, batch_id=0),
        read(2, 30, offset_of(1, 0), offset_of(4, 0), hour=49, epoch=1, batch_id=1),
    ]
    assert [line.again for line in of_hop(lines_of(tmp_path, bronze, silver), "silver")] == [0, 10, 30]


def test_a_version_that_is_read_in_part_is_not_known(tmp_path: Path) -> None:
    silver = [read(0, 4, BEGINNING, offset_of(0, 2, in_snapshot=True), hour=1)]
    (line,) = of_hop(lines_of(tmp_path, [wrote(0, 10)], silver), "silver")
    assert (line.written_before, balance(line)) == (
        None,
        ("not known", "of 1 write it is not known: a version was read in part"),
    )


def test_rows_that_were_not_counted_behind_the_transform_prove_nothing(tmp_path: Path) -> None:
    """The number of filtered rows follows from those written then; of a route, they are those of other routes."""
    for changes in ({"rows_filtered": 3, "rows_written": 7}, {"rows_filtered": 0, "rows_written": 10}):
        (line,) = lines_of(tmp_path, [wrote(0, 10), wrote(1, 10, rows_returned=None, **changes)])
        assert (line.read, line.filtered, balance(line)[0]) == (20, None, "not known")


def test_one_unknown_write_hides_no_difference(tmp_path: Path) -> None:
    lost = [wrote(0, 10, rows_returned=None), wrote(1, 10, rows_written=9)]
    (line,) = lines_of(tmp_path, lost)
    assert balance(line)[0] == "differs" and "1 row returned by the transform" in balance(line)[1]


def test_a_table_that_a_merge_writes_has_other_rows_than_were_written(tmp_path: Path) -> None:
    merge = DeltaMergeSink(kind="delta_merge", name="t", target="bronze", keys=("id",))
    of = project(tmp_path)
    pipelines = tuple(p.model_copy(update={"sinks": (merge,)}) if p.name == "bronze" else p for p in of.pipelines)
    silver = [read(0, 10, BEGINNING, offset_of(1, 0))]
    above, below = lines_of(tmp_path, [wrote(0, 10)], silver, of=of.model_copy(update={"pipelines": pipelines}))
    assert above.unknown == ("rows of this sink replace earlier ones",)
    assert (below.written_before, balance(below)[0]) == (None, "not known")


def test_without_the_writers_entries_a_later_hop_is_not_known(tmp_path: Path) -> None:
    """As an audit of one pipeline alone has it: which hop it is, recon.yml says."""
    (line,) = lines_of(tmp_path, [], [read(0, 10, BEGINNING, offset_of(1, 0))])
    assert (line.hop, line.source, balance(line)[0]) == (2, ("bronze.t",), "not known")


def test_a_table_that_nobody_of_the_project_writes_is_the_first_hop(tmp_path: Path) -> None:
    of = project(tmp_path)
    elsewhere = of.pipelines[1].model_copy(update={"source": Source(delta="elsewhere")})
    silver = [wrote(0, 10, table="elsewhere", start=offset_of(4, 0), end=offset_of(6, 0))]
    (line,) = lines_of(tmp_path, [], silver, of=of.model_copy(update={"pipelines": (elsewhere, of.pipelines[0])}))
    assert (line.hop, line.source, balance(line)[0], line.reads_table) == (1, ("delta:elsewhere",), "balances", False)


def test_pipelines_that_read_each_others_tables_have_one_hop(tmp_path: Path) -> None:
    of = project(tmp_path)
    bronze = of.pipelines[0].model_copy(update={"source": Source(delta="silver")})
    for order in ((bronze, of.pipelines[1]), (of.pipelines[1], bronze)):
        silver = [read(0, 10, offset_of(4, 2), offset_of(6, 0))]
        (line,) = lines_of(tmp_path, [], silver, of=of.model_copy(update={"pipelines": order}))
        assert (line.hop, line.reads_table, balance(line)[0]) == (1, True, "not known")


def test_versions_that_no_entry_explains_are_not_known(tmp_path: Path) -> None:
    """The table was there before recon; another job wrote; the reader's entry is newer than those of the writer."""
    for bronze, end in (([wrote(1, 10)], 2), ([wrote(0, 10), wrote(2, 10)], 3), ([wrote(0, 10)], 2)):
        (line,) = of_hop(lines_of(tmp_path, bronze, [read(0, 60, BEGINNING, offset_of(end, 0))]), "silver")
        assert balance(line)[0] == "not known"


def test_rows_from_quarantine_are_offered_and_are_no_micro_batch(tmp_path: Path) -> None:
    """As a release's entry is: without the id of the table."""
    release = wrote(1, 4, hour=1, epoch=RELEASES, status="released", sink_table_id=None)
    bronze = [wrote(0, 10, rows_quarantined=4, rows_written=6), release]
    above, below = lines_of(tmp_path, bronze, [read(0, 10, BEGINNING, offset_of(2, 0), hour=2)])
    assert (above.micro_batches, above.written, above.released_or_repaired) == (1, 6, 4)
    assert (below.written_before, below.read) == (10, 10)
    assert balance(above)[0] == balance(below)[0] == "balances"


def test_a_repair_is_no_micro_batch_and_puts_right_no_line(tmp_path: Path) -> None:
    bronze = [wrote(0, 10, rows_written=7), wrote(1, 3, hour=30, epoch=REPAIRS, status="repaired")]
    first, second = lines_of(tmp_path, bronze)
    assert (balance(first)[0], first.unwritten, second.released_or_repaired, balance(second)[0]) == (
        "differs",
        3,
        3,
        "balances",
    )


def test_a_table_without_rows_that_were_removed_is_not_known(tmp_path: Path) -> None:
    removed = wrote(1, 0, hour=1, epoch=REMOVALS, status="repaired", rows_removed=5, sink_table_id=None)
    (line,) = of_hop(
        lines_of(tmp_path, [wrote(0, 15), removed], [read(0, 10, BEGINNING, offset_of(2, 0), hour=2)]), "silver"
    )
    assert line.unknown == ("rows were removed from the table that is read",)


def test_replays_and_entries_restored_late_are_counted_once_and_move_nothing(tmp_path: Path) -> None:
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    silver = [read(i, 10, offset_of(i, 0) if i else BEGINNING, offset_of(i + 1, 0), hour=5 + i) for i in range(4)]
    again = replace(silver[1], at=BEGIN + timedelta(hours=23.9), head={"status": "already_committed", "batch_id": 1})
    (line,) = of_hop(lines_of(tmp_path, bronze, [*silver, again]), "silver")
    assert (line.micro_batches, line.read, balance(line)[0]) == (4, 40, "balances")
    late = replace(silver[1], at=BEGIN + timedelta(hours=23.9), head={"batch_id": 1})
    others = [replace(one, head={"batch_id": i}) for i, one in enumerate(silver) if i != 1]
    (line,) = of_hop(lines_of(tmp_path, bronze, [*others, late]), "silver")
    assert (line.micro_batches, line.read, balance(line)[0]) == (4, 40, "balances")


def test_what_findings_name_counts_for_the_micro_batches_that_should_have_read_it(tmp_path: Path) -> None:
    bronze = [wrote(0, 10, end=10), wrote(1, 10, hour=30, start=14, end=24)]
    gap = finding(Code.GAP, start=5, end=14)
    skipped = replace(finding(Code.SKIPPED), topic=None, partition=None, epoch=0, batch_id=0, rows=3)
    items = [
        *(Item(one, "offset_continuity", "t", BEGIN, "open") for one in (gap, replace(gap, message="again"), skipped)),
        Item(finding(Code.DUPLICATE, start=20, end=22), "source_rows", "t", BEGIN, "open"),
        Item(finding(Code.LOSS_RETENTION, start=16, end=18), "kafka_end_offsets", "t", BEGIN, "accepted"),
        Item(finding(Code.GAP, start=0, end=10), "offset_continuity", "t", BEGIN, "repaired"),
    ]
    first, second = lines_of(tmp_path, bronze, items={("bronze", "t"): items})
    assert (first.lost, first.twice, second.lost, second.twice) == (8, 0, 6, 2)
    assert balance(second) == ("differs", "6 lost; 2 twice")


def finding(code: Code, *, start: int | None = None, end: int | None = None) -> Finding:
    return Finding(
        code=code,
        message=f"{code} was found",
        pipeline="bronze",
        sink="t",
        topic="orders",
        topic_id=None,
        partition=0,
        start_offset=start,
        end_offset=end,
    )


def test_an_entry_of_another_day_counts_for_the_first_or_the_last(tmp_path: Path) -> None:
    world = World(0, days=0)
    world.written["bronze"] = [wrote(0, 1, hour=-30), wrote(1, 2, hour=5), wrote(2, 4, hour=24 * 365)]
    period = (BEGIN, BEGIN + timedelta(days=2))
    lines = books(project(tmp_path), world.slices(), {}, writes={}, period=period)
    assert [(line.day.day, line.read) for line in lines] == [(20, 3), (21, 4)]


# -- what a second look found ----------------------------------------------------------------------------------------


def of_items(*found: Finding, state: Any = "open") -> dict[tuple[str, str], list[Item]]:
    return {("bronze", "t"): [Item(one, "a_check", "t", BEGIN, state) for one in found]}


@pytest.mark.parametrize(
    "found",
    [
        {"code": Code.SKIPPED, "epoch": 0, "batch_id": 0, "rows": None},
        {"code": Code.SKIPPED, "epoch": None, "batch_id": 0, "rows": 7},
        {"code": Code.GAP, "rows": 7, "changed_by": (0,)},
        {"code": Code.LOSS, "rows": 7},
    ],
)
def test_a_finding_that_names_no_offsets_keeps_a_line_from_balancing(tmp_path: Path, found: dict[str, Any]) -> None:
    nowhere = replace(finding(found.pop("code")), topic=None, partition=None, **found)
    (line,) = lines_of(tmp_path, [wrote(0, 10, end=10)], items=of_items(nowhere))
    assert balance(line)[0] == ("differs" if nowhere.rows else "not known")
    assert line.lost == (nowhere.rows or 0)


@pytest.mark.parametrize("placed", [{"start_offset": 2, "end_offset": 5}, {"batch_id": 0, "epoch": 0}, {}])
def test_what_an_audit_could_not_decide_is_not_known(tmp_path: Path, placed: dict[str, Any]) -> None:
    unknown = replace(finding(Code.INCONCLUSIVE), **placed)
    (line,) = lines_of(tmp_path, [wrote(0, 10, end=10)], items=of_items(unknown))
    assert balance(line) == ("not known", "of 1 write it is not known: a finding is open: INCONCLUSIVE")
    (line,) = lines_of(tmp_path, [wrote(0, 10, end=10)], items=of_items(unknown, state="accepted"))
    assert balance(line)[0] == "balances"


def test_a_ledger_that_was_edited_balances_nowhere(tmp_path: Path) -> None:
    bronze = [wrote(0, 10, end=10), wrote(1, 10, hour=30, start=10, end=20)]
    tampered = of_items(replace(finding(Code.TAMPERED), topic=None, partition=None))
    assert [balance(line)[0] for line in lines_of(tmp_path, bronze, items=tampered)] == ["not known"] * 2
    world = World(0, days=0)
    world.written["bronze"] = bronze
    slices = world.slices()
    slices["bronze", "t"] = replace(slices["bronze", "t"], broken=[1])
    first, second = books(project(tmp_path), slices, {}, writes={})
    assert (balance(first)[0], second.unknown) == ("balances", ("the entry was edited",))


def test_a_finding_without_a_place_counts_for_the_day_it_was_first_seen(tmp_path: Path) -> None:
    bronze = [wrote(0, 10, end=10), wrote(1, 10, hour=30, start=10, end=20), wrote(2, 10, hour=60, start=20, end=30)]
    lost = replace(finding(Code.LOSS), topic=None, partition=None, rows=7)
    for hours, days in ((40, [0, 7, 0]), (70, [0, 0, 7]), (-1, [0, 0, 0])):
        items = {("bronze", "t"): [Item(lost, "a_check", "t", BEGIN + timedelta(hours=hours), "open")]}
        assert [line.lost for line in lines_of(tmp_path, bronze, items=items)] == days


def test_a_version_with_two_counts_stays_unknown_whatever_a_later_entry_says(tmp_path: Path) -> None:
    bronze = [wrote(0, 10), wrote(0, 3, hour=1), wrote(0, 3, hour=2)]
    (line,) = of_hop(lines_of(tmp_path, bronze, [read(0, 3, BEGINNING, offset_of(1, 0), hour=3)]), "silver")
    assert balance(line)[0] == "not known"


def test_rows_that_somebody_removed_are_told_beside_versions_read_again(tmp_path: Path) -> None:
    silver = [
        read(0, 10, BEGINNING, offset_of(1, 0), hour=5),
        read(1, 10, BEGINNING, offset_of(1, 0), hour=6, epoch=1, batch_id=0),
    ]
    removed = replace(finding(Code.MUTATED), topic=None, partition=None, epoch=0, batch_id=0, rows=4, changed_by=(9,))
    items = {("silver", "t"): [Item(removed, "delta_history", "t", BEGIN, "open")]}
    (line,) = of_hop(lines_of(tmp_path, [wrote(0, 10)], silver, items=items), "silver")
    assert (line.again, line.lost) == (10, 4)


def test_what_is_lost_behind_everything_that_was_read_counts_for_the_last_entry(tmp_path: Path) -> None:
    (line,) = lines_of(
        tmp_path, [wrote(0, 10, end=10)], items=of_items(finding(Code.LOSS_RETENTION, start=500, end=514))
    )
    assert line.lost == 14


def test_a_finding_of_before_the_period_is_not_of_it(tmp_path: Path) -> None:
    world = World(0, days=0)
    world.written["bronze"] = [wrote(0, 10, start=100, end=110), wrote(1, 10, hour=30, start=110, end=120)]
    slices = world.slices(begins={"bronze": BEGIN + timedelta(hours=24)})
    for one in (
        finding(Code.GAP, start=5, end=14),
        replace(finding(Code.SKIPPED), topic=None, epoch=0, batch_id=0, rows=3),
    ):
        (line,) = books(project(tmp_path), slices, of_items(one, state="accepted"), writes={})
        assert balance(line)[0] == "balances"
    (line,) = books(project(tmp_path), slices, of_items(finding(Code.DUPLICATE, start=112, end=114)), writes={})
    assert line.twice == 2


def test_a_pipeline_that_read_kafka_before_it_read_a_table(tmp_path: Path) -> None:
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    silver = [wrote(0, 100, hour=5, end=100), read(1, 40, BEGINNING, offset_of(4, 0), hour=6, epoch=1, batch_id=0)]
    (line,) = of_hop(lines_of(tmp_path, bronze, silver), "silver")
    assert (line.written_before, line.read, balance(line)[0]) == (40, 140, "balances")


def test_an_entry_restored_late_between_anchors_of_two_epochs_leaves_no_hole(tmp_path: Path) -> None:
    world = World(0, days=0)
    world.written["bronze"] = [wrote(i, 10) for i in range(30)]
    uncounted = {"status": "rebuilt", "rows_read": None, "rows_returned": None}
    world.written["silver"] = [
        read(0, 100, offset_of(0, 0), offset_of(10, 0), epoch=0, batch_id=9),
        read(1, 10, offset_of(19, 0), offset_of(20, 0), epoch=1, batch_id=9),
        read(2, 10, offset_of(14, 0), offset_of(15, 0), hour=30, epoch=1, batch_id=4, **uncounted),
        read(3, 10, offset_of(20, 0), offset_of(21, 0), hour=31, epoch=1, batch_id=10),
    ]
    slices = world.slices()
    slices["silver", "t"] = replace(slices["silver", "t"], anchors=2, complete=False)
    (line,) = of_hop(books(project(tmp_path), slices, {}, writes=world.writes()), "silver")
    assert (line.passed_over, balance(line)[0]) == (0, "not known")


def test_a_write_without_a_table_id_is_not_taken_for_one_of_another_table(tmp_path: Path) -> None:
    release = wrote(0, 4, hour=2, epoch=RELEASES, status="released", sink_table_id=None)
    (line,) = of_hop(lines_of(tmp_path, [wrote(0, 10), release], [read(0, 10, BEGINNING, offset_of(1, 0))]), "silver")
    assert balance(line)[0] == "balances"
    old = wrote(3, 7, sink_table_id=None)
    bronze = [old, *(wrote(i, 10, hour=i + 1) for i in range(3))]
    (line,) = of_hop(lines_of(tmp_path, bronze, [read(0, 39, BEGINNING, offset_of(4, 0), hour=5)]), "silver")
    assert balance(line)[0] == "not known"


def test_a_table_that_was_put_back_has_versions_that_nobody_can_tell_apart(tmp_path: Path) -> None:
    bronze = [wrote(0, 10), wrote(1, 10, hour=1), wrote(1, 3, hour=3)]
    (line,) = of_hop(lines_of(tmp_path, bronze, [read(0, 20, BEGINNING, offset_of(2, 0), hour=2)]), "silver")
    assert balance(line)[0] == "not known"


def test_what_a_table_still_had_when_it_was_made_anew(tmp_path: Path) -> None:
    bronze = [wrote(0, 10), wrote(1, 10, hour=1), wrote(0, 5, hour=2, sink_table_id="table-new")]
    anew = wrote(1, 5, hour=6, table="new", start=BEGINNING, end=offset_of(1, 0), epoch=1, batch_id=0)
    silver = [read(0, 10, BEGINNING, offset_of(1, 0), hour=5), anew]
    (line,) = of_hop(lines_of(tmp_path, bronze, silver), "silver")
    assert (line.passed_over, balance(line)[0]) == (10, "differs")


def test_findings_and_books_count_the_same_rows_of_a_table_once(tmp_path: Path) -> None:
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    silver = [read(0, 10, BEGINNING, offset_of(1, 0), hour=5), read(1, 20, offset_of(2, 0), offset_of(4, 0), hour=6)]
    gap = finding(Code.GAP, start=offset_of(1, 0), end=offset_of(2, 0))
    gap = replace(gap, topic=topic_of("table-bronze"), pipeline="silver", epoch=0, batch_id=1, rows=10)
    items = {("silver", "t"): [Item(gap, "offset_continuity", "t", BEGIN, "open")]}
    (line,) = of_hop(lines_of(tmp_path, bronze, silver, items=items), "silver")
    assert (line.passed_over, line.lost) == (10, 0)


def test_a_merge_that_reads_again_replaces_its_own_rows(tmp_path: Path) -> None:
    merge = DeltaMergeSink(kind="delta_merge", name="t", target="silver", keys=("id",))
    of = project(tmp_path)
    pipelines = tuple(p.model_copy(update={"sinks": (merge,)}) if p.name == "silver" else p for p in of.pipelines)
    silver = [read(i, 40, BEGINNING, offset_of(4, 0), hour=5 + i, epoch=i, batch_id=0) for i in range(2)]
    bronze = [wrote(i, 10, hour=i) for i in range(4)]
    line = lines_of(tmp_path, bronze, silver, of=of.model_copy(update={"pipelines": pipelines}))[-1]
    assert (line.again, balance(line)[0]) == (0, "not known")


def test_an_entry_that_was_restored_after_the_period_leaves_no_hole(tmp_path: Path) -> None:
    world = World(0, days=0)
    world.written["bronze"] = [wrote(i, 10) for i in range(4)]
    silver = [read(i, 10, offset_of(i, 0) if i else BEGINNING, offset_of(i + 1, 0), batch_id=i) for i in (0, 2, 3)]
    world.written["silver"] = silver
    slices = world.slices()
    slices["silver", "t"] = replace(slices["silver", "t"], later=frozenset({("q-1", 1)}))
    (line,) = of_hop(books(project(tmp_path), slices, {}, writes=world.writes()), "silver")
    assert (line.passed_over, balance(line)[0]) == (0, "not known")


def test_what_may_have_been_written_twice_is_not_known(tmp_path: Path) -> None:
    first, second = (replace(wrote(0, 10, end=10, batch_id=0, sink_version=None), version=None) for _ in range(2))
    (line,) = lines_of(tmp_path, [first, second])
    assert balance(line)[0] == "not known"
    alone = wrote(0, 10, end=10, status="already_committed")
    (line,) = lines_of(tmp_path, [alone])
    assert balance(line)[0] == "not known"


def test_a_query_that_went_back_in_the_log_is_not_known(tmp_path: Path) -> None:
    silver = [
        read(0, 20, BEGINNING, offset_of(2, 0), hour=5),
        read(1, 0, offset_of(2, 0), offset_of(1, 0), hour=6),
        read(2, 10, offset_of(1, 0), offset_of(2, 0), hour=7),
    ]
    (line,) = of_hop(lines_of(tmp_path, [wrote(i, 10, hour=i) for i in range(2)], silver), "silver")
    assert balance(line)[0] == "not known"


def test_a_release_of_unknown_size_is_not_known(tmp_path: Path) -> None:
    release = wrote(1, 4, hour=1, epoch=RELEASES, status="released", rows_written=None)
    (line,) = lines_of(tmp_path, [wrote(0, 10), release])
    assert (line.released_or_repaired, balance(line)[0]) == (None, "not known")


def test_many_hops_cost_what_few_do(tmp_path: Path) -> None:
    names = [f"p{i:02}" for i in range(40)]
    pipelines = [
        Pipeline(
            name=name,
            checkpoint=f"cp/{name}",
            source=Source(delta=names[i - 1]) if i else Source(topics=("orders",)),
            sinks=(DeltaSink(name="t", target=name),),
        )
        for i, name in enumerate(names)
    ]
    of = Project(name="lake", ledger=LedgerConfig(location="_recon"), pipelines=tuple(pipelines), project_dir=tmp_path)
    ledger = World(0, days=0)
    ledger.written["bronze"] = [wrote(0, 10)]
    slices = {(name, "t"): ledger.slices()["bronze", "t"] for name in names}
    assert [line.hop for line in books(of, slices, {}, writes={})] == list(range(1, 41))


# -- as a table ------------------------------------------------------------------------------------------------------


def many(count: int, **changes: Any) -> Iterator[BookLine]:
    for at in range(count):
        counts = {"read": 10, "filtered": 1, "made": 0, "quarantined": 2, "written": 7}
        yield BookLine(
            pipeline="silver",
            sink="t",
            day=BEGIN.date() + timedelta(days=at),
            hop=2,
            source=("bronze.t",),
            micro_batches=1,
            **{**counts, **changes},
        )


def test_many_days_are_months_and_hide_nothing() -> None:
    lines = list(many(40))
    lines[3], lines[7] = replace(lines[3], unwritten=3), replace(lines[7], more_written=3)
    lines[8] = replace(lines[8], filtered=None, unknown=("why",), unknown_writes=1)
    shown = table(lines)
    assert [(row.when, row.balance) for row in shown.rows] == [("2026-11", "differs"), ("2026-12", "balances")]
    first, second = (row.line for row in shown.rows)
    assert (first.read, first.filtered, first.unwritten, first.more_written) == (110, None, 3, 3)
    assert (second.micro_batches, second.read) == (29, 290)
    assert "3 rows returned by the transform" in shown.rows[0].said and "of 1 write" in shown.rows[0].said


def test_of_many_rows_those_that_differ_and_the_newest_are_shown() -> None:
    lines = list(many(9))
    lines[1] = replace(lines[1], unwritten=1)
    shown = table(lines, most=3)
    assert [(row.when, row.balance) for row in shown.rows] == [
        ("2026-11-21", "differs"),
        ("2026-11-27", "balances"),
        ("2026-11-28", "balances"),
    ]
    assert shown.left_out == 6


def test_a_reason_that_all_rows_of_a_sink_have_is_said_once() -> None:
    (of_sink,) = table(list(many(3, unknown=("why",), unknown_writes=1))).by_sink
    assert of_sink.said == "why"
    lines = [*many(2, unknown=("why",), unknown_writes=1), *many(1)]
    assert [one.said for one in table(lines).by_sink] == [""]
