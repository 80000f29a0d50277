"""The books of pipelines, against a world that knows what was read, written and waiting at each midnight."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recon.audit.books import books
from recon.audit.incidents import Item
from recon.model import REMOVALS, Code, EntryHead, Finding, LedgerSlice
from recon.model.books import BookLine
from recon.model.delta_offsets import BEGINNING, offset_of, topic_of
from recon.model.offsets import OffsetSpan
from recon.project import DeltaMergeSink, DeltaSink, LedgerConfig, Pipeline, Project, Source
from recon.reports.books import Balance, balance, table
from recon.testing.evidence import Entry, head_of, range_table

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
HOPS = ("bronze", "silver", "gold")
READS = {"silver": "bronze", "gold": "silver"}


# -- a world ---------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """A micro-batch that a pipeline wrote as version `version` of its table."""

    at: datetime
    version: int
    counts: dict[str, int]
    span: OffsetSpan


@dataclass
class World:
    """Three pipelines, each of which reads the table of the one before it; every hour some of them write."""

    seed: int
    days: int = 4
    fault: Callable[[World, str, int], str] = lambda *_: ""
    written: dict[str, list[Written]] = field(default_factory=lambda: {name: [] for name in HOPS})
    read_to: dict[str, int] = field(default_factory=dict)  # version of the table before it
    faults: list[tuple[str, date, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.read_to = {"silver": self.random.choice([0, 0, 3]), "gold": 0}
        self.starts = dict(self.read_to)
        for hour in range(24 * self.days):
            for name in HOPS:
                if self.random.random() < 0.2:
                    self._write(name, BEGIN + timedelta(hours=hour, minutes=HOPS.index(name) * 7))

    def _write(self, name: str, at: datetime) -> None:
        batch = len(self.written[name])
        if name == "bronze":
            read, span = self.random.randrange(50), OffsetSpan("orders", "id-1", 0, 100 * batch, 100 * (batch + 1))
        else:
            above, first = self.written[READS[name]], self.read_to[name]
            upto = min(len(above), first + self.random.randrange(1, 4))
            if upto <= first:
                return
            read = sum(one.counts["rows_written"] for one in above[first:upto])
            start = BEGINNING if first == 0 and not self.starts[name] else offset_of(first, 0)
            span = OffsetSpan(topic_of(f"table-{READS[name]}"), None, 0, start, offset_of(upto, 0))
            self.read_to[name] = upto
        filtered = self.random.randrange(read + 1) if self.random.random() < 0.3 else 0
        made = self.random.randrange(9) if not filtered and self.random.random() < 0.2 else 0
        quarantined = self.random.randrange(read - filtered + 1) if self.random.random() < 0.2 else 0
        counts = {
            "rows_read": read,
            "rows_returned": read + made - filtered,
            "rows_filtered": filtered,
            "rows_quarantined": quarantined,
            "rows_written": read + made - filtered - quarantined,
        }
        one = Written(at, batch, counts, span)
        told = self.fault(self, name, batch)
        if told == "lost in the sink" and counts["rows_written"]:
            counts["rows_written"] -= 1
        elif told == "read twice" and name != "bronze" and read:
            counts |= {key: counts[key] + read for key in ("rows_read", "rows_returned", "rows_written")}
        elif told == "passed over" and name != "bronze" and read:
            counts |= dict.fromkeys(counts, 0)
        else:
            told = ""
        if told:
            self.faults.append((name, at.date(), told))
        self.written[name].append(one)

    def project(self, folder: Path) -> Project:
        sources = {
            "bronze": Source(topics=("orders",)),
            "silver": Source(delta="bronze"),
            "gold": Source(delta="silver"),
        }
        return Project(
            name="lake",
            ledger=LedgerConfig(location="_recon"),
            pipelines=tuple(
                Pipeline(
                    name=name, checkpoint=f"cp/{name}", source=sources[name], sinks=(DeltaSink(name="t", target=name),)
                )
                for name in HOPS
            ),
            project_dir=folder,
        )

    def slices(self, begin: datetime | None = None, end: datetime | None = None) -> dict[tuple[str, str], LedgerSlice]:
        """The ledger of a period, with the entry before it."""
        found = {}
        for name, written in self.written.items():
            of_period = [
                i
                for i, one in enumerate(written)
                if (begin is None or one.at >= begin) and (end is None or one.at < end)
            ]
            earlier = [i for i, one in enumerate(written) if begin is not None and one.at < begin][-1:]
            chosen = [*earlier, *of_period]
            found[name, "t"] = LedgerSlice(
                pipeline=name,
                sink="t",
                heads=[head(name, i, written[i]) for i in chosen],
                ranges=range_table([(written[i].span,) for i in chosen]),
                anchors=len(earlier),
                complete=not earlier,
            )
        return found

    def waiting(self, name: str, day: date) -> int:
        """The rows of the table before a pipeline that it had not read when a day ended."""
        midnight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(days=1)
        read = max(
            (one.span.end_offset for one in self.written[name] if one.at < midnight),
            default=offset_of(self.starts[name], 0),
        )
        return sum(
            one.counts["rows_written"]
            for one in self.written[READS[name]]
            if one.at < midnight and offset_of(one.version, 0) >= read
        )

    def arrived(self, name: str, day: date) -> int:
        arrived = (
            one for one in self.written[READS[name]] if one.at.date() == day and one.version >= self.starts[name]
        )
        return sum(one.counts["rows_written"] for one in arrived)


def head(name: str, at: int, one: Written, **changes: Any) -> EntryHead:
    fields = {
        "pipeline": name,
        "sink": "t",
        "sequence": at + 1,
        "sink_version": one.version,
        "sink_table_id": f"table-{name}",
        "committed_at": one.at,
        **one.counts,
    }
    return head_of(Entry(changes.pop("batch_id", at), **{**fields, **changes}), at, "")


def days(first: int, end: int) -> tuple[datetime, datetime]:
    return BEGIN + timedelta(days=first), BEGIN + timedelta(days=end)


def of_hop(lines: Sequence[BookLine], name: str) -> dict[date, BookLine]:
    return {line.day: line for line in lines if line.pipeline == name}


# -- what holds always -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_the_whole_ledger_says_what_waited_and_balances(tmp_path: Path, seed: int) -> None:
    world = World(seed)
    lines = books(world.project(tmp_path), world.slices(), {})
    assert {line.pipeline: line.hop for line in lines} == {
        name: at for at, name in enumerate(HOPS, 1) if world.written[name]
    }
    for line in lines:
        assert balance(line)[0] == "balances", line
        if line.hop > 1:
            assert line.source == (f"{READS[line.pipeline]}.t",)
            assert (line.waiting_after, line.arrived) == (
                world.waiting(line.pipeline, line.day),
                world.arrived(line.pipeline, line.day),
            )


@pytest.mark.parametrize("seed", range(60))
def test_a_period_says_no_more_than_it_knows(tmp_path: Path, seed: int) -> None:
    """With the day before it, and without; what is told is what the world says."""
    world = World(seed)
    begin, end = days(2, 4)
    for before in ({}, world.slices(begin - timedelta(days=1), begin)):
        lines = books(world.project(tmp_path), world.slices(begin, end), {}, before=before, period=(begin, None))
        for line in lines:
            assert line.day >= begin.date()
            assert balance(line)[0] != "differs", line
            if line.hop > 1 and not line.unknown_source:
                yesterday = line.day - timedelta(days=1)
                assert line.waiting_after == world.waiting(line.pipeline, line.day)
                assert line.waiting_before == world.waiting(line.pipeline, yesterday)
                assert line.arrived == world.arrived(line.pipeline, line.day)


@pytest.mark.parametrize("told", ["lost in the sink", "read twice", "passed over"])
def test_what_does_not_balance(tmp_path: Path, told: str) -> None:
    """One fault in some micro-batch: its day and hop differ, and no other line does."""
    seen = 0
    for seed in range(60):
        chosen = random.Random(seed).choice(HOPS), random.Random(seed).randrange(3, 12)
        world = World(seed, fault=lambda _, name, batch, chosen=chosen: told if (name, batch) == chosen else "")
        lines = books(world.project(tmp_path), world.slices(), {})
        differing = [(line.pipeline, line.day) for line in lines if balance(line)[0] == "differs"]
        assert differing == [(name, day) for name, day, _ in world.faults]
        seen += len(differing)
    assert seen > 5


# -- single cases ----------------------------------------------------------------------------------------------------


def chain(*hops: Sequence[Written]) -> dict[tuple[str, str], LedgerSlice]:
    world = World(0, days=0)
    world.written |= {name: list(written) for name, written in zip(HOPS, hops, strict=False)}
    return world.slices()


def wrote(
    version: int, rows: int, *, hour: int = 0, start: int = 0, end: int = 0, table: str = "", **counts: Any
) -> Written:
    of = {"rows_read": rows, "rows_returned": rows, "rows_written": rows, "rows_quarantined": 0, **counts}
    span = OffsetSpan(topic_of(f"table-{table}") if table else "orders", None, 0, start, end)
    return Written(BEGIN + timedelta(hours=hour), version, of, span)


def lines_of(tmp_path: Path, slices: Mapping[tuple[str, str], LedgerSlice], items: Any = None) -> Sequence[BookLine]:
    return books(World(0, days=0).project(tmp_path), slices, items or {})


def said(line: BookLine) -> tuple[Balance, str]:
    return balance(line)


def test_a_version_that_is_read_in_part_leaves_unknown_what_waits(tmp_path: Path) -> None:
    slices = chain([wrote(0, 10)], [wrote(0, 4, hour=1, table="bronze", start=BEGINNING, end=offset_of(0, 2))])
    (line,) = of_hop(lines_of(tmp_path, slices), "silver").values()
    assert (line.arrived, line.waiting_after) == (10, None)
    assert said(line)[0] == "not known"


def test_rows_that_were_not_counted_behind_the_transform_prove_nothing(tmp_path: Path) -> None:
    """The number of filtered rows follows from those written then."""
    slices = chain([wrote(0, 10), wrote(1, 10, rows_returned=None, rows_filtered=3, rows_written=7)])
    (line,) = lines_of(tmp_path, slices)
    assert (line.read, line.filtered, line.written) == (20, None, 17)
    assert said(line)[0] == "not known" and "of 1 write" in said(line)[1]


def test_a_table_that_a_merge_writes_has_other_rows_than_were_written(tmp_path: Path) -> None:
    project = World(0, days=0).project(tmp_path)
    merged = replace_sink(
        project, "bronze", DeltaMergeSink(kind="delta_merge", name="t", target="bronze", keys=("id",))
    )
    slices = chain([wrote(0, 10)], [wrote(0, 10, table="bronze", start=BEGINNING, end=offset_of(1, 0))])
    above, below = books(merged, slices, {})
    assert said(above) == ("not known", "rows of this sink replace earlier ones")
    assert said(below)[0] == "not known" and below.arrived is None


def test_a_table_that_nobody_of_the_project_writes_is_the_first_hop(tmp_path: Path) -> None:
    slices = chain([], [wrote(0, 10, table="elsewhere", start=offset_of(4, 0), end=offset_of(6, 0))])
    (line,) = lines_of(tmp_path, slices)
    assert (line.hop, line.source, said(line)[0]) == (1, ("delta:bronze",), "balances")


def test_a_table_that_was_there_before_recon_has_rows_that_nobody_counted(tmp_path: Path) -> None:
    slices = chain([wrote(7, 10)], [wrote(0, 60, hour=1, table="bronze", start=BEGINNING, end=offset_of(8, 0))])
    (line,) = of_hop(lines_of(tmp_path, slices), "silver").values()
    assert (line.read, line.arrived, line.waiting_after, said(line)[0]) == (60, 10, 0, "not known")


def test_rows_from_quarantine_arrive_in_the_table_and_are_no_micro_batch(tmp_path: Path) -> None:
    slices = chain(
        [wrote(0, 10, rows_quarantined=4, rows_written=6)],
        [wrote(0, 10, hour=2, table="bronze", start=BEGINNING, end=offset_of(2, 0))],
    )
    bronze = slices["bronze", "t"]
    released = head("bronze", 1, wrote(1, 4, hour=1), epoch=-1, status="released")
    taken_out = head("bronze", 2, wrote(2, 3, hour=1), epoch=REMOVALS, rows_removed=5)
    slices["bronze", "t"] = replace(bronze, heads=[*bronze.heads, released, taken_out])
    above, below = lines_of(tmp_path, slices)
    assert (above.micro_batches, above.written, above.released) == (1, 6, 4)
    assert (below.arrived, below.read, below.waiting_after) == (10, 10, 0)
    assert said(above)[0] == said(below)[0] == "balances"


def test_a_replay_counts_nothing(tmp_path: Path) -> None:
    slices = chain([wrote(0, 10)])
    of_sink = slices["bronze", "t"]
    again = head("bronze", 1, wrote(0, 10), status="already_committed", batch_id=0)
    slices["bronze", "t"] = replace(of_sink, heads=[*of_sink.heads, again])
    (line,) = lines_of(tmp_path, slices)
    assert (line.micro_batches, line.read, line.written) == (1, 10, 10)


def test_a_day_on_which_nothing_was_read_has_a_line_where_rows_arrived(tmp_path: Path) -> None:
    slices = chain(
        [wrote(0, 10), wrote(1, 5, hour=30)],
        [wrote(0, 10, hour=1, table="bronze", start=BEGINNING, end=offset_of(1, 0))],
    )
    first, second = of_hop(lines_of(tmp_path, slices), "silver").values()
    assert (first.waiting_after, second.waiting_before, second.arrived, second.waiting_after) == (0, 0, 5, 5)
    assert (second.micro_batches, second.read, said(second)[0]) == (0, 0, "balances")


def test_what_findings_name_as_lost_counts_for_the_day_of_the_micro_batch_that_should_have_read_it(
    tmp_path: Path,
) -> None:
    slices = chain([wrote(0, 10, end=10), wrote(1, 10, hour=30, start=14, end=24)])
    gap = finding(Code.GAP, start=10, end=14)
    again = replace(gap, message="another check says the same")
    accepted = replace(finding(Code.LOSS_RETENTION, start=16, end=18))
    skipped = replace(finding(Code.SKIPPED), topic=None, partition=None, epoch=0, batch_id=0, rows=3)
    doubled = finding(Code.DUPLICATE, start=0, end=9)
    items = [
        *(Item(one, "offset_continuity", "t", BEGIN, "open") for one in (gap, again, skipped, doubled)),
        Item(accepted, "kafka_end_offsets", "t", BEGIN, "accepted"),
        Item(finding(Code.GAP, start=0, end=10), "offset_continuity", "t", BEGIN, "repaired"),
    ]
    first, second = lines_of(tmp_path, slices, {("bronze", "t"): items})
    assert (first.lost, second.lost) == (3, 6)


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


def replace_sink(project: Project, name: str, sink: Any) -> Project:
    pipelines = [
        pipe.model_copy(update={"sinks": (sink,)}) if pipe.name == name else pipe for pipe in project.pipelines
    ]
    return project.model_copy(update={"pipelines": tuple(pipelines)})


# -- as a table ------------------------------------------------------------------------------------------------------


def many(count: int, **changes: Any) -> Iterator[BookLine]:
    for at in range(count):
        yield BookLine(
            pipeline="silver",
            sink="t",
            day=BEGIN.date() + timedelta(days=at),
            hop=2,
            source=("bronze.t",),
            micro_batches=1,
            waiting_before=at,
            arrived=11,
            **{
                "read": 10,
                "filtered": 1,
                "made": 0,
                "quarantined": 2,
                "written": 7,
                "released": 0,
                "lost": 0,
                **changes,
            },
            waiting_after=at + 1,
        )


def test_many_days_are_months() -> None:
    shown = table(list(many(40)))
    assert [row.when for row in shown.rows] == ["2026-11", "2026-12"]
    first, second = (row.line for row in shown.rows)
    assert (first.waiting_before, first.arrived, first.read, first.waiting_after) == (0, 121, 110, 11)
    assert (second.waiting_before, second.micro_batches, second.waiting_after) == (11, 29, 40)
    assert shown.of_months and [row.balance for row in shown.rows] == ["balances"] * 2


def test_of_many_rows_those_that_differ_and_the_newest_are_shown() -> None:
    lines = list(many(9))
    lines[1] = replace(lines[1], written=6)
    shown = table(lines, most=3)
    assert [(row.when, row.balance) for row in shown.rows] == [
        ("2026-11-21", "differs"),
        ("2026-11-27", "balances"),
        ("2026-11-28", "balances"),
    ]
    assert (shown.left_out, shown.rows[0].said) == (6, "1 row read and neither filtered, quarantined nor written")
