"""Verifies an auditor's pack outside the browser, by the rules of pack.js, and compares its page with recon's own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from recon.base.errors import ConfigError, LedgerError
from recon.base.text import plural
from recon.model.pack import Figure, Pack, PackedChain, entry_of, figures_of
from recon.reports import pack as pages
from recon.reports.words import sink_name, when
from recon.write.ledger.heads import leaves, merkle, notes
from recon.write.ledger.heads.keys import PublicKey
from recon.write.ledger.heads.notes import Head

State = Literal["right", "compare", "unproved", "wrong"]
STATES: tuple[State, ...] = ("right", "compare", "unproved", "wrong")
WORDS = {"right": "right", "compare": "right for the key in this file", "unproved": "not proved", "wrong": "WRONG"}
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class Wrong(Exception):
    """What contradicts a signature, or itself."""


class _OtherKey(Wrong):
    """None of the keys signed."""


@dataclass(frozen=True)
class Check:
    """What was found of one part of a chain, and the sentence that says so."""

    state: State
    text: str
    other_key: bool = False

    def __str__(self) -> str:
        return f"{WORDS[self.state]}{f': {self.text}' if self.text else ''}"


@dataclass(frozen=True, kw_only=True)
class VerifiedChain:
    """One sink of a pack. `checks` are signature, entries, period and numbers; `ledger` is the origin
    that its head names, "" without one; `figures` are empty where an entry is wrong.
    """

    chain: PackedChain
    checks: Mapping[str, Check]
    ledger: str
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The sink, for messages."""
        return sink_name(self.chain.pipeline, self.chain.sink)


@dataclass(frozen=True, kw_only=True)
class PackVerification:
    """A pack whose page is as recon wrote it, and what its data prove with some keys."""

    pack: Pack
    chains: tuple[VerifiedChain, ...]

    @property
    def state(self) -> State:
        """The worst of all checks; a pack without a sink proves nothing."""
        return worst([check.state for chain in self.chains for check in chain.checks.values()] or ["unproved"])

    @property
    def unknown(self) -> tuple[str, ...]:
        """The numbers that the entries do not give, in sentences."""
        return tuple(
            f"{pages.NAMES[name]} of {of.name} ({figure.unknown})"
            for of in self.chains
            for name, figure in of.figures.items()
            if figure.value is None
        )

    @property
    def summary(self) -> str:
        """The sentence for all of it."""
        figures = [figure for of in self.chains for figure in of.figures.values()]
        heads = sum(of.checks["signature"].state in ("right", "compare") for of in self.chains)
        entries = sum(len(of.chain.texts) for of in self.chains)
        what = (
            f"{plural(heads, 'signed head')}, {plural(entries, 'entry')} and "
            f"{plural(len(figures) - len(self.unknown), 'number')} of {plural(len(self.chains), 'sink')} of "
            + " and ".join(dict.fromkeys(of.ledger for of in self.chains if of.ledger))
        )
        wrong = [check for of in self.chains for check in of.checks.values() if check.state == "wrong" and check.text]
        if not self.chains:
            return "There is no sink in this pack."
        if self.state == "right":
            return f"Right: {what}."
        if self.state == "compare":
            return f"Right for the key in this file: {what}. A key in a file proves nothing: give yours by --key."
        if self.state == "unproved":
            return "Not everything could be proved."
        if all(check.other_key for check in wrong):
            return "Nothing is proved: the key that you gave did not sign what this file holds."
        return "Something is wrong: this pack is not what was signed."


def worst(states: Sequence[State]) -> State:
    """The worst of some states."""
    return max(states, key=STATES.index)


def verify(pack: Pack, keys: Sequence[PublicKey], *, given: bool, beside: bool = True) -> PackVerification:
    """What the data of a pack prove.

    Args:
        pack: its data.
        keys: those that may have signed.
        given: whether the reader has the keys from elsewhere; False for those of the file, which prove nothing.
        beside: whether the pack has the entries beside those of the period; False for packs of an earlier format.
    """
    return PackVerification(
        pack=pack, chains=tuple(_OneChain(pack, chain, keys, given, beside).verified() for chain in pack.chains)
    )


def keys_of(pack: Pack) -> list[PublicKey]:
    """The keys that a pack has itself, which prove nothing; none where one of them is no key."""
    try:
        return list(map(PublicKey.parse, pack.keys))
    except ConfigError:
        return []


class _OneChain:
    """The checks of one sink, each of which rests on those before it."""

    def __init__(self, pack: Pack, chain: PackedChain, keys: Sequence[PublicKey], given: bool, beside: bool) -> None:
        self.pack, self.chain, self.keys, self.given, self.beside = pack, chain, keys, given, beside
        self.right: State = "right" if given else "compare"
        self.head: Head | None = None
        self.entries: list[Mapping[str, Any]] = []
        self.texts, self.first = chain.all_texts, int(chain.before is not None)
        self.covered = 0

    def verified(self) -> VerifiedChain:
        checks = {"signature": _judged(self._signature), "entries": _judged(self._entries)}
        under_head = worst([check.state for check in checks.values()]) in ("right", "compare")
        checks["period"] = self._period() if under_head else Check("unproved", "it rests on the entries")
        states: list[State] = ["unproved" if check.other_key else check.state for check in checks.values()]
        checks["numbers"] = Check(worst(states), "")
        figures = {} if checks["entries"].state == "wrong" else figures_of(self.chain.texts)
        return VerifiedChain(
            chain=self.chain, checks=checks, ledger=self.head.ledger if self.head else "", figures=figures
        )

    def _signature(self) -> Check:
        if not self.chain.note:
            return Check("unproved", "there is no signed head")
        try:
            head = _opened(self.chain.note, self.keys, self.given)
        except _OtherKey as error:
            if self.given:
                raise
            return Check("unproved", str(error))
        if head.chain != (self.chain.pipeline, self.chain.sink):
            raise Wrong("the head is of another pipeline or sink")
        self.head = head
        return Check(self.right, f"{head.origin}, {plural(head.size, 'entry')}, signed {when(head.at)}")

    def _entries(self) -> Check:
        hashes: list[str] = []
        for at, text in enumerate(self.texts):
            name = f"entry {at + 1} in this file"
            try:
                entry, _ = entry_of(text)
            except (ValueError, RecursionError):
                raise Wrong(f"{name} is none") from None
            if (entry.get("pipeline"), entry.get("sink")) != (self.chain.pipeline, self.chain.sink):
                raise Wrong(f"{name} is of another pipeline or sink")
            if hashes and entry.get("prev_hash") != hashes[-1]:
                raise Wrong(f"{name} does not follow the one before it")
            hashes.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
            self.entries.append(entry)
        if not self.texts:
            return Check("unproved", "this file has no entry")
        if self.head is None:
            return Check("unproved", "no signed head leads to them")
        return self._under(self.head, hashes)

    def _under(self, head: Head, hashes: Sequence[str]) -> Check:
        """Whether the entries lead to the head."""
        begin, first, count = self.chain.begin, self.first, len(self.chain.texts)
        if begin >= head.size:
            raise Wrong("the entries are behind the head")
        self.covered = min(len(hashes), head.size - begin)
        covered = [leaves.leaf_of(name) for name in hashes[: self.covered]]
        if _root(covered, begin, head.size, self.chain.path) != head.root:
            raise Wrong("the entries do not lead to the head")
        behind = first + count - self.covered
        if behind > 0:
            return Check("unproved", f"{behind:,} of {plural(count, 'entry')} came after the head was signed")
        return Check(self.right, f"{begin + first + 1:,} to {begin + first + count:,}" if count else "none")

    def _period(self) -> Check:
        """Where the period begins and ends: by the entries before and after it."""
        assert self.head is not None
        mine = [entry["committed_at"] for entry in self.entries[self.first : self.first + len(self.chain.texts)]]
        since, until = _micros(self.pack.period_from), _micros(self.pack.period_to)
        before = self.entries[0]["committed_at"] if self.first else None
        is_after = self.chain.after is not None and self.covered == len(self.texts)
        after = self.entries[-1]["committed_at"] if is_after else None
        outside = sum(not since <= at < until for at in mine)
        said = f"committed {_when(mine[0])} to {_when(mine[-1])}" if mine else "no entry"
        if outside:
            are = "entry is" if outside == 1 else "entries are"
            return Check("unproved", f"{outside:,} {are} of a time that is not of the period")
        if not self.beside:
            return Check(self.right, said)
        doubt = self._doubt(self.head, before, after)
        if doubt:
            return Check("unproved", doubt)
        earlier = "none before" if before is None else f"the one before {_when(before)}"
        later = "none after, up to the head" if after is None else f"the one after {_when(after)}"
        return Check(self.right, f"{said}; {earlier}; {later}")

    def _doubt(self, head: Head, before: int | None, after: int | None) -> str:
        """Why the entries may not be all of the period; "" where they are."""
        if before is None and self.chain.begin > 0:
            return "the entry before them is not in this file"
        if before is not None and before >= _micros(self.pack.period_from):
            return f"the entry before them is of {_when(before)}, not before the period"
        if after is None and self.chain.begin + self.covered < head.size:
            return "the entry after them is not in this file"
        if after is None and head.at < self.pack.period_to:
            return f"the head was signed {when(head.at)}, before the period ends"
        if after is not None and after < _micros(self.pack.period_to):
            return f"the entry after them is of {_when(after)}, not after the period"
        return ""


def _judged(check: Any) -> Check:
    try:
        found: Check = check()
    except Wrong as error:
        return Check("wrong", str(error), isinstance(error, _OtherKey))
    return found


def _opened(note: str, keys: Sequence[PublicKey], given: bool) -> Head:
    """The head of a note that one of the keys signed."""
    try:
        notes.read(note, "the signed note")
        if not _signers(note) & {(key.name, key.id) for key in keys}:
            raise _OtherKey(f"none of the keys {'that you gave' if given else 'in this file'} signed this head")
        return notes.verified(note, keys, "the signed note")
    except LedgerError as error:
        raise Wrong(str(error)) from None


def _signers(note: str) -> set[tuple[str, bytes]]:
    """Who signed a whole note, by name and the four bytes before the signature."""
    lines = [line.split(" ") for line in note.rpartition("\n\n")[2].splitlines()]
    return {(name, base64.b64decode(text[:8])[:4]) for _, name, text in lines}


def _root(found: Sequence[bytes], begin: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root over leaves from an index on, and the subtrees beside them."""
    beside = list(path)

    def walk(low: int, high: int) -> bytes:
        if high <= begin or low >= begin + len(found):
            if not beside:
                raise Wrong("the proof is too short")
            return beside.pop(0)
        if high - low == 1:
            return found[low - begin]
        middle = low + (1 << (high - low - 1).bit_length() - 1)
        left = walk(low, middle)
        return merkle.node_hash(left, walk(middle, high))

    root = walk(0, size)
    if beside:
        raise Wrong("the proof is too long")
    return root


def _micros(at: datetime) -> int:
    return (at - _BEGIN) // timedelta(microseconds=1)


def _when(micros: int) -> str:
    return when(_BEGIN + timedelta(microseconds=micros))


__all__ = ["Check", "PackVerification", "VerifiedChain", "keys_of", "verify", "worst"]
