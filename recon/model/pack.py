"""The content of an auditor's pack: sealed entries of a period, signed heads, and what leads from one to the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recon.base.errors import EvidenceError
from recon.base.text import plural
from recon.model.ledger import REPAIRS
from recon.model.offsets import OffsetSpan
from recon.model.positions import is_kafka
from recon.model.wire.processing_signature import parts_of
from recon.model.wire.stamp import parse_offsets

FIGURES = ("batches", "offsets", "rows_written", "rows_filtered", "rows_quarantined")


@dataclass(frozen=True, kw_only=True)
class PackedChain:
    """One sink's period.

    `texts` are what the hashes of the period's entries are made of, in the order of the chain. `before` and `after` are
    those of the entries beside them, None where there is none: they show where the period begins and ends. The first
    of all these is leaf `begin` of the tree whose head is `note`; `path` are the roots of the subtrees beside them,
    left to right. `note` is "" without a head, and `reason` says why then.
    """

    pipeline: str
    sink: str
    before: str | None
    texts: tuple[str, ...]
    after: str | None
    begin: int
    path: tuple[bytes, ...]
    note: str
    reason: str
    answer: str

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts with those beside them."""
        first, last = ((text,) if text is not None else () for text in (self.before, self.after))
        return (*first, *self.texts, *last)


@dataclass(frozen=True, kw_only=True)
class Pack:
    """The pack of one project; the period is half-open, in UTC. `keys` are public keys as text."""

    project: str
    recon_version: str
    generated_at: datetime
    period_from: datetime
    period_to: datetime
    keys: tuple[str, ...]
    chains: tuple[PackedChain, ...]


@dataclass(frozen=True)
class Figure:
    """A number; None where it is not known, and why."""

    value: int | None
    unknown: str = ""


def figures_of(texts: Sequence[str]) -> Mapping[str, Figure]:
    """The figures of the compliance report, from the texts of entries alone; pack.js computes the same.

    Raises:
        ValueError: a text is no entry.
    """
    entries = [entry for entry in map(entry_of, texts) if entry[0]["status"] != "already_committed"]
    read = [(head, ranges) for head, ranges in entries if head["epoch"] >= 0 or head["epoch"] == REPAIRS]
    heads, spans = [head for head, _ in read], [span for _, ranges in read for span in ranges]
    sizes = [max(span.end_offset - span.start_offset, 0) for span in spans if is_kafka(span.topic)]
    offsets = Figure(sum(sizes)) if sizes or not spans else Figure(None, "what was read is no topic of Kafka")
    filtered = _sum(heads, lambda head: head["rows_filtered"])
    if any(parts_of(head.get("transform"))[1] for head in heads):
        filtered = Figure(None, "the sink is a route, where records of other routes count as filtered")
    return {
        "batches": Figure(len({(head["epoch"], head["batch_id"]) for head in heads if head["epoch"] >= 0})),
        "offsets": offsets,
        "rows_written": _sum([head for head, _ in entries], _rows_written),
        "rows_filtered": filtered,
        "rows_quarantined": _sum(heads, lambda head: head["rows_quarantined"]),
    }


_WHOLE = ("sequence", "epoch", "batch_id", "committed_at")
_COUNTS = ("rows_written", "rows_filtered", "rows_quarantined", "rows_removed")


def entry_of(text: str) -> tuple[Mapping[str, Any], tuple[OffsetSpan, ...]]:
    """An entry's fields and its ranges, from what its hash is made of.

    Raises:
        ValueError: it is no entry.
    """
    head_text, _, ranges = text.partition("\n")
    head = json.loads(head_text)
    counts = [head.get(name) for name in _COUNTS] if isinstance(head, dict) else [""]
    if not all(count is None or type(count) is int for count in counts):
        raise ValueError("its counts are none")
    if not all(type(head.get(name)) is int for name in _WHOLE):
        raise ValueError("its numbers are none")
    try:
        return head, parse_offsets(ranges)
    except EvidenceError as error:
        raise ValueError(str(error)) from error


def _rows_written(head: Mapping[str, Any]) -> int | None:
    rows: int | None = head["rows_written"]
    return None if rows is None else rows - (head.get("rows_removed") or 0)


def _sum(heads: Sequence[Mapping[str, Any]], count: Callable[[Mapping[str, Any]], int | None]) -> Figure:
    counts = [count(head) for head in heads]
    known = [value for value in counts if value is not None]
    if len(known) == len(counts):
        return Figure(sum(known))
    return Figure(None, f"{len(counts) - len(known)} of {plural(len(counts), 'entry')} did not count them")
