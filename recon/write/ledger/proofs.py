"""The table `proof` beside the ledger: the state of each sink's proof after every audit, hashed and chained."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recon._version import __version__
from recon.base.errors import LedgerError, UnreachedLedgerError
from recon.base.text import some
from recon.model import Code, Finding
from recon.model.proof import OpenFinding, SinkProof
from recon.model.wire.app_ids import chain_id
from recon.model.wire.proof import UnknownFieldError, dump_proof, parse_proof
from recon.write.ledger import arrow
from recon.write.ledger.store import ChainMoved, Filter, LedgerTable, Store

# One row per state; `cause` is "audit" or "accept", `state` is JSON.
PROOF = LedgerTable(
    kind="proof",
    time="at",
    columns={
        "pipeline": str,
        "sink": str,
        "sequence": int,
        "cause": str,
        "at": datetime,
        "state": str,
        "recon_version": str,
        "prev_hash": str,
        "entry_hash": str,
    },
)
_spelled = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_SEALED = ("pipeline", "sink", "sequence", "cause", "at", "state", "recon_version", "prev_hash")


class ProofEdited(LedgerError):
    """A state is not what recon stored."""


class LaterProof(LedgerError):
    """A later version of recon stored a state: what it means is not known here."""


class ProofTable:
    """The states of all proofs of one ledger."""

    def __init__(self, store: Store) -> None:
        """`store` holds the table `proof`."""
        self.store = store

    def newest(self, pipeline: str, sink: str) -> SinkProof | None:
        """The state after the last audit; None where no audit proved anything yet.

        Raises:
            ProofEdited: the state is not what recon stored.
            LaterProof: a later version of recon stored it.
            LedgerError: the table cannot be read.
        """
        length = self.length(pipeline, sink)
        if not length:
            return None
        found: list[dict[str, Any]] = []
        for day in reversed(self.store.dates()):
            rows = arrow.rows(self.store.read(Filter.of(pipeline, sink, dates=(day,))))
            found = [row for row in rows if row["sequence"] == length]
            if len(found) == 1:
                state = self._opened(found[0])
                of_audits = [(row["sequence"], row["at"]) for row in rows if row["cause"] == "audit"]
                return replace(state, audited_at=max(of_audits)[1] if of_audits else state.at)  # of an earlier day
            if found:
                break
        what = f"{len(found)} states" if found else "no state"
        raise ProofEdited(
            f"the table {self.store.location} has {what} number {length} of pipeline {pipeline}, sink {sink}, which is "
            "the newest: it was edited"
        )

    def _opened(self, row: Mapping[str, Any]) -> SinkProof:
        place = f"state {row['sequence']} of pipeline {row['pipeline']}, sink {row['sink']} in {self.store.location}"
        if _seal(row) != row["entry_hash"] or row["date"] != row["at"].date():
            raise ProofEdited(f"{place} does not match its own entry_hash: it was edited")
        if _is_later(row["recon_version"]):
            raise LaterProof(
                f"{place} was stored by recon {row['recon_version']}, and this is {__version__}; use that version, or "
                "a later one"
            )
        from recon.judge.memories import MEMORIES  # the hook opens the ledger, and reads no state

        try:
            proof = parse_proof(row["state"], MEMORIES)
        except UnknownFieldError as error:
            raise LaterProof(f"{place}: {error}; use the version that stored it, or a later one") from error
        except LedgerError as error:
            raise ProofEdited(f"{place}: {error}") from error
        if (proof.pipeline, proof.sink) != (row["pipeline"], row["sink"]):
            raise ProofEdited(f"{place} is of pipeline {proof.pipeline}, sink {proof.sink}: it was edited")
        return replace(proof, sequence=row["sequence"], entry_hash=row["entry_hash"])

    def since(
        self, pipelines: Collection[str], since: datetime
    ) -> tuple[dict[str, list[tuple[str, SinkProof]]], dict[str, str]]:
        """The states of pipelines since an instant with the cause of each, oldest first; and what is wrong with others.

        Both are by pipeline: none of the states of a pipeline is used of which one is not what recon stored.

        Raises:
            UnreachedLedgerError: the table is not reached, so that nothing is known of it.
        """
        try:
            rows = arrow.rows(self.store.read(Filter.of(from_=since)))
        except UnreachedLedgerError:
            raise
        except LedgerError as error:
            return {}, dict.fromkeys(pipelines, str(error))
        states: dict[str, list[tuple[str, SinkProof]]] = {name: [] for name in pipelines}
        damaged: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: (row["sink"], row["sequence"])):
            name = row["pipeline"]
            if name not in states or name in damaged:
                continue
            try:
                states[name].append((row["cause"], self._opened(row)))
            except (ProofEdited, LaterProof) as error:
                damaged[name] = str(error)
        return {name: [] if name in damaged else of_pipeline for name, of_pipeline in states.items()}, damaged

    def verify(
        self,
        entries: Mapping[tuple[str, str], Mapping[int, str]],
        pipeline: str | None = None,
        sink: str | None = None,
    ) -> list[Finding]:
        """What is wrong with the states of whole proofs: edited, missing, or not linked to the one before.

        Nor may one name an entry that the ledger does not have.

        Args:
            entries: of each pipeline and sink, the entry_hash of the ledger's entries by their sequence.
            pipeline: only this pipeline's proofs.
            sink: only proofs of sinks of this name.

        Raises:
            LaterProof: a later version of recon stored one of them.
            LedgerError: the table cannot be read.
        """
        if not self.store.exists():
            return []
        chains: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in arrow.rows(self.store.read(Filter.of(pipeline, sink))):
            chains.setdefault((row["pipeline"], row["sink"]), []).append(row)
        return [
            Finding(code=Code.TAMPERED, message=message, pipeline=of_pipeline, sink=of_sink)
            for (of_pipeline, of_sink), rows in sorted(chains.items())
            for message in self._faults(
                of_pipeline,
                of_sink,
                sorted(rows, key=lambda row: int(row["sequence"])),
                entries.get((of_pipeline, of_sink), {}),
            )
        ]

    def _faults(
        self, pipeline: str, sink: str, rows: Sequence[Mapping[str, Any]], entries: Mapping[int, str]
    ) -> Iterator[str]:
        of_sink = f"of pipeline {pipeline}, sink {sink} in {self.store.location}"
        numbers, length = [row["sequence"] for row in rows], self.length(pipeline, sink)
        if numbers != list(range(1, length + 1)):
            missing = sorted({*range(1, length + 1)} - set(numbers))
            what = f"lack number {some(missing)}" if missing else "have numbers twice, or more than were stored"
            yield f"the states {of_sink} {what}: the table was edited"
        before = ""
        newest: Sequence[OpenFinding] = ()
        judged: dict[int, SinkProof] = {}
        for row in rows:
            try:
                state = self._opened(row)
                newest = state.open
                if any(
                    open_finding.accepted is not None and open_finding.finding.code is Code.TAMPERED
                    for open_finding in state.open
                ):
                    judged.clear()  # somebody knows that the entries of earlier states are others, or gone
                judged[state.position] = state
            except ProofEdited as error:
                yield str(error)
            # The state after one that could not be read begins the chain anew.
            if row["prev_hash"] not in ("", before):
                yield f"state {row['sequence']} {of_sink} does not follow the one before it: that was edited or removed"
            before = row["entry_hash"]
        yield from _not_there(judged, entries)
        for open_finding in newest:
            if open_finding.finding.code is Code.TAMPERED and open_finding.accepted is None:
                yield f"an audit found, and nobody accepted: {open_finding.finding.message}"

    def chains(self) -> list[tuple[str, str]]:
        """Every (pipeline, sink) that has states, sorted.

        Raises:
            LedgerError: the table cannot be read.
        """
        names = ("pipeline", "sink")
        return sorted(set(arrow.tuples(self.store.read(Filter(), names), *names)))

    def length(self, pipeline: str, sink: str) -> int:
        """How many states of a sink there are."""
        return self.store.length(chain_id(pipeline, sink))

    def append(self, proof: SinkProof, *, after: int, prev_hash: str, cause: str, at: datetime) -> bool:
        """Stores a state; False where another audit or an acceptance stored a newer one meanwhile.

        While others write the table at the same moment, and none of them a newer state of it, it is tried again.

        Args:
            proof: the new state.
            after: the number of the state that it goes on from, 0 for the first.
            prev_hash: that state's entry_hash; "" for the first, and where that state could not be read.
            cause: "audit" or "accept".
            at: now, UTC.

        Raises:
            LedgerError: the table cannot be written, others wrote it all the time, or it lost states meanwhile.
        """
        row = sealed_state(proof, number=after + 1, prev_hash=prev_hash, cause=cause, at=at)
        chain = chain_id(proof.pipeline, proof.sink)
        try:
            self.store.append(arrow.table([row], self.store.schema), chain=chain, after=after)
        except ChainMoved as moved:
            if self.store.length(chain) < after:
                raise LedgerError(
                    f"the table {self.store.location} has fewer states of pipeline {proof.pipeline}, sink {proof.sink} "
                    f"than {after}, which were read a moment before: an older copy was put in its place"
                ) from moved
            return False
        return True


def _not_there(judged: Mapping[int, SinkProof], entries: Mapping[int, str]) -> Iterator[str]:
    """Entries that states name, by position, and that the ledger does not have, or has others in their place."""
    last = max(judged.values(), key=lambda state: state.position, default=None)
    if last is not None and last.position and last.position not in entries:
        yield (
            f"the audit of {last.at:%Y-%m-%d %H:%M:%S}Z judged the entries of pipeline {last.pipeline}, sink "
            f"{last.sink} up to number {last.position}, and the ledger has no entry of that number: entries were "
            "removed, or an older copy of the ledger was put in its place"
        )
    for position, state in sorted(judged.items()):
        if entries.get(position, state.chain_head) != state.chain_head:
            yield (
                f"entry {position} of pipeline {state.pipeline}, sink {state.sink} is another one than at the audit of "
                f"{state.at:%Y-%m-%d %H:%M:%S}Z: entries were replaced since"
            )
            return


def sealed_state(proof: SinkProof, *, number: int, prev_hash: str, cause: str, at: datetime) -> dict[str, Any]:
    """A state as the row that is stored of it, with its hash; the arguments are as for `ProofTable.append`."""
    row = {
        "pipeline": proof.pipeline,
        "sink": proof.sink,
        "sequence": number,
        "cause": cause,
        "at": at,
        "state": dump_proof(proof),
        "recon_version": __version__,
        "prev_hash": prev_hash,
        "date": at.date(),
    }
    return resealed(row)


def _is_later(version: str | None) -> bool:
    """Whether a version of recon is later than this one; one that is no version is not."""
    mine, other = (re.match(r"(\d+)\.(\d+)\.(\d+)", text or "") for text in (__version__, version))
    return mine is not None and other is not None and tuple(map(int, other.groups())) > tuple(map(int, mine.groups()))


def resealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the hash of what it holds."""
    return {**row, "entry_hash": _seal(row)}


def _seal(row: Mapping[str, Any]) -> str:
    values = [row[name].isoformat() if isinstance(row[name], datetime) else row[name] for name in _SEALED]
    return hashlib.sha256(_spelled(values).encode()).hexdigest()
