"""What rows go through between Kafka and the sink must be the same in a repair as it was in the query.

Entries of micro-batches name their transform, and the routes by which the rows were chosen. A transform may have been
renamed since, so that its newest name decides. Routes may have sent records elsewhere at the time: those of the
micro-batch that read the offsets decide, or of its neighbours where none did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recon.base.errors import ConfigError
from recon.base.lazy import np
from recon.base.text import some
from recon.model import EntryHead, LedgerSlice
from recon.model.ledger import named
from recon.model.offsets import OffsetSpan
from recon.model.wire.processing_signature import parts_of
from recon.project import Pipeline, Sink


def require_same(name: str, ledger: LedgerSlice, passed: str | None, spans: Iterable[OffsetSpan]) -> None:
    """Requires that these offsets can be read again through `passed`.

    Args:
        name: of the sink, in messages.
        ledger: its whole ledger.
        passed: what the rows of the repair go through, as entries name it.
        spans: the offsets to read again.

    Raises:
        ConfigError: the query's rows went through something else, or what they went through is not known.
    """
    told = [head for head in ledger.heads if _tells(head)]
    if not told:
        raise ConfigError(
            f"{name}: every entry of the ledger was restored, so which transform the rows went through is not "
            "known: give the query's transform, and other_transform (--other-transform)"
        )
    transform, routes = parts_of(passed)
    theirs = parts_of(told[-1].transform)[0]
    if not _is_same(transform, theirs):
        ledger_says = "no transform" if theirs is None else f"the transform {theirs}"
        given = "none was given" if transform is None else f"{transform} was given"
        raise ConfigError(
            f"{name}: the ledger says that rows went through {ledger_says}, and {given}; give the query's own, or "
            "where it is the same under another name, other_transform (--other-transform)"
        )
    for head in (head for span in spans for head in _around(ledger, span) or told):
        of_entry = parts_of(head.transform)[1]
        if of_entry != routes:
            chosen = _named(of_entry, " that it names")
            raise ConfigError(
                f"{name}: the ledger says that rows of {named(head)} were chosen by {chosen}, and recon.yml has "
                f"{_named(routes)}, which may send these records to other sinks: repair with the routes of that time, "
                "or where they send these records to the same sinks, with other_transform (--other-transform)"
            )


def require_route(name: str, ledger: LedgerSlice, pipeline: Pipeline, sink: Sink) -> None:
    """Requires that the routes of recon.yml lead to the sink, where routes chose its rows; arguments as above.

    Raises:
        ConfigError: they do not any more, so that a repair cannot tell which records are the sink's.
    """
    if pipeline.routes is None or sink.name in pipeline.routes.sinks:
        return
    told = [head for head in ledger.heads if _tells(head)]
    if told and parts_of(told[-1].transform)[1] is not None:
        raise ConfigError(
            f"{name}: routes chose its rows, and those of recon.yml lead to {some(pipeline.routes.sinks)}: which "
            "records are its own is not known, so nothing is read again; put its route back into recon.yml for the "
            "repair, or where other routes have the records since it was removed, accept the findings"
        )


def _tells(head: EntryHead) -> bool:
    """Whether an entry tells what its rows went through."""
    return head.is_micro_batch and head.status in ("committed", "already_committed")


def _around(ledger: LedgerSlice, span: OffsetSpan) -> Sequence[EntryHead]:
    """The entries that read any of these offsets; where none did, the one before them and the one behind."""
    ranges, tells = ledger.ranges, np.array([_tells(head) for head in ledger.heads], np.bool_)
    topics = [i for i, (_, topic, _) in enumerate(ranges.topics) if topic == span.topic]
    mine = np.isin(ranges.topic, topics) & (ranges.partition == span.partition) & (ranges.end > ranges.start)
    mine &= tells[ranges.entry]
    entry, start, end = ranges.entry[mine], ranges.start[mine], ranges.end[mine]
    chosen = entry[(end > span.start_offset) & (start < span.end_offset)].tolist()
    if not chosen:
        before, behind = end <= span.start_offset, start >= span.end_offset
        chosen += entry[before][end[before] == end[before].max()].tolist() if before.any() else []
        chosen += entry[behind][start[behind] == start[behind].min()].tolist() if behind.any() else []
    return [ledger.heads[i] for i in chosen]


def _named(routes: str | None, which: str = "") -> str:
    return f"no routes{which}" if routes is None else f"routes with the hash {routes}"


def _is_same(mine: str | None, theirs: str | None) -> bool:
    """Whether two names are of one transform; one of a job that ran as a script has the module __main__."""
    if mine is None or theirs is None or mine == theirs:
        return mine == theirs
    (my_module, _, my_function), (their_module, _, their_function) = mine.rpartition(":"), theirs.rpartition(":")
    return my_function == their_function and "__main__" in (my_module, their_module)
