"""Collects an auditor's pack: what a browser needs to verify a period's entries, numbers and signed heads offline."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from recon.audits.anchor import contradiction
from recon.audits.compliance import compliance
from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.base.instants import instant
from recon.model import offsets_text
from recon.model.compliance import ComplianceReport, SinkCompliance
from recon.model.pack import Pack, PackedChain
from recon.project import Project, as_project
from recon.write.ledger import columns, open_ledger
from recon.write.ledger.chain import sealed_text
from recon.write.ledger.heads import leaves, signing
from recon.write.ledger.heads.merkle import beside
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.store import Filter

MOST_ENTRIES = 100_000  # about 12 MB of a page


def pack(project: str | Path | Project, from_: datetime | date | str, to: datetime | date | str) -> Pack:
    """The pack of the micro-batches committed in [from_, to).

    Raises:
        ConfigError: the period is empty or too long for one page, or a key is none.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project = as_project(project)
    report = compliance(project, from_, to)
    keys = signing.public_keys(project)
    known = signing.known_heads(project, keys)
    unread = project.mask("; ".join(known.unread))
    ledger, until = open_ledger(project), instant("to", to, ends=True)
    now = utc_now()
    until = None if until is None or until >= now else until
    chains = tuple(
        _compared(_chain(project, ledger, report, sink, until, known.newest.get((sink.pipeline, sink.sink))), unread)
        for sink in report.sinks
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


def _compared(chain: PackedChain, unread: str) -> PackedChain:
    """The chain without its head while a place could not be compared, as that may have a larger one."""
    return replace(chain, note="", path=(), reason=unread) if unread and chain.note else chain


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
    texts = {
        entry.entry_hash: sealed_text(entry, text) for entry, text in zip(run.heads, run.offsets_texts, strict=True)
    }
    anchors = [entry.entry_hash for entry in run.heads[: run.anchors]]
    # The last anchor is the entry that the run goes on from.
    before = {name: texts[name] for name in anchors[-1:]}
    entries = {name: text for name, text in texts.items() if name not in anchors}
    last = run.heads[-1].sequence if run.heads else 0
    after = {} if until is None else _at(ledger, names, last + 1)
    path: tuple[bytes, ...] = ()
    begin, reason, beside_it = 0, "", [*before, *entries, *after]
    if head is None:
        reason = "no signed head of it is known"
    elif beside_it:
        tree, _ = signing.tree_of(project, ledger, names, head)
        guess = run.heads[max(0, run.anchors - 1)].sequence - 1 if run.heads else 0
        found = tree.find(leaves.leaf_of(beside_it[0]), guess)
        begin = tree.size if found is None else found
        if not signing.leads_to(tree, head):
            reason = contradiction(head, tree.size)
        elif begin + (len(before) if entries else 0) >= head.size:
            reason = f"{head}, is older than the period"
        else:
            path = tuple(beside(tree, begin, min(begin + len(beside_it), head.size), head.size))
    return PackedChain(
        pipeline=sink.pipeline,
        sink=sink.sink,
        before=next(iter(before.values()), None),
        texts=tuple(entries.values()),
        after=next(iter(after.values()), None),
        begin=begin,
        path=path,
        note=head.note if head is not None and not reason else "",
        reason=reason,
        answer=report.answer_of(sink),
    )


def _at(ledger: Ledger, names: tuple[str, str], sequence: int) -> dict[str, str]:
    """The entry at a place of a chain, by its hash; empty where there is none."""
    found = columns.entries(ledger.store.read(replace(Filter.of(*names), above=sequence - 1, upto=sequence)))
    return {entry.entry_hash: sealed_text(entry, offsets_text(entry.offsets)) for entry in found[:1]}
