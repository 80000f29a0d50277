"""What a repair can do for each kind of sink, from its keys in recon.yml alone. No I/O.

Where rows are appended, an offset without a row is missing, and the rows say so. Where later rows replace earlier ones,
rows say nothing: there the sink's own record tells which offsets were read, and a record that is read late must not
replace the row of a later one.
"""

from __future__ import annotations

from dataclasses import dataclass

from recon.project import Sink
from recon.project.jdbc import parse_url
from recon.project.sinks import DeltaMergeSink, DeltaSink, FileSink, JdbcAppendSink, JdbcUpsertSink, KafkaSink

_AGAIN = (
    "read the ranges once more through the hook, with a checkpoint of its own, the startingOffsets listed here and "
    "on_new_epoch: warn"
)
_OLD_OVER_NEW = "so a repair could put an older record in place of a newer row"
_REPLACED = (
    "rows of this sink are replaced by later ones, so which of these offsets was lost is not known: look the keys up "
    "in Kafka, correct the rows, then accept the finding"
)
_ONE_ROW = (
    "the sink has one row of a key however often a record is merged, so there is no row to remove: where newer_wins or "
    "the order of the offsets decided, the rows are right; accept the finding"
)


@dataclass(frozen=True, kw_only=True)
class Ability:
    """What a repair can do for a sink; each text is the reason why it cannot, "" where it can.

    Attributes:
        refused: why it does nothing at all.
        only_unread: why offsets that a micro-batch read, and that have no row, are not read again.
        no_removal: why no doubled rows are removed.
        reads: what else there is to know of offsets that are read again, as the end of a sentence.
    """

    refused: str = ""
    only_unread: str = ""
    no_removal: str = ""
    reads: str = ""


def ability(sink: Sink) -> Ability:
    """What a repair can do for a sink of recon.yml."""
    if isinstance(sink, DeltaSink):
        return Ability()
    if isinstance(sink, DeltaMergeSink):
        return Ability(refused=_order_of_merge(sink), only_unread=_REPLACED, no_removal=_ONE_ROW)
    if isinstance(sink, JdbcUpsertSink):
        return Ability(refused=_order_of_upsert(sink), only_unread=_REPLACED, no_removal=_ONE_ROW)
    if isinstance(sink, JdbcAppendSink):
        return _of_append(sink)
    if isinstance(sink, KafkaSink):
        return _of_topic(sink)
    if isinstance(sink, FileSink):
        return _of_files(sink)
    return Ability(refused=f"a repair writes no sinks of kind {sink.kind}: {_AGAIN}")


def _of_topic(sink: KafkaSink) -> Ability:
    if not sink.transactional:
        key = "mode: at_least_once" if sink.mode == "at_least_once" else "stamp_source_offsets: false"
        return Ability(
            refused=f"it has {key}, so nothing records its writes, and a repair that is interrupted could not tell "
            f"what it wrote: {_AGAIN}"
        )
    return Ability(
        only_unread="retention takes records out of a topic, so which of these offsets was lost is not known: "
        f"{_AGAIN}; consumers then see those that are there a second time",
        no_removal="a record of a topic cannot be taken back, so a repair removes none: let consumers keep one of each "
        "source offset, which is in its headers, then accept the finding",
        reads="; consumers get them behind records of later offsets",
    )


def _of_files(sink: FileSink) -> Ability:
    if sink.mode != "replace":
        return Ability(
            refused="it has mode: append, so nothing records its writes, and a repair that is interrupted could not "
            f"tell what it wrote: {_AGAIN}"
        )
    return Ability(
        no_removal="rows of several files cannot be taken out in one step, so a repair removes none: let readers keep "
        "one row of each offset, or write the rows into another target without the others; then accept the finding"
    )


def _of_append(sink: JdbcAppendSink) -> Ability:
    if not sink.guard:
        return Ability(
            refused="it has guard: false, so the database keeps no record of its writes, and a repair that is "
            f"interrupted could not tell what it wrote: {_AGAIN}"
        )
    product = parse_url(sink.connection["url"]).product
    if product not in ("postgresql", "mariadb", "mysql"):
        return Ability(
            no_removal=f"recon removes no rows of {product}: keep one row of each offset, that of the micro-batch "
            "whose entry accounts for it, and audit with --full"
        )
    return Ability()


def _order_of_merge(sink: DeltaMergeSink) -> str:
    """Why a record that is read late could replace a newer row of a MERGE."""
    set_ = {key: getattr(sink, key) for key in ("delete_when", "insert_when", "update_when")}
    conditions = [key for key, condition in set_.items() if condition is not None]
    if conditions:
        return _decided_by(conditions[0])
    if sink.order_by and sink.newer_wins is None and sink.scd2 is None:
        return _decided_by("order_by")
    return ""


def _order_of_upsert(sink: JdbcUpsertSink) -> str:
    if sink.update is not None:
        return _decided_by("update")
    if sink.order_by and sink.newer_wins is None:
        return _decided_by("order_by")
    return ""


def _decided_by(key: str) -> str:
    why = {
        "delete_when": "a deleted key leaves no trace in the table, so a record from before its deletion would be "
        "inserted again",
        "order_by": "it ranks rows within a micro-batch alone, and between two the later one wins",
        "update": "of the other columns a row keeps the values of the record that came first",
    }
    reason = why.get(key, "what becomes of a record depends on the row that is there when it comes")
    return (
        f"it has {key}: {reason}, {_OLD_OVER_NEW}: compare the keys of these offsets with the table, correct the rows, "
        "then accept the finding"
    )
