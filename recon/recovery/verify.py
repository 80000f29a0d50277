"""recon ledger verify: the chains of the ledger, and the commits of Delta sinks that follow them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError, LedgerError
from recon.base.text import plural
from recon.model import Code, Finding, PreviousAudit
from recon.model.integrity import verify_stamps
from recon.project import Project
from recon.spark.catalog import ask_active
from recon.write.ledger import Ledger
from recon.write.ledger.erasures import ERASURES, ErasuresEdited, ErasureTable, what_is_gone
from recon.write.ledger.results import previous_audit, stored_rows
from recon.write.ledger.sealed_results import changed, states_gone
from recon.write.ledger.store import Filter, open_store
from recon.write.ledger.unsaved_findings import with_unstored
from recon.write.sinks import open_sink

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


def verify(project: Project, ledger: Ledger, pipeline: str | None = None, sink: str | None = None) -> list[Finding]:
    """What is wrong with whole chains; empty when all are intact and hold every entry that a commit names.

    Args:
        project: names the sinks whose commits are compared.
        ledger: the project's ledger.
        pipeline: only this pipeline's chains.
        sink: only chains of sinks of this name.
    """
    ask_active(project)
    previous = {pipe.name: _previous(ledger, pipe.name) for pipe in project.pipelines if pipeline in (None, pipe.name)}
    return [
        *ledger.verify(pipeline, sink),
        *_stamps(project, ledger, pipeline, sink),
        *_results(project, ledger, pipeline),
        *_unstored(project, ledger, previous, sink),
        *_erasures(project, previous, sink),
    ]


def _previous(ledger: Ledger, pipeline: str) -> PreviousAudit | None:
    try:
        return previous_audit(ledger.results, pipeline, _EVER)
    except LedgerError:  # audits say so
        return None


def _unstored(
    project: Project, ledger: Ledger, previous: Mapping[str, PreviousAudit | None], sink: str | None
) -> Iterator[Finding]:
    """What audits refuted that left no state."""
    for name, of_sink in _sinks(project, previous, sink):
        before = previous[name]
        others = any(
            ledger.proofs.length(*names) for names in _sinks(project, {name: before}, None) if names[1] != of_sink
        )
        try:
            state = ledger.proofs.newest(name, of_sink)
            found = before.found if before is not None else ()
            told = with_unstored(state, name, of_sink, found, ledger.proofs, utc_now(), others=others)
        except LedgerError:  # a state that was edited, which is told
            continue
        more = len(told.open if told is not None else ()) - len(state.open if state is not None else ())
        if more:
            yield Finding(
                code=Code.INCONCLUSIVE,
                message=f"the proof of pipeline {name}, sink {of_sink} has no state with {plural(more, 'finding')} of "
                "audits whose results are there: an audit ended before it stored one, or the proof was put back; audit "
                "again, which keeps what was found open",
                pipeline=name,
                sink=of_sink,
            )


def _sinks(
    project: Project, pipelines: Mapping[str, PreviousAudit | None], sink: str | None
) -> Iterator[tuple[str, str]]:
    """The names of the sinks that are verified, each with its pipeline's."""
    for pipeline in project.pipelines:
        if pipeline.name in pipelines:
            yield from ((pipeline.name, of_sink.name) for of_sink in pipeline.sinks if sink in (None, of_sink.name))


def _results(project: Project, ledger: Ledger, pipeline: str | None) -> Iterator[Finding]:
    """Stored results that were edited, removed or added, and states of proofs that are gone since audits read them."""
    names = [pipe.name for pipe in project.pipelines if pipeline in (None, pipe.name)]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for row in stored_rows(ledger.results.read(Filter())) if ledger.results.exists() else ():
        if row["pipeline"] in rows:
            rows[row["pipeline"]].append(row)
    states, _ = ledger.proofs.since(names, _EVER)  # what is wrong with others, the ledger says
    for name, of_pipeline in rows.items():
        by_audit: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in of_pipeline:
            by_audit[row["invocation_id"]].append(row)
        sentences = [sentence for _, sentence in changed(by_audit, states[name])]
        for sentence in (*sentences, states_gone(of_pipeline, partial(ledger.proofs.length, name))):
            if sentence:
                yield Finding(code=Code.TAMPERED, message=sentence, pipeline=name)


def _erasures(project: Project, previous: Mapping[str, PreviousAudit | None], sink: str | None) -> Iterator[Finding]:
    """What was erased on somebody's request, and entries of erasures that were edited or removed."""
    table = ErasureTable(open_store(project, ERASURES))
    for names in _sinks(project, previous, sink):
        before = previous[names[0]]
        try:
            chain = table.chain(*names)
            found = [(Code.ERASED, erasure.sentence) for erasure, _ in chain]
            seen = before.erasures.get(names[1]) if before is not None else None
            if (lacks := what_is_gone(*names, chain, seen)) is not None:
                found.append((Code.TAMPERED, lacks))
        except ErasuresEdited as error:
            found = [(Code.TAMPERED, str(error))]
        for code, message in found:
            yield Finding(code=code, message=message, pipeline=names[0], sink=names[1])


def _stamps(project: Project, ledger: Ledger, pipeline: str | None, sink: str | None) -> Iterator[Finding]:
    chains = set(ledger.chains())
    for of_pipeline in project.pipelines:
        for of_sink in of_pipeline.sinks:
            names = (of_pipeline.name, of_sink.name)
            if not of_sink.has_history or names not in chains:
                continue
            if pipeline not in (None, names[0]) or sink not in (None, names[1]):
                continue
            try:
                commits = open_sink(project, of_pipeline.name, of_sink).log().commits
            except EvidenceError as error:
                chain = f"the chain of pipeline {names[0]}, sink {names[1]}"
                yield Finding(
                    code=Code.INCONCLUSIVE,
                    message=f"{chain} was not compared with its commits: {error}",
                    pipeline=names[0],
                    sink=names[1],
                )
                continue
            yield from verify_stamps(ledger.slice(*names), [c.stamp for c in commits if c.stamp.is_of(*names)])
