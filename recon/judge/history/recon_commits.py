"""Recon's own writes in a sink of any kind, compared with the ledger's entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from recon.base.text import plural, some
from recon.judge.findings import Findings
from recon.judge.history.sink_history import Claim, SinkHistory
from recon.judge.history.table_history import TableHistory
from recon.model import Code, SinkCommit
from recon.model.ledger import named


def doubled(guarantee: str) -> Code:
    """The code of doubled rows in a sink that claims a guarantee: perhaps only that no row is lost.

    Spark's own sink, which is observed, writes a micro-batch once.
    """
    return Code.DUPLICATE if guarantee.startswith(("exactly-once", "observed")) else Code.REPEATED


def judge_repeated(history: SinkHistory, guarantee: str, findings: Findings, *, placed_by_rows: bool) -> None:
    """Adds findings for writes that were made more than once.

    `placed_by_rows` is whether nothing but the rows of commits says which micro-batch these are of.
    """
    # Whatever it claims, Delta writes a number once.
    code = Code.DUPLICATE if isinstance(history, TableHistory) else doubled(guarantee)
    for again in history.repeated():
        who = " and ".join(dict.fromkeys(map(named, again.writes)))
        versions = f", as versions {some(again.versions)}" if again.versions else ""
        promised = "" if guarantee == "observed" else f", into a sink that claims {guarantee}"
        findings.add(
            code,
            f"{who} wrote the same ranges {len(again.writes)} times{versions}{promised}: rows "
            f"{'of the same offsets ' if placed_by_rows else ''}are doubled; compare, and remove what is "
            "there twice",
            head=again.writes[-1],
        )


def judge_claims(
    history: SinkHistory, claims: Mapping[int, Claim], findings: Findings, elsewhere: Collection[int] = ()
) -> None:
    """Adds findings for entries without their write, but for those that were written `elsewhere`."""
    for entry, claim in claims.items():
        if claim.code is Code.LEDGER_ORPHAN and (claim.is_there or entry not in elsewhere):
            head = history.heads[entry]
            sentence = f"{named(head)} has a ledger entry without the write that belongs to it: {claim.reason}"
            findings.add(Code.LEDGER_ORPHAN, sentence, head=head)
    empty = [history.heads[entry] for entry, claim in claims.items() if claim.code is Code.EMPTY]
    findings.add_for_all(Code.EMPTY, empty, f"{plural(len(empty), 'micro-batch')} without offsets, rows and write")


def judge_unrecorded(writes: Iterable[SinkCommit], findings: Findings, *, observed: bool) -> None:
    """Adds findings for writes that no entry records; where recon observes, the next look enters them."""
    for write in writes:
        holds = "the sink" if write.version is None else f"version {write.version}"
        holds += f" holds {named(write.stamp)}, and the ledger has no entry of it"
        if observed:
            message = f"{holds} yet; the next audit, or `recon observe`, enters it"
            findings.add(Code.INFLIGHT, message, head=write.stamp)
        else:
            message = f"{holds}; the query's next start, or `recon ledger rebuild`, restores it"
            findings.add(Code.LEDGER_MISSING, message, head=write.stamp)
