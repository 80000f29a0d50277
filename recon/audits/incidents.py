"""Groups findings by their cause: one DELETE is one incident, however many ranges and checks tell of it. No I/O.

Findings belong together where they name the same commit of the sink, the same offsets, or the same micro-batch; their
sentences are not compared. What several such groups have in common makes them one (`recon.judge.patterns`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from recon.audits.proof import advances, refutes
from recon.base.text import command, plural, some
from recon.judge.history.table_history import rows_lost
from recon.judge.patterns import Facts, Group, patterns_of
from recon.model import (
    RUNNING,
    CheckResult,
    Code,
    Finding,
    HarmCount,
    HarmedRange,
    Incident,
    IncidentState,
    Level,
    NextStep,
    Pattern,
    SinkChange,
    TableCommit,
    TableLog,
    Witnesses,
    known,
)
from recon.model.grouping import spans_by
from recon.model.incident import HARMS, Harm
from recon.model.ledger import named
from recon.model.offsets import Span, Spans
from recon.model.positions import is_kafka
from recon.model.proof import OF_UNREAD_RANGES, OpenFinding, stays_open

_MESSAGES = 20  # kept of one incident; run_results.json has all findings
_IDS = 5  # commands of one kind that are spelled out

_CAUSES = {
    Code.LOSS_RETENTION: "Kafka deleted these offsets before a micro-batch read them",
    Code.LOSS: "the topic, or partitions of it, was deleted before these offsets were read",
    Code.SKIPPED: "Delta skipped the write, because its transaction id had been used before",
    Code.PARTIAL: "only a part of the micro-batch is in the sink",
    Code.OVERLAP: "these offsets were read by more than one micro-batch",
    Code.DUPLICATE: "these offsets are in the sink more than once",
    Code.PHANTOM_ROWS: "rows of aborted transactions are in the sink",
}


@dataclass(frozen=True)
class Item:
    """A finding, the check that reported it, and what is known of it from earlier audits."""

    finding: Finding
    check: str
    sink: str | None
    first_seen: datetime
    state: IncidentState
    id: str = ""  # "" for what is not carried to the next audit
    accepted: str = ""

    @property
    def harm(self) -> Harm:
        """What became of its records."""
        return self.finding.harm

    @property
    def kind(self) -> str:
        """What checks call differently and is one: lost, or twice."""
        return "lost" if self.finding.code is Code.LEDGER_ORPHAN else self.finding.subject.kind


def incidents_of(
    witnesses: Witnesses, results: Sequence[CheckResult], sinks: Sequence[str], *, keeps: bool
) -> tuple[Incident, ...]:
    """The incidents of a pipeline: open ones first, the worst harm and the largest first.

    Args:
        witnesses: what the audit read.
        results: of the pipeline's checks.
        sinks: the names of the pipeline's sinks.
        keeps: whether this audit stores what it found, so that it can be accepted or repaired.
    """
    items = items_of(witnesses, results, sinks)
    names = sinks if keeps else ()
    whole = {name for name in names if advances(name, witnesses, results)}
    refuted = {name for name in names if refutes(name, witnesses)}

    def is_kept(item: Item) -> bool:
        kept = refuted if item.finding.level is Level.FAIL else whole
        return item.sink in kept or (item.sink is None and bool(kept))

    by_sink: dict[str | None, list[Item]] = defaultdict(list)
    for item in items:
        by_sink[item.sink].append(item)
    found = [
        _incident(groups, pattern, witnesses, sink, is_kept)
        for sink, of_sink in by_sink.items()
        for groups, pattern in _by_pattern([_left(group) for group in grouped(of_sink)], witnesses, sink)
    ]
    return tuple(sorted(found, key=_severity))


def _left(group: Sequence[Item]) -> Sequence[Item]:
    """What is open of findings; else what somebody accepted; else what is repaired."""
    states = {item.state for item in group}
    state: IncidentState = "open" if "open" in states else "accepted" if "accepted" in states else "repaired"
    return [item for item in group if item.state == state]


def _by_pattern(
    groups: Sequence[Sequence[Item]], witnesses: Witnesses, sink: str | None
) -> Iterator[tuple[Sequence[Sequence[Item]], Pattern | None]]:
    """Groups that have something in common together, and what that is; the others one by one."""
    compared = [
        Group(
            group[0].harm,
            group[0].kind if group[0].harm != "undecided" else group[0].check,
            group[0].state,
            [(item.finding, item.check) for item in group],
        )
        for group in groups
    ]
    together = set[int]()
    for pattern, members in patterns_of(compared, Facts.of(witnesses, sink)):
        together.update(members)
        yield [groups[at] for at in members], pattern
    yield from (([group], None) for at, group in enumerate(groups) if at not in together)


def _severity(incident: Incident) -> tuple[object, ...]:
    states: Sequence[IncidentState] = ("open", "accepted", "repaired")
    largest = max((count.rows or count.offsets for count in incident.counts), default=0)
    return states.index(incident.state), HARMS.index(incident.harm), -largest, incident.sink or "", incident.id


# -- what is known of each finding ------------------------------------------------------------------------------------


def items_of(witnesses: Witnesses, results: Sequence[CheckResult], sinks: Sequence[str]) -> list[Item]:
    """Findings of this audit and of earlier ones, each once; arguments as of `incidents_of`."""
    results = [r for r in results if r.kind == "evidence" and r.check not in RUNNING]
    only = sinks[0] if len(sinks) == 1 else None
    earlier = {sink: proof.open for sink, proof in witnesses.proofs.of_sink.items()}
    items: dict[tuple[Hashable, ...], Item] = {}

    def add(item: Item) -> None:
        items.setdefault((item.finding, item.check, item.state), item)

    judged = {(result.sink, result.check) for result in results}
    for result in results:
        for finding in result.findings:
            sink = finding.sink or result.sink or only
            known_as = [
                open_finding for name, of_sink in earlier.items() if sink in (None, name) for open_finding in of_sink
            ]
            of_check = [open_finding for open_finding in known_as if open_finding.check == result.check]
            if finding.code is Code.REPAIRED:
                for open_finding in (waiting for waiting in of_check if _holds(waiting, finding)):
                    original = replace(finding, code=open_finding.finding.code, message=open_finding.finding.message)
                    add(Item(original, result.check, sink, open_finding.first_seen, "repaired", open_finding.id))
            elif finding.level in (Level.FAIL, Level.UNPROVED):
                add(_open_item(finding, result.check, sink, of_check, witnesses.now))
    for name, of_sink in earlier.items():
        for open_finding in of_sink:
            by = open_finding.accepted
            if by is not None:
                says = f"accepted by {by.by} on {by.at:%Y-%m-%d}: {by.reason}"
                add(
                    Item(
                        open_finding.finding,
                        open_finding.check,
                        name,
                        open_finding.first_seen,
                        "accepted",
                        open_finding.id,
                        says,
                    )
                )
            elif not judged & {(name, open_finding.check), (None, open_finding.check)}:
                add(
                    Item(
                        open_finding.finding, open_finding.check, name, open_finding.first_seen, "open", open_finding.id
                    )
                )
    return list(items.values())


def _open_item(finding: Finding, check: str, sink: str | None, earlier: Sequence[OpenFinding], now: datetime) -> Item:
    """A finding of this audit, with its age and id where an earlier audit knew it, or a later one will."""
    finding = finding.as_said
    known_as = [
        open_finding for open_finding in earlier if open_finding.accepted is None and open_finding.includes(finding)
    ]
    first_seen = min((open_finding.first_seen for open_finding in known_as), default=now)
    id_ = ""
    if stays_open(check, finding):
        id_ = next((kept for open_finding in known_as if (kept := open_finding.keeps_id(finding))), finding.subject.id)
    return Item(finding, check, sink, first_seen, "open", id_)


def _holds(open_finding: OpenFinding, repaired: Finding) -> bool:
    """Whether a range that is repaired is of an open finding."""
    if open_finding.finding.span is None or repaired.span is None or not open_finding.is_at(repaired):
        return False
    return open_finding.finding.span.start <= repaired.span.start and repaired.span.end <= open_finding.finding.span.end


# -- which findings have one cause ------------------------------------------------------------------------------------


def grouped(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The findings of each cause."""
    first: dict[Hashable, int] = {}
    root = list(range(len(items)))

    def find(at: int) -> int:
        while root[at] != at:
            root[at] = at = root[root[at]]
        return at

    for at, item in enumerate(items):
        for key in _keys(item):
            root[find(at)] = find(first.setdefault(key, at))
    for at, other in _overlapping(items):
        root[find(at)] = find(other)
    groups: dict[int, list[Item]] = defaultdict(list)
    for at, item in enumerate(items):
        groups[find(at)].append(item)
    for group in groups.values():
        yield sorted(group, key=lambda item: (item.finding.level.rank, HARMS.index(item.harm)))


def _keys(item: Item) -> Iterator[Hashable]:
    """What findings of one cause share."""
    found = item.finding
    if found.changed_by is not None:
        # Where no trace tells what took rows, one check may count the rows that another names.
        yield from (("version", version) for version in found.changed_by)
        if not found.changed_by:
            yield ("changed",)
    elif found.batch_id is not None and not _is_general(found):
        # A gap between two micro-batches names the one behind it, which is not the one that is missing.
        of_check = item.check if item.check == "offset_continuity" or item.harm == "undecided" else ""
        yield "batch", of_check, item.harm, item.kind, found.epoch, found.batch_id
    elif found.span is None:
        yield "code", item.check, found.code, found.topic, found.subject.about if found.topic is None else ""
    if _is_general(found):
        yield "general", found.code, found.topic


def _is_general(finding: Finding) -> bool:
    """Whether a code has one cause wherever it is found: the ledger was edited, or the isolation level is wrong."""
    return finding.code in (Code.TAMPERED, Code.PHANTOM_ROWS, Code.RECREATED, Code.STALLED, Code.LOSS_AHEAD)


def _overlapping(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """Findings of one kind whose offsets meet; what was never written also where it only touches."""
    places: dict[Hashable, list[tuple[Span, int]]] = defaultdict(list)
    for at, item in enumerate(items):
        found, span = item.finding, item.finding.span
        if span is not None and span.size > 0:
            of_check = item.check if item.harm == "undecided" else ""
            places[item.kind, of_check, found.topic, found.topic_id, found.partition].append((span, at))
    for ranges in places.values():
        ranges.sort()
        reach, holder = ranges[0][0].end, ranges[0][1]
        for span, at in ranges[1:]:
            written = items[at].harm == "removed" or items[holder].harm == "removed"
            if span.start < reach or (span.start == reach and not written):
                yield at, holder
            if span.end > reach:
                reach, holder = span.end, at


# -- an incident ------------------------------------------------------------------------------------------------------


def _incident(
    groups: Sequence[Sequence[Item]],
    pattern: Pattern | None,
    witnesses: Witnesses,
    sink: str | None,
    is_kept: Callable[[Item], bool],
) -> Incident:
    left = sorted((item for group in groups for item in group), key=_first) if len(groups) > 1 else groups[0]
    ranges = ranges_of(left)
    log = (known(witnesses.delta) or {}).get(sink or "")
    changes = _changes(left, log)
    ids = tuple(dict.fromkeys(item.id for item in left if item.id))
    known_ids = {open_finding.id for proof in witnesses.proofs.of_sink.values() for open_finding in proof.open}
    kept = [item for item in left if not item.id or item.id in known_ids or is_kept(item)]
    return Incident(
        id=next(iter(ids), ""),
        sink=sink,
        cause=cause_of(left, changes, log),
        codes=tuple(dict.fromkeys(str(item.finding.code) for item in left)),
        checks=tuple(sorted({item.check for item in left})),
        state=left[0].state,
        first_seen=min(item.first_seen for item in left),
        findings=ids,
        ranges=ranges,
        counts=_counts(groups, changes),
        changes=changes,
        accepted="; ".join(dict.fromkeys(item.accepted for item in left if item.accepted)),
        steps=tuple(_steps(left, witnesses.pipeline, sink, kept)) if left[0].state == "open" else (),
        pattern=pattern,
        messages=tuple(dict.fromkeys(item.finding.message for item in left))[:_MESSAGES],
    )


def _first(item: Item) -> tuple[object, ...]:
    """The worst first, then by place."""
    found = item.finding
    where = (found.topic or "", found.partition or 0, found.start_offset or 0, found.epoch or 0, found.batch_id or 0)
    return found.level.rank, HARMS.index(item.harm), *where


def _counts(groups: Sequence[Sequence[Item]], changes: Sequence[SinkChange]) -> tuple[HarmCount, ...]:
    """What is of each harm in all groups together: rows where each group counts them."""
    counts = [count for group in groups for count in counts_of(group, ranges_of(group), changes)]
    by_harm = {harm: [count for count in counts if count.harm == harm] for harm in HARMS}
    return tuple(
        HarmCount(
            harm=harm,
            offsets=sum(count.offsets for count in mine),
            rows=None if any(count.rows is None for count in mine) else sum(count.rows or 0 for count in mine),
            certain=sum(count.certain for count in mine),
        )
        for harm, mine in by_harm.items()
        if mine
    )


def ranges_of(items: Sequence[Item]) -> tuple[HarmedRange, ...]:
    """The offsets of an incident, each once, as what it certainly is: removed, else gone from Kafka, else missing."""
    order: Sequence[Harm] = ("removed", "lost", "missing", "twice", "other", "undecided")
    places: dict[tuple[str, str | None, int], dict[Harm, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        found = item.finding
        if found.topic is not None and found.partition is not None and found.span is not None and found.span.size > 0:
            places[found.topic, found.topic_id, found.partition][item.harm].append(found.span)
    ranges = []
    for (topic, topic_id, partition), of_harm in places.items():
        taken = Spans()
        for harm in order:
            mine = Spans.of(of_harm.get(harm, ())).minus(taken)
            taken = taken.union(mine)
            ranges += [
                HarmedRange(
                    harm=harm, topic=topic, topic_id=topic_id, partition=partition, start_offset=start, end_offset=end
                )
                for start, end in mine
            ]
    return tuple(sorted(ranges, key=lambda r: (r.topic, r.topic_id or "", r.partition, r.start_offset)))


def counts_of(
    items: Sequence[Item], ranges: Sequence[HarmedRange], changes: Sequence[SinkChange]
) -> Iterator[HarmCount]:
    """How many offsets are of each harm, and how many rows these certainly are."""
    for harm in HARMS:
        mine = [item for item in items if item.harm == harm]
        if mine:
            offsets = sum(r.end_offset - r.start_offset for r in ranges if r.harm == harm and is_kafka(r.topic))
            certain = _certain(mine, [r for r in ranges if r.harm == harm])
            rows = _rows(mine, harm, offsets, certain, changes)
            yield HarmCount(harm=harm, offsets=offsets, rows=rows, certain=certain)


def _certain(items: Sequence[Item], ranges: Sequence[HarmedRange]) -> int:
    """How many offsets of ranges are known to be those of records."""
    exact: dict[tuple[str | None, str | None, int | None], list[Span]] = defaultdict(list)
    for found in (item.finding for item in items):
        if found.span is not None and found.rows == found.span.size:
            exact[found.topic, found.topic_id, found.partition].append(found.span)
    return sum(
        Spans.of([Span(r.start_offset, r.end_offset)])
        .intersect(Spans.of(exact.get((r.topic, r.topic_id, r.partition), ())))
        .size
        for r in ranges
    )


def _rows(items: Sequence[Item], harm: Harm, offsets: int, certain: int, changes: Sequence[SinkChange]) -> int | None:
    """The rows of one harm: as commits say, else as findings count them; None where neither is certain."""
    versions = {version for item in items for version in item.finding.changed_by or ()}
    taken = [change.rows for change in changes]
    if harm == "removed" and versions and len(changes) == len(versions) and None not in taken:
        return sum(rows for rows in taken if rows is not None)
    found = [item.finding for item in items]
    if harm == "twice" and (doubled := _doubled(found)) is not None:
        return doubled
    if harm == "missing" and (apart := _counted_apart(found)) is not None:
        return apart
    counted = [
        finding.rows
        for finding in found
        if finding.rows is not None and (finding.span is None or finding.rows != finding.span.size)
    ]
    counting = [item.check for item in items if item.finding.rows is not None and item.finding.span is None]
    if len(counting) > len(set(counting)):
        return None  # one check counted rows twice, which may be the same ones
    if certain == offsets and (certain or harm == "removed") and (len(counted) <= 1 or harm == "removed"):
        # Rows that one check counts and another names are the same ones: as many as the larger number are certain.
        return max((certain, *counted)) or None
    # One count beside findings that count nothing: it is of all of them, where they name one range or none.
    ranges = {finding.span for finding in found if finding.span is not None}
    return counted[0] if len(counted) == 1 and not certain and len(ranges) <= 1 else None


def _counted_apart(findings: Sequence[Finding]) -> int | None:
    """The rows of findings that all count them, each in a range of its own; None where one does not, or two meet."""
    spans = [(_place(finding), finding.span) for finding in findings if finding.span is not None]
    apart = sum(each.size for each in spans_by(spans).values()) == sum(span.size for _, span in spans)
    if len(spans) < len(findings) or not apart or any(finding.rows is None for finding in findings):
        return None
    return sum(finding.rows or 0 for finding in findings)


def _doubled(findings: Sequence[Finding]) -> int | None:
    """The rows too many, where every finding counts them; None where one does not, or two ranges only meet.

    A finding of a whole range counts rows that others name by their offsets.
    """
    total, left = 0, sorted(findings, key=lambda finding: -finding.span.size if finding.span is not None else 0)
    while left:
        outer, *others = left
        if outer.rows is None or outer.span is None:
            return None
        whole, within, left = Spans.of([outer.span]), list[Finding](), list[Finding]()
        rows = outer.rows
        for finding in others:
            mine = Spans.of([finding.span] if finding.span is not None else ())
            if _place(finding) != _place(outer) or not whole.intersect(mine):
                left.append(finding)
            elif mine.minus(whole):
                return None
            elif mine == whole:
                rows = max(rows, finding.rows or 0)
            else:
                within.append(finding)
        of_parts = _doubled(within)
        if of_parts is None:
            return None
        total += max(rows, of_parts)
    return total


def _place(finding: Finding) -> tuple[str | None, str | None, int | None]:
    return finding.topic, finding.topic_id, finding.partition


def _changes(items: Sequence[Item], log: TableLog | None) -> tuple[SinkChange, ...]:
    """The commits that the findings name, as far as the log that was read has them."""
    versions = sorted({version for item in items for version in item.finding.changed_by or ()})
    commits = log.commits if log is not None else {}
    return tuple(_change(commits[version]) for version in versions if version in commits)


def _change(commit: TableCommit) -> SinkChange:
    made_by = commit.made_by
    if commit.stamp is not None:
        made_by = {"pipeline": commit.stamp.pipeline, "sink": commit.stamp.sink}
    predicate = commit.operation_parameters.get("predicate")
    return SinkChange(
        version=commit.version,
        at=commit.timestamp,
        operation=commit.operation,
        predicate="" if predicate in (None, "[]") else str(predicate),
        rows=rows_lost(commit),
        made_by=made_by,
    )


def cause_of(items: Sequence[Item], changes: Sequence[SinkChange], log: TableLog | None) -> str:
    """What happened, in a sentence that says no more than the findings."""
    worst = items[0].finding
    versions = sorted({version for item in items for version in item.finding.changed_by or ()})
    of_versions = {change.version: change for change in changes}
    if versions:
        what = [_done_by(v, of_versions.get(v)) for v in versions]
        table = log.location if log is not None else "the sink"
        if len(versions) == 1:
            return f"{what[0]} of {table}"
        return f"{some(what)} of {table}: which of these took which rows is not known"
    by_harm = {item.harm: item.finding for item in reversed(items)}
    if len(items) == 1 or any(item.finding.changed_by is not None for item in items):
        return worst.message
    sentences = [_sentence(finding, items) for finding in by_harm.values()]
    return "; ".join(dict.fromkeys(sentence for sentence in reversed(sentences)))


def _done_by(version: int, change: SinkChange | None) -> str:
    if change is None:
        return f"a commit took rows away or changed them: version {version}"
    rows = "an unknown number of rows" if change.rows is None else plural(change.rows, "row")
    did = f"took away {rows}" if change.rows != 0 else "changed rows"
    where = f" where {change.predicate}" if change.predicate else ""
    return f"{change.operation or 'a commit'}{where} {did}: version {version}"


def _sentence(finding: Finding, items: Sequence[Item]) -> str:
    """The cause of several findings of one harm; of which micro-batch, where all that say so name one."""
    mine = [item for item in items if item.finding.subject.kind == finding.subject.kind]
    text = _CAUSES.get(finding.code, finding.message)
    if finding.code is Code.GAP:
        unread = any(item.check in OF_UNREAD_RANGES for item in mine)
        text = "no micro-batch wrote these offsets" if unread else "no row carries these offsets, which were read"
    batches = {
        (item.finding.epoch, item.finding.batch_id)
        for item in mine
        if item.check != "offset_continuity" and item.finding.batch_id is not None
    }
    if len(batches) != 1 or text == finding.message:
        return text
    ((epoch, batch_id),) = batches
    return f"{text} ({named(_Number(epoch or 0, batch_id or 0))})"


class _Number(NamedTuple):
    """The number of a micro-batch."""

    epoch: int
    batch_id: int


# -- what to do next --------------------------------------------------------------------------------------------------


def _steps(items: Sequence[Item], pipeline: str, sink: str | None, kept: Sequence[Item]) -> Iterator[NextStep]:
    """The commands that answer an open incident; none of them changes a sink. `kept` are the items that are stored."""
    codes = {item.finding.code for item in items}
    if Code.TAMPERED in codes:
        yield NextStep(
            purpose="see which entries were edited or removed", command=command("recon ledger verify", pipeline, sink)
        )
    if codes & {Code.STALLED, Code.RECREATED}:
        yield NextStep(
            purpose="see what the next start of the query will do", command=command("recon explain", pipeline)
        )
    if Code.RECREATED in codes:
        yield NextStep(
            purpose="the startingOffsets that lose and double nothing", command=command("recon offsets", pipeline, sink)
        )
    if Code.LOSS_AHEAD in codes:
        yield NextStep(purpose="settings with which the query keeps up", command=command("recon advise", pipeline))
    ids = tuple(dict.fromkeys(item.id for item in kept if item.id))
    if not any(item.id for item in items):
        return
    if not ids:
        yield NextStep(
            purpose="this audit stores no findings: audit so that it can be repaired or accepted", command="recon audit"
        )
        return
    undecided = [item.finding for item in items if item.harm == "undecided"]
    if not all(finding.undecidable for finding in undecided):
        yield NextStep(purpose="when the witness can be read, audit again", command="recon audit --full")
    if any(item.id and item.harm in ("missing", "removed", "twice") for item in items):
        finding = f" --finding {ids[0]}" if len(ids) == 1 else ""
        plan = command("recon repair plan", pipeline, sink)
        yield NextStep(purpose="see what can be repaired", command=plan + finding)
    purpose = "what may stay as it is, or cannot be repaired"
    if all(item.finding.undecidable for item in items):
        purpose = "no witness is left: look the records up where they came from, and say what you found"
    for id_ in ids[:_IDS]:
        yield NextStep(purpose=purpose, command=f'recon accept {id_} --reason "…" --by "…"')
    if len(ids) > _IDS:
        yield NextStep(
            purpose=f"the ids of the other {len(ids) - _IDS}", command=command("recon findings", pipeline, sink)
        )


__all__ = ["Item", "cause_of", "counts_of", "grouped", "incidents_of", "items_of", "ranges_of"]
