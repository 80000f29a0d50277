"""What usually causes a shape in such a sink, the cause that takes least to check first. None of these is proved."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from recon.judge.patterns.facts import Facts, Number, Place
from recon.judge.patterns.groups import Group, united
from recon.judge.patterns.shapes import Common
from recon.model import Code
from recon.model.incident import LikelyCause, Shape
from recon.model.offsets import Span, Spans

_LOST_CHECKPOINT = "the checkpoint was deleted, or the query was started with another checkpointLocation"
_CLOSED = "What is still open then, such as offsets that no micro-batch read, needs somebody to accept it"
_NEW_ID = "Spark makes a new id where it finds no checkpoint"

_Causes = Callable[[Common, Sequence[Group], Facts], Iterator[LikelyCause]]


def causes_of(common: Common, groups: Sequence[Group], facts: Facts) -> tuple[LikelyCause, ...]:
    """The likely causes of what groups have in common."""
    return tuple(_CAUSES[common.shape](common, groups, facts))


def _where(facts: Facts) -> str:
    sink = f" --sink {shlex.quote(facts.sink)}" if facts.sink is not None else ""
    return f"--pipeline {shlex.quote(facts.pipeline)}{sink}"


def _read_once_more(facts: Facts) -> str:
    """How what is missing comes into the sink."""
    plan = f"`recon repair plan {_where(facts)}` lists what is missing so far"
    if facts.writer == "hook":
        return f"{plan}, and `recon repair apply {_where(facts)}` reads it again"
    return (
        f"{plan}; recon does not write into this sink: read exactly these offsets with a query of your own, which "
        f"writes all columns of the table, then audit again. {_CLOSED}"
    )


# -- within micro-batches ---------------------------------------------------------------------------------------------


def _in_part(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    if {group.kind for group in groups} == {"twice"}:
        yield from _twice_in_part(facts)
        return
    if facts.by_number:
        yield LikelyCause(
            says="the function writes each micro-batch by several appends under one txnAppId and txnVersion",
            because=_one_commit(groups, facts)
            + "Delta takes one append for a txnAppId and txnVersion, and drops the next one without an error",
            look="the function that foreachBatch gets: does it write to the table twice, or in a loop?",
            then="let it write each micro-batch with one append (unionByName of the parts): later micro-batches are "
            f"whole then. {_read_once_more(facts)}",
        )
    elif facts.writer == "hook":
        yield LikelyCause(
            says="rows were taken out of the sink after the hook had written them",
            because="the hook counts what a transform filters, and these offsets are not among that",
            look=f"{_trace(groups)}, then the jobs, triggers and people that may write to the sink besides",
            then=f"keep them from it. {_read_once_more(facts)}",
        )
    if facts.writer != "hook":
        yield LikelyCause(
            says="the query drops these records: by a filter, an inner join, or dropDuplicates",
            because="recon counts nothing while a query writes by itself, and recon.yml alone says whether it filters",
            look=f"{_trace(groups)}, and the conditions of the query for what such a record holds",
            then="if they are meant to be dropped, accept the findings, and take `filters: false` out of recon.yml: of "
            "later ones recon cannot decide, unless the hook counts them. If they are not, mend the query. "
            f"{_read_once_more(facts)}",
        )


def _twice_in_part(facts: Facts) -> Iterator[LikelyCause]:
    if facts.writer == "function":
        yield LikelyCause(
            says="the function writes these records twice: by two appends whose conditions meet",
            because="of each micro-batch only a part is there twice; a retry would double all of it",
            look="the function that foreachBatch gets: may one record satisfy the conditions of two writes?",
            then="let each record be written by one of them. What is there twice stays so until somebody removes a row "
            "of each",
        )


def _one_commit(groups: Sequence[Group], facts: Facts) -> str:
    """What the table's log says: one commit for each micro-batch, with all other records; "" where it does not."""
    offsets = united(groups)
    readers = facts.readers(offsets)
    numbers: set[Number] = {number for group in groups for number in group.numbers}
    if not readers or {batch.number for batch in readers} != numbers:
        return ""
    for batch in readers:
        lacks = sum(_within(offsets, place, span) for place, span in batch.read.items())
        if batch.version is None or facts.rows_added.get(batch.version) != batch.size - lacks:
            return ""
    return "the table has one commit of each of these micro-batches, which holds all other records; "


def _within(offsets: Mapping[Place, Spans], place: Place, span: Span) -> int:
    return offsets.get(place, Spans()).intersect(Spans((span,))).size


def _trace(groups: Sequence[Group]) -> str:
    """The command that shows what became of the first of the offsets."""
    for (topic, partition), spans in sorted(united(groups).items()):
        return f"`recon trace {shlex.quote(f'{topic}/{partition}/{spans.ranges[0].start}')}`"
    return "`recon trace TOPIC/PARTITION/OFFSET` of a record that should be there"


def _whole(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    codes = {code for group in groups for code in group.codes}
    if Code.SKIPPED in codes:
        yield LikelyCause(
            says="the query began with a new checkpoint, and writes with the txnAppId of the old one",
            because="Delta had a txnVersion as high as these batch_ids, and drops a write that is not above it",
            look=f"`recon explain --pipeline {shlex.quote(facts.pipeline)}`, then the txnAppId of the writes",
            then=f"give the writes and recon.yml a new txnAppId before the next start. {_read_once_more(facts)}",
        )
    elif groups[0].kind == "lost" and groups[0].harm == "missing" and facts.writer == "function":
        yield LikelyCause(
            says="the function returned without a write, or caught the error of its write",
            because="Spark finished the micro-batches, and the sink has nothing of them",
            look="the function that foreachBatch gets: `return`, `if` and `except` in front of the write or around it",
            then=f"let it raise the error, so that Spark tries again. {_read_once_more(facts)}",
        )
    elif groups[0].kind == "lost" and groups[0].harm == "missing":
        yield LikelyCause(
            says="the sink lost what it had taken in, or the checkpoint was moved on without a write",
            because="Spark finished the micro-batches, and the sink has nothing of them",
            look=f"in {facts.checkpoint or 'the checkpoint'}, the times of offsets/N and commits/N: a file that was "
            "made by hand or copied is younger, or of another owner",
            then=_read_once_more(facts),
        )


# -- a new epoch ------------------------------------------------------------------------------------------------------


def _read_again(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    epoch = common.epoch or 0
    earlier = max((each for each in facts.epochs if each < epoch), default=-1)
    now, before = facts.epochs.get(epoch), facts.epochs.get(earlier)
    entries = f"`recon ledger show {_where(facts)} --limit 20`"
    if now is None or before is None:
        yield _lost_checkpoint(f"a new epoch began: {_NEW_ID}", entries, facts)
    elif before.ended > now.began:
        yield LikelyCause(
            says="two queries, each with a checkpoint of its own, write into the sink",
            because=f"epoch {earlier} went on after epoch {epoch} had begun",
            look=f"{entries}: do both epochs go on? Then the list of running jobs",
            then=f"stop one of them. {_doubled(facts)}",
        )
    elif now.query_id == before.query_id:
        yield LikelyCause(
            says="an older copy of the checkpoint was put back, or files in it were removed",
            because=f"both epochs have the query_id {now.query_id}, so the file metadata was kept",
            look=f"{facts.checkpoint or 'the checkpoint'}: is a file of offsets/ or commits/ older than its folder?",
            then=f"leave the checkpoint as it is now: the next micro-batches go on behind it. {_doubled(facts)}",
        )
    else:
        ids = f"epoch {epoch} has the query_id {now.query_id}, epoch {earlier} {before.query_id}"
        yield _lost_checkpoint(f"{ids}: {_NEW_ID}", entries, facts)


def _lost_checkpoint(because: str, entries: str, facts: Facts) -> LikelyCause:
    return LikelyCause(
        says=_LOST_CHECKPOINT,
        because=because,
        look=f"{entries}, then whether checkpointLocation of the query is still {facts.checkpoint or 'the same'}",
        then=f"keep the checkpoint that the query has now: it goes on behind its own end. {_doubled(facts)}",
    )


def _planned_again(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    yield LikelyCause(
        says=_LOST_CHECKPOINT,
        because=f"the checkpoint has the query_id {facts.new_query}, and the ledger has no micro-batch of it",
        look=f"whether checkpointLocation of the query is still {facts.checkpoint}, and whether a copy of the old "
        "checkpoint is left",
        then="no row is there twice yet. Stop the query and put the old checkpoint back; where there is none, remove "
        f"this one, and start with the startingOffsets that `recon offsets {_where(facts)}` prints. The OVERLAP stays "
        "open, as it was planned: accept it then",
    )


def _doubled(facts: Facts) -> str:
    """How doubled rows are removed."""
    plan = f"`recon repair plan {_where(facts)}` lists what is there twice"
    if facts.writer == "hook":
        apply = f"`recon repair apply {_where(facts)}`"
        return f"{plan}, and {apply} removes all rows but one of each record, where the sink allows it"
    return (
        f"{plan}; recon does not change this sink: remove one row of each yourself, as by an overwrite with "
        "dropDuplicates over the columns of topic, partition and offset. The next audit calls that MUTATED, and still "
        "has the OVERLAP: accept these"
    )


def _passed_over(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    yield LikelyCause(
        says="the query got a new checkpoint and began at the end of the topic, or at offsets that were given",
        because="without a checkpoint Spark begins at startingOffsets, which is `latest` unless the query says another",
        look="the option startingOffsets of the query, and who deleted or moved the checkpoint",
        then=f"{_read_once_more(facts)}. Before the next new checkpoint, `recon offsets {_where(facts)}` prints the "
        "startingOffsets that lose and double nothing",
    )


# -- Kafka's log ------------------------------------------------------------------------------------------------------


def _before_log_start(common: Common, groups: Sequence[Group], facts: Facts) -> Iterator[LikelyCause]:
    lost = "These offsets cannot be read again: take their records from where they came from, or accept the findings"
    topics = sorted({f.topic for group in groups for f in group.findings if f.topic})
    yield LikelyCause(
        says="the query stood still, or was slower than its topics, for longer than Kafka keeps records",
        because="Kafka deletes the oldest records first, and the query had read up to the first of these",
        look=f"`recon ledger show {_where(facts)} --limit 20`: how long was there no micro-batch?",
        then=f"`recon advise --pipeline {shlex.quote(facts.pipeline)}` says what lets it keep up. {lost}",
    )
    yield LikelyCause(
        says="the topic's retention.ms or retention.bytes is too short",
        because="Kafka deletes by whichever of the two is reached first",
        look=f"`kafka-configs.sh --bootstrap-server {shlex.quote(facts.servers or 'SERVER')} --describe --all "
        f"--entity-type topics --entity-name {shlex.quote(topics[0] if topics else 'TOPIC')}`",
        then=f"raise it above the longest stop that you want to survive. {lost}",
    )
    yield LikelyCause(
        says="somebody deleted the records (kafka-delete-records.sh)",
        because="it moves the start of a log as retention does",
        look="the broker's log and its audit log, for DeleteRecords",
        then=lost,
    )


_CAUSES: Mapping[Shape, _Causes] = {
    "every_nth": _in_part,
    "part_of_each": _in_part,
    "one_partition": _in_part,
    "whole_micro_batches": _whole,
    "read_again": _read_again,
    "planned_again": _planned_again,
    "passed_over": _passed_over,
    "before_log_start": _before_log_start,
}
