"""The checkpoint witness: Structured Streaming's own files about each micro-batch.

`metadata` holds the query_id, `offsets/<N>` the end offsets planned for micro-batch N; `commits/<N>` exists when N is
finished. `sources/<i>/0` holds the offsets at which source i began, `state/<i>` the state of stateful operator i.

Formats, from Spark's sources:

- `offsets/<N>`, v1 (`OffsetSeqLog`): a line `v1`, then a line of JSON metadata (`batchTimestampMs`, …). Then one line
  per source in the order of the query plan, `-` for a source that has no offset yet.
- `offsets/<N>`, v2 (`OffsetMap`, Spark 4.2 where `spark.sql.streaming.offsetLog.formatVersion` is 2): a line `v2`, the
  metadata line, then lines `<source id>:<offset>` in no promised order. The id is the source's number, or its name
  where sources are named. Named sources get the numbers after the numbered ones, in the order of their names.
- `commits/<N>`: v1; v2 has the ids of state stores (Spark 4.0), v3 the names of sinks (Spark 4.2). Only that
  it is there counts.
- `sources/<i>/0` (`KafkaSourceInitialOffsetWriter`): a NUL byte, `v1`, a newline, `{"topic":{"0":start}}`.
- A source that is a Delta table (`DeltaSourceOffset`): `{"sourceVersion":1,"reservoirId":<table id>,
  "reservoirVersion":7,"index":-1,"isStartingVersion":false}`. `index` is the last file read of the version, below 0 for
  none; `isStartingVersion` says that the file is of the snapshot with which a new query begins. No file names that
  snapshot (`DeltaSource.extractStartingState`). It is of the version in the first offset; of the version before, where
  that offset is past the snapshot. recon.model.delta_offsets makes offsets of them.
- A source that is a folder of files (`FileStreamSourceOffset`): `{"logOffset":7}` is the newest entry of its log in
  `sources/<i>`, -1 for none. recon.witness.source_files reads that log.

Spark keeps the last 100 or so micro-batches (`spark.sql.streaming.minBatchesToRetain`), so the oldest one
left usually has no predecessor and therefore no known start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import pairwise
from typing import Any

from recon.base.errors import EvidenceError
from recon.base.storage import Storage
from recon.model import CheckpointBatch, CheckpointFlaw, CheckpointWitness, file_offsets
from recon.model.delta_offsets import FILES_AT_MOST, VERSIONS_AT_MOST, is_delta, offset_of, topic_of
from recon.model.file_offsets import is_files
from recon.model.offsets import OffsetSpan
from recon.model.positions import id_in
from recon.model.wire.values import TwiceError, loads, required_time, whole

_OFFSETS_END = 2**63
_PARTITION = re.compile(r"[0-9]{1,10}")
_BATCH = re.compile(r"0|[1-9][0-9]{0,17}")
# What helps where there is no copy of the newest file: Spark does not start with it as it is.
_PLAN_ANEW = (
    "restore the file from a copy; else, if the sink has nothing of this micro-batch, remove the file: Spark starts "
    "again, and plans the micro-batch anew"
)
_FINISH_ANEW = (
    "restore the file from a copy; else remove it: Spark starts again, and gives the sink the micro-batch once more, "
    "which a function without txnVersion writes again"
)
# topic → partition → offset, as Kafka's source writes it
_Offsets = Mapping[str, Mapping[int, int]]
_Begin = tuple[int, str, int, int]  # source, topic, partition and offset


@dataclass(frozen=True)
class _Planned:
    """One offsets file: per source id its offsets; None for `-` and for sources that recon does not know."""

    batch_id: int
    version: str
    planned_at: datetime | None
    sources: Mapping[str, _Offsets | None]
    others: frozenset[str] = frozenset()  # sources whose offset recon does not know


class _FlawError(EvidenceError):
    """A file that is empty, or that names something twice: one of the two is not what Spark planned."""

    problem = ""


def query_id(storage: Storage) -> str:
    """The streaming query's id, which survives restarts (`metadata`: `{"id":"…"}`).

    Raises:
        EvidenceError: there is no checkpoint here, or its metadata file is not readable JSON with an id.
    """
    raw = storage.find("metadata")
    if raw is None:
        names = sorted(storage.names())[:5]
        raise EvidenceError(
            f"checkpoint {storage.uri} has no metadata file (found {', '.join(names) or 'nothing'}): check "
            "the path, or start the query once: it writes this file when it first starts"
        )
    document = _json(storage, "metadata", raw)
    value = document.get("id") if isinstance(document, dict) else None
    if not isinstance(value, str) or not value:
        raise _broken(storage, "metadata", f'expected {{"id":"…"}} and found {_excerpt(raw)}')
    return value


def is_stateful(storage: Storage) -> bool:
    """Whether the query keeps state: one that has no stateful operator has no state of partitions."""
    return any(_PARTITION.fullmatch(name) for name in storage.names("state"))


def read(storage: Storage, *, topics_are_kafka: bool = True, positions: bool = False) -> CheckpointWitness:
    """Every micro-batch in the checkpoint, ascending.

    A range may end below its start: Spark plans it so for a topic that was re-created and is shorter now.

    Args:
        storage: the checkpoint's folder.
        topics_are_kafka: False gives micro-batches without ranges, for a query whose sources write offsets
            that only look like Kafka's topic → partition → offset.
        positions: whether positions in Delta tables and in the logs of file sources are offsets; without it such a
            source has no ranges. A query's first micro-batch does not say where it begins in a table, which is then
            new in it.

    What is missing between other files, empty or named twice is in `flaws`.

    Raises:
        EvidenceError: no checkpoint here, or a file of it is torn, of an unknown version or not JSON;
            the message names the file.
    """
    query = query_id(storage)
    commits = _commits(storage)
    flaws: list[CheckpointFlaw] = []
    plans: dict[int, _Planned] = {}
    listed = sorted(_batch_ids(storage.names("offsets")))
    for batch_id in listed:
        try:
            plan = _planned(storage, batch_id, kafka=topics_are_kafka, positions=positions)
        except _FlawError as error:
            anew = batch_id == listed[-1] and batch_id not in commits
            flaws.append(CheckpointFlaw(batch_id, error.problem, _PLAN_ANEW if anew else CheckpointFlaw.step))
            continue
        if plan is not None:  # else purged by the running query after the listing
            plans[batch_id] = plan
    # Spark writes commits/N before offsets/N+1: what was finished meanwhile is in a later listing.
    unfinished = plans.keys() - commits.keys() - {max(plans, default=0)}
    later = _commits(storage) if unfinished else {}
    commits |= {batch_id: later[batch_id] for batch_id in unfinished & later.keys()}
    flaws += _holes(storage, list(plans), commits, {flaw.batch_id for flaw in flaws})
    _same_kinds(storage, plans)
    names = sorted({source for plan in plans.values() for source in plan.sources}, key=_source_order)
    index = _indexes(names)
    initial = cache(partial(_initial_offsets, storage))
    batches = [
        _batch(storage, plan, plans.get(batch_id - 1), initial, index, committed=batch_id in commits)
        for batch_id, plan in plans.items()
    ]
    return CheckpointWitness(
        location=storage.uri,
        query_id=query,
        batches=batches,
        sources=max(len(names), 1),
        stateful=is_stateful(storage),
        flaws=sorted(flaws, key=lambda flaw: flaw.batch_id),
        begins=tuple(_beginning(initial, index)) if topics_are_kafka and 0 not in plans else (),
    )


def _beginning(initial: Callable[[str], _Offsets | None], index: Mapping[str, int]) -> Iterator[_Begin]:
    """Where the sources of Kafka began, for a checkpoint whose first plans are gone."""
    for source, number in index.items():
        try:
            begins = initial(source) or {}
        except EvidenceError:
            continue  # of another kind, or damaged: nothing else needs it
        yield from ((number, topic, partition, at) for topic, of in begins.items() for partition, at in of.items())


def _commits(storage: Storage) -> dict[int, int]:
    """The sizes of the commit files, by batch_id."""
    sizes = storage.sizes("commits")
    return {batch_id: sizes[str(batch_id)] for batch_id in _batch_ids(sizes)}


def _holes(
    storage: Storage, planned: Sequence[int], commits: Mapping[int, int], twice: Collection[int]
) -> Iterator[CheckpointFlaw]:
    """Files that are missing between others, and emptied commit files.

    Spark removes old files from the low end, and a micro-batch that is being written has no commit yet: neither is a
    hole. Asynchronous progress tracking, which leaves files out, is not possible with foreachBatch.
    """
    kept = sorted({*planned, *twice})
    for before, after in pairwise(kept):
        if after > before + 1:
            names = _numbered("offsets", before + 1, after - 1)
            yield CheckpointFlaw(
                before + 1,
                f"checkpoint {storage.uri} has no {names}, though it has offsets/{before} and offsets/{after}",
            )
    newest = max(commits, default=-1)
    if kept and newest > kept[-1]:
        names = _numbered("offsets", kept[-1] + 1, newest)
        yield CheckpointFlaw(kept[-1] + 1, f"checkpoint {storage.uri} has no {names}, though it has commits/{newest}")
    for batch_id in kept[:-1]:
        if batch_id not in commits:
            yield CheckpointFlaw(
                batch_id,
                f"checkpoint {storage.uri} has no commits/{batch_id}, though Spark planned later micro-batches",
            )
    for batch_id, size in commits.items():
        if not size and kept and batch_id >= kept[0]:
            step = _FINISH_ANEW if batch_id == kept[-1] else CheckpointFlaw.step
            yield CheckpointFlaw(batch_id, f"checkpoint file {storage.uri}/commits/{batch_id} is empty", step)


def _numbered(folder: str, first: int, last: int) -> str:
    return f"{folder}/{first}" if first == last else f"{folder}/{first} to {folder}/{last}"


def _same_kinds(storage: Storage, plans: Mapping[int, _Planned]) -> None:
    """Raises where a source has Kafka's offsets in one file and something else in another."""
    of_kafka = {source: id_ for id_, plan in plans.items() for source, at in plan.sources.items() if at is not None}
    for batch_id, plan in plans.items():
        for source in plan.others & of_kafka.keys():
            raise _broken(
                storage,
                f"offsets/{batch_id}",
                f"source {source} has no offsets there that recon knows, and has such in offsets/{of_kafka[source]}",
            )


def read_batch(storage: Storage, batch_id: int, *, positions: bool = False) -> CheckpointBatch:
    """One planned micro-batch with at most a few small reads and no listing, for use while it runs.

    `committed` is always False: inside foreachBatch the commit file cannot exist yet, so it is not read. `tables` is as
    in `read`.

    Raises:
        EvidenceError: `offsets/<batch_id>` is missing, or a file needed here cannot be understood.
    """
    plan = _planned(storage, batch_id, positions=positions)
    if plan is None:
        raise EvidenceError(
            f"checkpoint {storage.uri} has no offsets/{batch_id}: micro-batch {batch_id} was never planned "
            "there or its file was purged; check that this is the checkpointLocation of the running query"
        )
    previous = _planned(storage, batch_id - 1, positions=positions) if batch_id > 0 else None
    index = _indexes(sorted(plan.sources, key=_source_order))
    return _batch(storage, plan, previous, partial(_initial_offsets, storage), index, committed=False)


def planned_ends(storage: Storage, batch_id: int, *, positions: bool = False) -> Sequence[tuple[int, str, int, int]]:
    """Where a planned micro-batch ends: source, topic, partition and end offset, whether its start is known or not.

    `positions` is as in `read`.

    Raises:
        EvidenceError: `offsets/<batch_id>` cannot be understood.
    """
    plan = _planned(storage, batch_id, positions=positions)
    sources = {} if plan is None else plan.sources
    index = _indexes(sorted(sources, key=_source_order))
    return sorted(
        (index[source], topic, partition, end)
        for source, ends in sources.items()
        for topic, partitions in (ends or {}).items()
        for partition, end in partitions.items()
    )


def _batch(
    storage: Storage,
    plan: _Planned,
    previous: _Planned | None,
    initial: Callable[[str], _Offsets | None],
    index: Mapping[str, int],
    *,
    committed: bool,
) -> CheckpointBatch:
    if previous is not None:
        _same_sources(storage, previous, plan)
    ranges: list[OffsetSpan] = []
    new: list[tuple[int, str, int, int]] = []
    starts_known = True
    for source, ends in plan.sources.items():
        if ends is None:
            continue
        starts = previous.sources.get(source) if previous is not None else None
        first = starts is None and (plan.batch_id == 0 or previous is not None)  # its first micro-batch with an offset
        if first:
            starts = _begins(ends) or initial(source)
        if starts is None:
            starts_known = False
            continue
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                start = starts.get(topic, {}).get(partition)
                if start is None:
                    new.append((index[source], topic, partition, end))
                else:
                    ranges.append(OffsetSpan(topic, id_in(topic), partition, start, end, index[source]))
    ranges.sort(key=lambda r: (r.source, r.topic, r.partition))
    return CheckpointBatch(
        batch_id=plan.batch_id,
        planned_at=plan.planned_at,
        committed=committed,
        ranges=tuple(ranges),
        new_partitions=tuple(sorted(new)),
        starts_known=starts_known,
    )


def _begins(ends: _Offsets) -> _Offsets:
    """Where a source that is not Kafka's begins, by topic; none of a table, which only the query's options tell."""
    return {topic: {0: 0} if is_files(topic) else {} for topic in ends if is_files(topic) or is_delta(topic)}


def _same_sources(storage: Storage, before: _Planned, after: _Planned) -> None:
    """Raises where two v1 files differ in the number of sources: a v1 file always has a line for every source."""
    if before.version == after.version == "v1" and len(before.sources) != len(after.sources):
        short, other = sorted((before, after), key=lambda plan: len(plan.sources))
        raise _broken(
            storage,
            f"offsets/{short.batch_id}",
            f"it has {len(short.sources)} source line(s), offsets/{other.batch_id} {len(other.sources)}",
        )


def _initial_offsets(storage: Storage, source: str) -> _Offsets | None:
    name = f"sources/{source}/0"
    raw = storage.find(name)
    if raw is None:
        return None
    # The leading NUL is a relic of Spark 2.1; its reader still skips one byte when it sees it.
    version, newline, body = raw.removeprefix(b"\0").partition(b"\n")
    _check_version(storage, name, version, ("v1",))
    if not newline or not body.strip():
        raise _broken(storage, name, "the offsets are missing after the version line")
    offsets = _kafka_or_broken(storage, name, _json(storage, name, body))
    if offsets is None:
        raise _broken(storage, name, f'expected {{"topic":{{"partition":offset}}}} and found {_excerpt(body)}')
    return offsets


def _planned(storage: Storage, batch_id: int, *, kafka: bool = True, positions: bool = False) -> _Planned | None:
    """The plan of a micro-batch; None where there is no file of it."""
    name = f"offsets/{batch_id}"
    raw = storage.find(name)
    if raw is None:
        return None
    try:
        lines = raw.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _broken(storage, name, f"it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    version = _check_version(storage, name, lines[0].encode(), ("v1", "v2"))
    if len(lines) < 3:
        raise _broken(storage, name, f"{len(lines)} line(s) where version, metadata and sources are expected")
    sources: dict[str, _Offsets | None] = {}
    others: set[str] = set()
    for position, line in enumerate(lines[2:]):
        source, text = str(position), line
        if version == "v2":
            source, colon, text = line.partition(":")
            if not colon or not source:
                raise _broken(storage, name, f"line {position + 3} is not `source:offset` but {_excerpt(line)}")
        if source in sources:
            raise _flaw(storage, name, f"source {source} has two lines")
        if text == "-":
            sources[source] = None
            continue
        document = _json(storage, name, text, line=position + 3)
        if positions and _is_of_delta(document):
            offset = _delta_offset(storage, name, document, text)
            sources[source] = {topic_of(document["reservoirId"]): {0: offset}}
        elif positions and _is_of_files(document):
            # The number is that of an entry that was read; -1 is before the first.
            sources[source] = {file_offsets.topic_of(query_id(storage)): {0: document["logOffset"] + 1}}
        else:
            sources[source] = _kafka_or_broken(storage, name, document) if kafka else None
        if sources[source] is None:
            others.add(source)
    return _Planned(batch_id, version, _planned_at(storage, name, lines[1]), sources, frozenset(others))


def _is_of_delta(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("reservoirId"), str) and bool(document["reservoirId"])


def _is_of_files(document: Any) -> bool:
    if not isinstance(document, dict) or document.keys() != {"logOffset"}:
        return False
    number = document["logOffset"]
    return type(number) is int and -1 <= number < _OFFSETS_END - 1


def _delta_offset(storage: Storage, name: str, document: Mapping[str, Any], text: str) -> int:
    """The offset of a position in a Delta table; raises where it is none that Spark knows how to write."""
    try:
        version, index = whole(document["reservoirVersion"], 0), whole(document["index"])
        in_snapshot = document["isStartingVersion"]
        if not isinstance(in_snapshot, bool) or whole(document["sourceVersion"]) not in (1, 3):
            raise ValueError
        if version >= VERSIONS_AT_MOST or index >= FILES_AT_MOST - 1:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise _broken(storage, name, f"this is no position in a Delta table: {_excerpt(text)}") from None
    # Below 0 are the beginning of a version and changes of its schema, both before its first file.
    return offset_of(version, max(index + 1, 0), in_snapshot=in_snapshot)


def _planned_at(storage: Storage, name: str, line: str) -> datetime | None:
    if not line.strip():
        return None
    document = _json(storage, name, line, line=2)
    if not isinstance(document, dict):
        raise _broken(storage, name, f"line 2 is not the micro-batch's metadata but {_excerpt(line)}")
    millis = document.get("batchTimestampMs")
    if millis is None or millis == 0:
        return None
    try:
        return required_time(whole(millis, 0))
    except (TypeError, ValueError, OverflowError, OSError):
        raise _broken(storage, name, f"its batchTimestampMs is no time but {_excerpt(str(millis))}") from None


def _kafka(document: Any) -> _Offsets | None:
    """The document as Kafka's topic → partition → offset; None when it is another source's offset."""
    if not isinstance(document, dict):
        return None
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            return None
        offsets[topic] = {}
        for partition, offset in partitions.items():
            if not _PARTITION.fullmatch(partition) or type(offset) is not int:
                return None
            offsets[topic][int(partition)] = offset
    return offsets


def _kafka_or_broken(storage: Storage, name: str, document: Any) -> _Offsets | None:
    """The same, and an error where a document that is Kafka's holds an offset that Kafka cannot have."""
    offsets = _kafka(document)
    for topic, partitions in (offsets or {}).items():
        for partition, offset in partitions.items():
            if not 0 <= offset < _OFFSETS_END:
                raise _broken(storage, name, f"topic {topic}, partition {partition} has the offset {offset!r:.40}")
    return offsets


def _batch_ids(names: Iterable[str]) -> list[int]:
    """The micro-batches a log folder holds; `.0.crc`, `.0.<uuid>.tmp` and the like are no log entries."""
    return [int(name) for name in names if _BATCH.fullmatch(name)]


def _source_order(source: str) -> tuple[int, int, str]:
    return (0, int(source), "") if _PARTITION.fullmatch(source) else (1, 0, source)


def _indexes(ordered: list[str]) -> dict[str, int]:
    """Source ids as the integers of `OffsetSpan.source`: numbers are kept, names get the following numbers."""
    numbers = [int(s) for s in ordered if _PARTITION.fullmatch(s)]
    names = [s for s in ordered if not _PARTITION.fullmatch(s)]
    first = max(numbers, default=-1) + 1
    return {str(n): n for n in numbers} | {name: first + i for i, name in enumerate(names)}


def _check_version(storage: Storage, name: str, found: bytes, known: tuple[str, ...]) -> str:
    text = found.decode(errors="replace").strip()
    if text in known:
        return text
    if not text:
        raise _flaw(storage, name, "it is empty")
    raise _broken(storage, name, f"its first line is {_excerpt(found)} where {' or '.join(known)} is expected")


def _json(storage: Storage, name: str, text: bytes | str, *, line: int | None = None) -> Any:
    where = f"line {line}" if line else "its content"
    try:
        return loads(text)
    except TwiceError as error:
        raise _flaw(storage, name, f"{where} {error}: {_excerpt(text)}") from None
    except ValueError as error:
        raise _broken(storage, name, f"{where} is not JSON ({error}): {_excerpt(text)}") from None


def _excerpt(text: bytes | str) -> str:
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    return repr(plain if len(plain) <= 80 else plain[:77] + "…")


def _flaw(storage: Storage, name: str, problem: str) -> _FlawError:
    error = _FlawError(str(_broken(storage, name, problem)))
    error.problem = f"checkpoint file {storage.uri}/{name}: {problem}"
    return error


def _broken(storage: Storage, name: str, problem: str) -> EvidenceError:
    return EvidenceError(
        f"checkpoint file {storage.uri}/{name} cannot be understood: {problem}; it is torn, or written by a "
        "Spark that this recon does not know: restore the file, or leave the checkpoint out of the audit"
    )
