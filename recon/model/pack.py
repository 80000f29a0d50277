"""The content of an auditor's pack: sealed entries of a period, signed heads, and what leads from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from recon.model.result import Answer


@dataclass(frozen=True, kw_only=True)
class PackedChain:
    """One sink's period.

    `texts` are what the entries' hashes are made of, in the order of the chain, and `hashes` the entry hashes. The
    first is leaf `begin` of the tree whose head is `note`. `path` are the roots of the subtrees beside these leaves,
    left to right. `behind` counts entries of the period that the head does not cover. `note` is "" without a head, and
    `reason` says why then. `figures` are those of the compliance report, None where it does not know them.
    """

    pipeline: str
    sink: str
    texts: tuple[str, ...]
    hashes: tuple[str, ...]
    begin: int
    path: tuple[bytes, ...]
    behind: int
    note: str
    reason: str
    answer: Answer
    figures: Mapping[str, int | None]


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
