"""What an evidence check asks for while it judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from recon.checks.base import EvidenceCheck
from recon.model import CommitRows, RowsWitness, Unavailable, Witnesses
from recon.model.evidence import Answers, Questions
from recon.model.offsets import Spans


@dataclass
class Asked:
    """A reader that has nothing but what the witnesses have, and remembers what it was asked for."""

    given: Witnesses
    for_rows: bool = False
    versions: list[int] = field(default_factory=list)
    questions: dict[tuple[str, int], Spans] = field(default_factory=dict)

    def rows(self) -> RowsWitness | Unavailable:
        self.for_rows = True
        return self.given.rows

    def commit_rows(self, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        self.versions += versions
        return self.given.commit_rows

    def answers(self, questions: Questions) -> Answers | Unavailable:
        for where, spans in questions.items():
            self.questions[where] = spans.union(self.questions.get(where, Spans()))
        return {}


def _asked(check: EvidenceCheck, seen: Witnesses) -> Asked:
    asked = Asked(seen)
    check.judge(replace(seen, reader=asked))
    return asked


def wants_rows(check: EvidenceCheck, seen: Witnesses) -> bool:
    """Whether it asks for the rows of the sink."""
    return _asked(check, seen).for_rows


def commits_to_read(check: EvidenceCheck, seen: Witnesses) -> Sequence[int]:
    """The commits into whose data files it looks."""
    return _asked(check, seen).versions


def questions(check: EvidenceCheck, seen: Witnesses) -> Questions:
    """What it asks Kafka first."""
    return _asked(check, seen).questions
