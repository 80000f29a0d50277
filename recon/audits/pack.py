"""Collects an auditor's pack: what a browser needs to verify a period's entries, numbers and signed heads offline."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

from recon.audits.anchor import contradiction
from recon.audits.compliance import compliance
from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.base.instants import instant
from recon.model.compliance import ComplianceReport, SinkCompliance
from recon.model.pack import Pack, PackedChain
from recon.project import Project, as_project
from recon.write.ledger import open_ledger
from recon.write.ledger.chain import sealed_text
from recon.write.ledger.heads import leaves, signing
from recon.write.ledger.heads.merkle import beside
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.ledger import Ledger

MOST_ENTRIES = 100_000  # about 12 MB of a page
_FIGURES = ("batches", "offsets", "rows_written", "rows_filtered", "rows_quarantined")


def pack(project: str | Path | Project, from_: datetime | date | str, to: datetime | date | str) -> Pack:
    """The pack of the micro-batches committed in [from_, to).

    Raises:
        ConfigError: the period is empty or too long for one page, or a key is none.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project = as_project(project)
    report = compliance(project, from_, to)
    keys = signing.public_keys(project)
    newest = signing.known_heads(project, keys).newest
    ledger, until = open_ledger(project), instant("to", to, ends=True)
    now = utc_now()
    until = None if until is None or until >= now else until
    chains = tuple(
        _chain(project, ledger, report, sink, until, newest.get((sink.pipeline, sink.sink))) for sink in report.sinks
    )
    entries = sum(len(chain.texts) for chain in chains)
    if entries > MOST_ENTRIES:
        raise ConfigError(
            f"the period has {entries:,} entries, and a page can hold {MOST_ENTRIES:,}: give a shorter one, or prove "
            "single entries by `recon ledger prove`"
        )
    return Pack(
        project=report.project,
        recon_version=report.recon_version,
        generated_at=report.generated_at,
        period_from=report.period_from,
        period_to=report.period_to,
        keys=tuple(map(str, keys)),
        chains=chains,
    )


def _chain(
    project: Project,
    ledger: Ledger,
    report: ComplianceReport,
    sink: SinkCompliance,
    until: datetime | None,
    head: Head | None,
) -> PackedChain:
    """One sink's entries of the period, and what leads from them to its newest signed head."""
    names = (sink.pipeline, sink.sink)
    run = ledger.slice(*names, report.period_from, until)
    # An entry that is stored twice is one.
    entries = {entry.entry_hash: (entry, text) for entry, text in zip(run.heads, run.offsets_texts, strict=True)}
    for anchor in run.heads[: run.anchors]:
        entries.pop(anchor.entry_hash, None)
    path: tuple[bytes, ...] = ()
    begin, behind, reason = 0, 0, ""
    if head is None:
        reason = "no signed head of it is known"
    elif entries:
        tree, _ = signing.tree_of(project, ledger, names, head)
        found = tree.find(leaves.leaf_of(next(iter(entries))), next(iter(entries.values()))[0].sequence - 1)
        begin = tree.size if found is None else found
        if not signing.leads_to(tree, head):
            reason = contradiction(head, tree.size)
        elif begin >= head.size:
            reason = f"{head}, is older than the period"
        else:
            end = min(begin + len(entries), head.size)
            behind, path = len(entries) - (end - begin), tuple(beside(tree, begin, end, head.size))
    return PackedChain(
        pipeline=sink.pipeline,
        sink=sink.sink,
        texts=tuple(sealed_text(entry, text) for entry, text in entries.values()),
        hashes=tuple(entries),
        begin=begin,
        path=path,
        behind=len(entries) if reason else behind,
        note=head.note if head is not None and not reason else "",
        reason=reason,
        answer=report.answer_of(sink),
        figures={name: getattr(sink, name) for name in _FIGURES},
    )
