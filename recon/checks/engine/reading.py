"""What one check asks for while it judges, and what it got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recon.base.text import plural
from recon.model import CommitRows, RowsWitness, Unavailable, Witnesses
from recon.model.deletion import AskedDeletion
from recon.model.evidence import Answers, Questions, SeenDeletions, joined

_UNREAD = Unavailable("rows", "the rows were not read")


def _unseen(asked: Sequence[AskedDeletion], instants: Collection[datetime]) -> SeenDeletions:
    return SeenDeletions()


def _nothing(questions: Questions) -> Answers:
    return {}


@dataclass
class Reading:
    """The `Reader` of one check: it reads by these functions, each when the check first asks.

    Args:
        read_rows: the rows of the judged sink.
        read_commits: the rows of some of its commits.
        ask: what Kafka's own records say.
        look_at: declared deletions of the sink, and how far the stream had read at some instants.
    """

    read_rows: Callable[[], RowsWitness | Unavailable] = lambda: _UNREAD
    read_commits: Callable[[Sequence[int]], Mapping[int, CommitRows | Unavailable]] = lambda versions: {}
    ask: Callable[[Questions], Answers | Unavailable] = _nothing
    look_at: Callable[[Sequence[AskedDeletion], Collection[datetime]], SeenDeletions] = _unseen
    _rows: RowsWitness | Unavailable | None = field(default=None, init=False)
    _commits: dict[int, CommitRows | Unavailable] = field(default_factory=dict, init=False)
    _seen: SeenDeletions = field(default_factory=SeenDeletions, init=False)
    _asked: set[tuple[str, int]] = field(default_factory=set, init=False)
    _answers: Answers = field(default_factory=dict, init=False)
    _refused: Unavailable | None = field(default=None, init=False)

    def rows(self) -> RowsWitness | Unavailable:
        """See `Reader`."""
        if self._rows is None:
            self._rows = self.read_rows()
        return self._rows

    def commit_rows(self, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        """See `Reader`."""
        read = self.read_commits(versions)
        self._commits.update(read)
        return read

    def deletions(self, asked: Sequence[AskedDeletion], instants: Collection[datetime]) -> SeenDeletions:
        """See `Reader`."""
        read = self.look_at(asked, instants)
        self._seen = self._seen.joined(read)
        return read

    def answers(self, questions: Questions) -> Answers | Unavailable:
        """See `Reader`."""
        self._asked.update(questions)
        answers = self.ask(questions)
        if isinstance(answers, Unavailable):
            self._refused = answers
            return answers
        self._answers = joined(self._answers, answers)
        return answers

    def seen(self, witnesses: Witnesses) -> Witnesses:
        """The witnesses with all that was read for the check."""
        return replace(
            witnesses,
            rows=witnesses.rows if self._rows is None else self._rows,
            commit_rows={**witnesses.commit_rows, **self._commits},
            probes={**witnesses.probes, **self._answers},
            deletions=self._with_seen(witnesses),
        )

    def _with_seen(self, witnesses: Witnesses) -> Mapping[str, SeenDeletions]:
        if not self._seen.rows:
            return witnesses.deletions
        sink = witnesses.sink or ""
        return {**witnesses.deletions, sink: witnesses.deletions.get(sink, SeenDeletions()).joined(self._seen)}

    @property
    def unanswered(self) -> str:
        """Why the check has not all answers that it asked for; "" where it has."""
        if self._refused is not None:
            return self._refused.reason
        missing = sorted(self._asked - set(self._answers))
        if not missing:
            return ""
        topic, partition = missing[0]
        return f"the probe gave no answer for {plural(len(missing), 'topic partition')}, {topic}-{partition} first"
