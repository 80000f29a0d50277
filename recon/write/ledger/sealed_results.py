"""Stored results as audits left them: what was edited, removed or added since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from recon.base.text import plural
from recon.model.proof import SinkProof
from recon.write.ledger.results import RUN, evidence_of, hash_of

Row = Mapping[str, Any]


def changed(
    by_audit: Mapping[str, Sequence[Row]], states: Sequence[tuple[str, SinkProof]]
) -> Iterator[tuple[str, str]]:
    """What was changed in the stored results of a pipeline: (invocation_id, a sentence) of each audit and cause.

    Args:
        by_audit: the rows of the pipeline, each with `is_sealed`, by invocation id.
        states: of its proofs, with the cause of each.
    """
    yield from ((name, sentence) for name, rows in sorted(by_audit.items()) for sentence in _edited(name, rows))
    expected = {state.invocation_id: state.results_hash for cause, state in states if cause == "audit"}
    yield from _others(expected, by_audit)
    without = {name: rows for name, rows in sorted(by_audit.items()) if not expected.get(name)}
    yield from ((name, sentence) for name, rows in without.items() for sentence in _not_as_many(name, rows))


def changed_since(state: SinkProof, results_hash: str | None) -> str:
    """Says that the stored results of the audit that left a state are not as it left them; "" where they are.

    `results_hash` is of those that are stored now, None where there are none.
    """
    if not state.results_hash or state.results_hash == results_hash:
        return ""
    if results_hash is None:
        return f"the stored results of audit {state.invocation_id}, of which the proof has a hash, are gone"
    return _not_as_hashed(state.invocation_id)


def states_gone(rows: Iterable[Row], length: Callable[[str], int]) -> str:
    """Says that the proof of a pipeline's sink has fewer states than an audit read; "" where it has them.

    Args:
        rows: the stored results of the pipeline, each with `is_sealed`.
        length: gives the number of states of a sink's proof.
    """
    seen: dict[str, tuple[int, str]] = {}
    for row in rows:
        if row["check"] == "ledger_integrity" and row["sink"] and row["is_sealed"]:
            count = evidence_of(row).get("proof_states")
            read = (count if isinstance(count, int) else 0, row["pipeline"])
            seen[row["sink"]] = max(seen.get(row["sink"], read), read)
    for sink, (count, pipeline) in seen.items():
        if (there := length(sink)) < count:
            return (
                f"the proof has {plural(there, 'state')} of pipeline {pipeline}, sink {sink}, and an audit read "
                f"{count}: the table was removed, or is an older copy"
            )
    return ""


def _edited(invocation_id: str, rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if not row["is_sealed"]:
            yield f"the stored result {row['name']} of audit {invocation_id} was edited"


def _others(expected: Mapping[str, str], by_audit: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, str]]:
    """Audits whose results are not those of which the proof has the hash."""
    for invocation_id, of_results in sorted(expected.items()):
        if of_results and hash_of(_each_once(by_audit.get(invocation_id, ()))) != of_results:
            yield invocation_id, _not_as_hashed(invocation_id)


def _not_as_hashed(invocation_id: str) -> str:
    return (
        f"the stored results of audit {invocation_id} are not those that the proof has a hash of: some were removed, "
        "added or edited"
    )


def _not_as_many(invocation_id: str, rows: Sequence[Row]) -> Iterator[str]:
    """Says that an audit which left no state has more or fewer results than it stored, by its own record."""
    said = [evidence_of(row).get("selected") for row in rows if row["kind"] == RUN and row["is_sealed"]]
    there = len([row for row in _each_once(rows) if row["kind"] != RUN])
    if said and said[0] != there:
        yield f"audit {invocation_id} stored {said[0]} results, and {there} are there: some were removed or added"


def _each_once(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, without those that are stored twice, as a merge of files by two processes can leave them."""
    return list({row["row_hash"]: row for row in rows}.values())
