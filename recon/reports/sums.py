"""How many records were read, lost, removed and doubled, and the sum of what became of every offset, in words."""

from __future__ import annotations

from collections.abc import Iterable

from recon.base.text import plural
from recon.model import Incident, OffsetSums, PipelineFacts, RunResult
from recon.model.incident import HARMS, Harm
from recon.reports.words import HARMS as WORDS
from recon.reports.words import number

_COUNTED: tuple[Harm, ...] = ("lost", "missing", "removed", "twice", "undecided")

_TERMS = {
    "rows": "rows in the sink",
    "filtered": "filtered by the transform",
    "quarantined": "in quarantine",
    "control": "transaction markers",
    "aborted": "records of aborted transactions",
    "compacted": "compacted",
    "without_record": "without a record when they were read",
    "lost": WORDS["lost"],
    "removed": WORDS["removed"],
    "deleted": "deleted as declared",
    "missing": WORDS["missing"],
    "undecided": WORDS["undecided"],
}
_ALWAYS = ("rows", "filtered", "quarantined", "control", "aborted", "compacted", "lost")


def of_run(run: RunResult) -> str:
    """What all pipelines read, and what open incidents say of it: "20,040 read · 700 lost for good · 40 twice"."""
    return _line([_read(pipeline) for pipeline in run.pipelines], [i for p in run.pipelines for i in p.incidents])


def of_pipeline(pipeline: PipelineFacts) -> str:
    """The same of one pipeline."""
    return _line([_read(pipeline)], pipeline.incidents)


def severity(pipeline: PipelineFacts) -> tuple[int, ...]:
    """A key that sorts what lost most first: by each harm, the worst before the others."""
    return tuple(-sum(_amount(pipeline.incidents, harm)) for harm in HARMS)


def _line(read: Iterable[int | None], incidents: Iterable[Incident]) -> str:
    counts = [count for count in read if count is not None]
    parts = [f"{number(sum(counts))} read"] if counts else []
    listed = list(incidents)
    for harm in _COUNTED:
        rows, offsets = _amount(listed, harm)
        amounts = [f"{rows:,}"] if rows else []
        amounts += [plural(offsets, "offset")] if offsets else []
        if amounts:
            parts.append(f"{' and '.join(amounts)} {WORDS[harm]}")
    accepted = sum(incident.state == "accepted" for incident in listed)
    return " · ".join([*parts, *([f"{plural(accepted, 'incident')} accepted"] if accepted else [])])


def _read(pipeline: PipelineFacts) -> int | None:
    """The offsets that a pipeline read: several sinks are written from the same ones."""
    return max((sink.account.offsets for sink in pipeline.sinks if sink.account is not None), default=None)


def _amount(incidents: Iterable[Incident], harm: Harm) -> tuple[int, int]:
    """Rows that are certain, and offsets of which it is not known how many were records; of open incidents."""
    counts = [
        count for incident in incidents if incident.state == "open" for count in incident.counts if count.harm == harm
    ]
    rows = sum(count.rows for count in counts if count.rows is not None)
    return rows, sum(count.offsets for count in counts if count.rows is None)


def account_rows(account: OffsetSums) -> list[tuple[str, int | None]]:
    """The terms of the sum, by their names in the report; those that are zero only where the sum always has them."""
    names = {**_TERMS, "rows": _TERMS["rows"] if account.rows_read else "rows that commits wrote"}
    return [(names[name], value) for name, value in account.terms.items() if value != 0 or name in _ALWAYS]


def adds_up(account: OffsetSums) -> tuple[str, str]:
    """Whether the sum adds up, as a class of the page and in words."""
    difference = account.difference
    if difference is None:
        unknown = [_TERMS[name] for name, value in account.terms.items() if value is None]
        why = account.unknown or f"there is no number for “{'”, “'.join(unknown)}”"
        return "unproved", f"Whether it adds up is not known: {why}"
    if difference > 0:
        return "fail", f"It does not add up: {plural(difference, 'offset')} in no term"
    if difference < 0:
        return "fail", f"It does not add up: the terms count {plural(-difference, 'offset')} too many"
    if account.undecided:
        return "unproved", f"It adds up; what became of {plural(account.undecided, 'offset')} is not known"
    return "pass", "It adds up"
