"""Verifies the hash chain of a ledger slice; for `ledger_integrity`, `recon ledger verify`, the compliance report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from recon.base.text import plural, some
from recon.model.evidence import ReconStamp
from recon.model.ledger import EntryHead, LedgerSlice, named
from recon.model.result import Code, Finding

# Operations that append, or that leave the rows as they are: a ledger needs no other.
_LAWFUL = re.compile(
    r"WRITE|CREATE TABLE( AS SELECT)?|OPTIMIZE|VACUUM (START|END)|(UN)?SET TBLPROPERTIES|UPGRADE PROTOCOL|"
    r"ADD (COLUMNS?|CONSTRAINT|FEATURE)|SET (TABLE|COLUMN).*|CHANGE COLUMN|CLUSTER BY|COMPUTE STATS.*|",
    re.IGNORECASE,
)


def verify(ledger: LedgerSlice) -> list[Finding]:
    """Entries that were edited, removed or stored twice, changes of the table, and entries that were restored.

    An entry is edited when its content does not give its own hash (`LedgerSlice.broken`). An entry is removed when its
    successor's `prev_hash` is the hash of no entry before, or its `sequence` is missing.
    """
    return [
        Finding(pipeline=ledger.pipeline, sink=ledger.sink, **finding)
        for part in (_hashes, _links, _operations, _restored)
        for finding in part(ledger)
    ]


def is_lawful(operation: str) -> bool:
    """Whether an operation on one of the ledger's tables appends, or leaves the rows as they are."""
    return bool(_LAWFUL.fullmatch(operation.strip())) or operation.strip().upper() == "WRITE APPEND"


def _finding(code: Code, message: str, head: EntryHead | None = None, about: str | None = None) -> dict[str, Any]:
    place = {} if head is None else {"batch_id": head.batch_id, "epoch": head.epoch}
    return {"code": code, "message": message, "about": about, **place}


def _hashes(ledger: LedgerSlice) -> Iterator[dict[str, Any]]:
    for entry in ledger.broken:
        head = ledger.heads[entry]
        commit = f"version {head.sink_version} of the sink" if head.sink_version is not None else "its commit"
        yield _finding(
            Code.TAMPERED,
            f"the ledger entry of {named(head)}, committed {head.committed_at:%Y-%m-%d %H:%M:%S}Z, does not match its "
            f"own entry_hash: it was edited; compare it with the user_metadata of {commit}",
            head,
        )


def _links(ledger: LedgerSlice) -> Iterator[dict[str, Any]]:
    heads = ledger.heads
    seen: dict[str, int] = {}
    followed: dict[str, int] = {}
    for i, head in enumerate(heads):
        if i < ledger.anchors - 1:
            seen[head.entry_hash] = i  # an earlier epoch's end: nothing here need follow it
            continue
        if head.entry_hash in seen:
            yield _finding(
                Code.UNUSUAL,
                f"the ledger entry of {named(head)} is stored twice: the same append was made again",
                head,
            )
            continue
        twin = followed.get(head.prev_hash)
        if twin is not None:
            yield _finding(
                Code.UNUSUAL,
                f"the ledger entries of {named(heads[twin])} and {named(head)} follow the same entry: two queries "
                "wrote this sink at the same time; make sure that only one of them runs",
                head,
            )
        elif i == 0 or i == ledger.anchors - 1:
            if ledger.complete and head.prev_hash:
                yield _finding(
                    Code.TAMPERED,
                    f"the chain begins with {named(head)}, which follows an entry that is not there: the first "
                    "entries were removed from the ledger",
                    head,
                )
            elif ledger.complete and head.sequence != 1 and i not in ledger.broken:
                yield _misnumbered(head, None)
        elif head.prev_hash not in seen:
            yield _finding(
                Code.TAMPERED,
                f"the ledger entry of {named(head)} does not follow the entry of {named(heads[i - 1])} that stands "
                "before it: an entry between them was removed, or one of the two was changed; `recon ledger rebuild` "
                "restores what the sink's own record still holds",
                head,
            )
        else:
            before = seen[head.prev_hash]
            # A number that was edited breaks the seal: that is found already.
            if head.sequence != heads[before].sequence + 1 and not {before, i} & {*ledger.broken}:
                yield _misnumbered(head, heads[before])
        followed.setdefault(head.prev_hash, i)
        seen[head.entry_hash] = i


def _misnumbered(head: EntryHead, before: EntryHead | None) -> dict[str, Any]:
    """An entry whose sequence is not the one after that of the entry it follows, though its hashes are right."""
    after = "is the chain's first" if before is None else f"follows that of {named(before)}, number {before.sequence}"
    return _finding(
        Code.TAMPERED,
        f"the ledger entry of {named(head)} has number {head.sequence} in the chain and {after}: entries were removed "
        "from the chain's end before it was written, or the chain was rewritten; `recon ledger rebuild` restores what "
        "the sink's own record still holds",
        head,
    )


def verify_stamps(ledger: LedgerSlice, stamps: Sequence[ReconStamp]) -> list[Finding]:
    """Commits of the sink that follow an entry which a whole chain does not hold; `stamps` are the oldest first.

    Each commit has the hash of the entry that was the chain's newest when it was written; nobody can change it without
    changing the table. A chain that was restored from the sink has other hashes, which is no finding.
    """
    if not ledger.complete:
        return []
    hashes = {head.entry_hash for head in ledger.heads}
    restored = {(head.epoch, head.batch_id) for head in ledger.heads if head.status == "rebuilt"}
    return [
        Finding(
            code=Code.TAMPERED,
            message=f"the commit of {named(stamp)} in the sink follows the ledger entry {stamp.prev_hash[:12]}…, which "
            "the ledger does not hold: entries were removed, the chain was rewritten, or an older copy was put in its "
            "place; restore the ledger from a copy, or run `recon ledger rebuild`",
            pipeline=ledger.pipeline,
            sink=ledger.sink,
            batch_id=stamp.batch_id,
            epoch=stamp.epoch,
        )
        for before, stamp in pairwise(stamps)
        if stamp.prev_hash and stamp.prev_hash not in hashes and (before.epoch, before.batch_id) not in restored
    ]


def _operations(ledger: LedgerSlice) -> Iterator[dict[str, Any]]:
    return unlawful(ledger.operations)


def unlawful(operations: Iterable[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    """The fields of a finding for each (version, operation) of the ledger's table that changed or removed entries."""
    for version, operation in operations:
        if not is_lawful(operation):
            yield _finding(
                Code.TAMPERED,
                f"version {version} of the ledger's table was made by {operation}, where only appends are allowed: "
                "look at who ran it, and compare with the version before it",
                about=f"version {version} of the ledger",
            )


def _restored(ledger: LedgerSlice) -> Iterator[dict[str, Any]]:
    heads = [head for head in ledger.heads[ledger.anchors :] if head.status == "rebuilt"]
    if heads:
        yield _finding(
            Code.REBUILT,
            f"{plural(len(heads), 'entry')} restored from the sink's own record: {some(named(head) for head in heads)}",
            heads[0] if len(heads) == 1 else None,
        )
