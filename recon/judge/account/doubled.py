"""Offsets that the sink has in several rows, as far as rows or the log tell which these are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from recon.judge.history.table_history import TableHistory
from recon.judge.row_counts import Counts
from recon.judge.rows.sink_rows import SinkRows, TopicPartition
from recon.model import RowGroup
from recon.model.grouping import grouped
from recon.model.offsets import Span, depths

Doubled = tuple[str, int, int, int, int]  # topic, partition, start, end, rows of each offset


def doubled(counts: Counts, table: TableHistory | None, rows: SinkRows | None) -> tuple[list[Doubled], list[str]]:
    """The ranges whose offsets have several rows, and sentences on what is doubled somewhere."""
    if rows is None:
        return list(_committed_again(counts, table)), []
    groups = [group for where, of in rows.groups.items() if _is_one_topic(counts, where) for group in of]
    found = {**_searched(rows), **_several(groups)}
    unclear = [_unclear(group) for group in groups if group.rows % max(group.present.size, 1)]
    return [(*where, each) for where, each in sorted(found.items())], unclear


def _several(groups: Iterable[RowGroup]) -> dict[tuple[str, int, int, int], int]:
    """The rows of each offset by (topic, partition, start, end), as far as micro-batches have several of it."""
    deep = ((where, *span_depth) for where, of in _spans(groups).items() for span_depth in depths(of))
    return {(*where, *span): depth for where, span, depth in deep if depth > 1}


def _searched(rows: SinkRows) -> dict[tuple[str, int, int, int], int]:
    """The same of offsets that were looked for among all rows, other programs' among them."""
    return {
        (group.topic, group.partition, *span): group.rows // group.present.size
        for group in rows.rows.repeated
        for span in group.present
    }


def _is_one_topic(counts: Counts, where: TopicPartition) -> bool:
    """Whether all judged rows of a topic partition are of one topic: one that was created again has others."""
    stretches = counts.judged.get(where)
    return stretches is not None and stretches.incarnations == 1


def _spans(groups: Iterable[RowGroup]) -> Mapping[TopicPartition, Sequence[Span]]:
    """The offsets of rows by topic partition, as often as a group has rows of each."""
    times = ((group, max(group.rows // max(group.present.size, 1), 1)) for group in groups)
    return grouped(
        ((group.topic, group.partition), span)
        for group, several in times
        for span in group.present
        for _ in range(several)
    )


def _unclear(group: RowGroup) -> str:
    return (
        f"{group.topic}-{group.partition}: micro-batch {group.batch_id} has {group.rows:,} rows of "
        f"{group.present.size:,} offsets; which have several is not known"
    )


def _committed_again(counts: Counts, table: TableHistory | None) -> Iterator[Doubled]:
    """What a micro-batch read that several commits are of."""
    ledger, again = counts.ledger, table.committed_again if table is not None else {}
    for entry in counts.counted if again else ():
        head = ledger.heads[entry]
        if several := again.get((head.epoch, head.batch_id)):
            for read in ledger.ranges.of(entry):
                if read.span.size > 0:
                    yield read.topic, read.partition, *read.span, len(several)
