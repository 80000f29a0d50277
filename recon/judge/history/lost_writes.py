"""What happened to recon's writes in a sink that is no Delta table, as a listing or the ends of a topic show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recon.judge.findings import Findings, named
from recon.model import Code, LedgerSlice, LostWrite, SinkLog, Unavailable
from recon.text import plural, some


def judge_changes(log: SinkLog, findings: Findings) -> None:
    """Adds findings for writes that are gone, for what others put there, and for what could not be looked at."""
    changes = log.changes
    if isinstance(changes, Unavailable):
        findings.add(
            Code.ATTESTED_ONLY,
            f"whether {log.location} still has what was written is not known: {changes.reason}",
        )
        return
    for writes in _runs(changes.lost):
        first, last = writes[0].stamp, writes[-1].stamp
        # Many at once, as where old folders are removed, are one finding to accept.
        alone = first is last
        who = named(first) if alone else f"{named(first)} to micro-batch {last.batch_id}"
        findings.add(
            Code.MUTATED,
            f"{log.location} no longer has all that {who} wrote: {writes[0].lacks}{'' if alone else ', and more'}; "
            "find out what changes it, and restore it from a copy",
            about="" if alone else who,
            head=first if alone else None,
            changed_by=(),
        )
    if changes.replaced:
        findings.add(
            Code.MUTATED,
            f"rows that were written are gone: {changes.replaced}; find out what changes it, and write them again",
            about=changes.replaced,
            changed_by=(),
        )
    if changes.foreign:
        findings.add(
            Code.UNSTAMPED,
            f"{log.location} has {plural(len(changes.foreign), 'file')} that no manifest names: "
            f"{some(changes.foreign)}; recon.read_batches does not read them, readers of the folder do: move them "
            "elsewhere",
        )


def lost_of(log: SinkLog | None, ledger: LedgerSlice) -> list[LostWrite]:
    """Writes of judged entries of which the sink no longer has everything."""
    if log is None or isinstance(log.changes, Unavailable) or not log.changes.lost:
        return []
    judged = {(head.epoch, head.batch_id) for head in ledger.heads[ledger.anchors :]}
    return [write for write in log.changes.lost if (write.stamp.epoch, write.stamp.batch_id) in judged]


def _runs(lost: Sequence[LostWrite]) -> Iterator[Sequence[LostWrite]]:
    """Writes of micro-batches that follow each other, together."""
    run: list[LostWrite] = []
    for write in lost:
        before = run[-1].stamp if run else None
        if before is not None and (write.stamp.epoch, write.stamp.batch_id) != (before.epoch, before.batch_id + 1):
            yield run
            run = []
        run.append(write)
    if run:
        yield run


__all__ = ["judge_changes", "lost_of"]
