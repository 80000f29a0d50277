"""The account of an audit against what happened: no explained offset is a lost record, and no lost one has a row."""

from __future__ import annotations

from collections.abc import Iterator

from recon.model import Answer
from recon.model.account import AccountLine, HowKnown, OffsetClass, SinkAccount
from recon.model.ledger import LedgerSlice
from recon.model.offsets import Spans
from tests.truth.world import PIPELINE, Place, World

# What became of an offset that no row has to carry.
_EXPLAINED = frozenset(
    {
        OffsetClass.FILTERED,
        OffsetClass.MARKER,
        OffsetClass.ABORTED,
        OffsetClass.COMPACTED,
        OffsetClass.WITHOUT_RECORD,
    }
)
_STRANGE = 50  # the epoch of a query that writes without an entry, from a checkpoint that is not the pipeline's
_GONE = frozenset({OffsetClass.REMOVED, OffsetClass.LOST})
_HARMED = frozenset({OffsetClass.DELETED, OffsetClass.REMOVED, OffsetClass.LOST, OffsetClass.NOT_KNOWN})


def wrong_in(
    world: World, account: SinkAccount, ledger: LedgerSlice, answer: Answer, *, past: bool = False
) -> Iterator[str]:
    """What the account says otherwise than the world; one of the `past` does not know the rows written since."""
    places: set[tuple[int, str, str, int, int]] = set()
    for line in account.lines():
        source, topic, topic_id = account.topics[line.topic] if line.start >= 0 else (0, "", None)
        for offset in range(line.start, line.end):
            place = (topic, topic_id or "", line.partition, offset)
            if (source, *place) in places:
                yield f"two lines have one offset: {place}"
            places.add((source, *place))
            if topic_id is not None and (wrong := _wrong(world, place, line, answer, past=past)):
                yield f"{wrong}: {place} {line}"
    answered = (HowKnown.ACCEPTED, HowKnown.DECLARED)
    harmed = [line for line in account.lines() if line.offset_class in _HARMED and line.how not in answered]
    if answer == "complete" and harmed:
        yield f"the answer is complete: {harmed}"
    unread = sum(line.offsets for line in account.lines() if line.entry < 0)
    if ledger.complete and not ledger.anchors and _read(ledger) not in (None, account.read - unread):
        yield f"other offsets than in the ledger: {account.read - unread}, and {_read(ledger)}"


def _wrong(world: World, place: Place, line: AccountLine, answer: Answer, *, past: bool) -> str:
    """What is wrong with the class of an offset; "" for nothing."""
    has_row, due = any(row.place == place for row in world.rows), place in world.expected | world.wrong
    of_class = line.offset_class
    # Of one that is not complete, a count may be of other offsets, and what a second call of the hook would have taken
    # is filtered by the first.
    believed = line.how not in (HowKnown.COUNTED, HowKnown.LOG) or answer == "complete"
    # docs/limits.md: rows carry no topic id, so that one of another topic of the name stands for it.
    topic, _, partition, offset = place
    alike = any(row.place[0] == topic and row.place[2:] == (partition, offset) for row in world.rows)
    if of_class is OffsetClass.IN_A_ROW and not alike and believed and place not in world.hidden:
        return "no row has it"
    forgiven = place in world.hidden | world.forgiven.lost | world.wrong or not world.query.makes(place[3])
    # What the second of two calls of the hook will take, the first one filters; compaction may remove it since.
    twice = of_class in (OffsetClass.FILTERED, OffsetClass.COMPACTED) and "calls_two_hooks" in world.acts
    # What Kafka has since an election may be other records.
    elected = "elects_an_unclean_leader" in world.acts or any(log.leader_epoch for log in world.logs)
    forgiven = forgiven or twice or elected
    if of_class in _EXPLAINED and due and not has_row and believed and not forgiven:
        return "it is lost"
    # A row that another program, another pipeline or a query without an entry put there is not the stream's.
    mine = (row for row in world.rows if row.pipeline == PIPELINE and row.batch_id is not None and row.epoch < _STRANGE)
    if of_class in _GONE and not (elected or past) and any(row.place == place for row in mine):
        return "a row has it"
    if line.how is HowKnown.DECLARED and place not in world.lawful:
        return "it was not deleted as declared"
    # Of what nobody read Kafka is not asked offset by offset. A record that compaction removed may have had a row.
    # docs/limits.md: an entry without counts, where no other shows a filter, has lost what the filter dropped.
    dropped, compacted = world.query.filters(place[3]), any(log.compacted for log in world.logs)
    if of_class in _GONE and not due and line.entry >= 0 and not (elected or dropped or compacted):
        return "it is no record"
    return ""


def _read(ledger: LedgerSlice) -> int | None:
    """How many offsets micro-batches and repairs read, each once for each source and topic id; None where one lacks."""
    ids: dict[tuple[int, str], set[str | None]] = {}
    for source, name, topic_id in ledger.ranges.topics:
        ids.setdefault((source, name), set()).add(topic_id)
    if any(len(known) > 1 and None in known for known in ids.values()):
        return None
    spans: dict[tuple[int, str, str | None, int], list[tuple[int, int]]] = {}
    for entry, head in enumerate(ledger.heads):
        for read in ledger.ranges.of(entry) if head.reads else ():
            if read.span.size > 0:
                spans.setdefault((read.source, read.topic, read.topic_id, read.partition), []).append(read.span)
    return sum(Spans.of(mine).size for mine in spans.values())
