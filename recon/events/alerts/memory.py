"""What a channel was told, kept beside the ledger: one small file per state, of which the newest counts.

A state is written under the next number, and only if nobody else wrote that number. Of two processes that send the same
at the same moment one writes it, and the other reads anew. Each file has a hash of what is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recon.base.errors import EvidenceError
from recon.base.limits import STORE_S, within
from recon.base.storage import Storage
from recon.events.alerts.problems import Known, Problem, Remembered
from recon.model.result import plain
from recon.project import Project

_KEPT = 20  # states; somebody may be reading an older one
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class State:
    """What a channel was told. `sent` are the times of its newest messages, `number` is of the file, 0 for none."""

    number: int = 0
    problems: Known = field(default_factory=dict)
    sent: tuple[datetime, ...] = ()
    damaged: bool = False


class Memory:
    """The states of one channel."""

    def __init__(self, project: Project, channel: str) -> None:
        """Reads nothing.

        A ledger in a catalog table has no folder: the states are then in the project's target folder.
        """
        location = project.ledger.location or project.target_path
        # A name may be '..'.
        uri = f"{project.resolve(location).rstrip('/')}/alerts/to_{channel}"
        self._folder = Storage(uri, project.storage_options)

    def newest(self) -> State:
        """The newest state; an empty one that is `damaged` where its file was edited or cut off.

        Raises:
            EvidenceError: the folder cannot be read.
        """
        while True:
            name = max(self._names(), default=None)
            if name is None:
                return State()
            content = self._folder.find(name)
            if content is not None:  # else it was removed meanwhile, and there are newer ones
                number = int(name.removesuffix(".json"))
                try:
                    return _parsed(number, content)
                except (ValueError, KeyError, TypeError, AttributeError):
                    return State(number=number, damaged=True)

    def store(self, state: State) -> State | None:
        """Stores what follows a state; it with its new number, or None where somebody else was faster.

        Raises:
            EvidenceError: it cannot be written.
        """
        number = state.number + 1
        late = f"{self._folder.uri} cannot be written: the store did not answer"
        try:
            created = within(STORE_S, lambda: self._folder.create(_name(number), _dumped(state)), late)
        except OSError as error:
            raise EvidenceError(f"{self._folder.uri} cannot be written: {error}") from error
        if not created:
            return None
        for name in self._names():
            if name < _name(number - _KEPT):
                self._folder.remove(name)
        return State(number=number, problems=state.problems, sent=state.sent)

    def _names(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith(".json") and name[:-5].isdigit()]


def _name(number: int) -> str:
    return f"{max(number, 0):012d}.json"


def _dumped(state: State) -> bytes:
    told = {"sent": plain(state.sent), "problems": [plain(remembered) for remembered in state.problems.values()]}
    return json.dumps({"schema_version": _VERSION, "sha256": _hash(told), **told}, ensure_ascii=False).encode()


def _hash(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _parsed(number: int, content: bytes) -> State:
    stored = json.loads(content)
    told = {"sent": stored["sent"], "problems": stored["problems"]}
    if stored["schema_version"] != _VERSION or stored["sha256"] != _hash(told):
        raise ValueError("edited, or of another version")
    problems = [_remembered(entry) for entry in told["problems"]]
    return State(
        number=number,
        problems={remembered.problem.key: remembered for remembered in problems},
        sent=tuple(datetime.fromisoformat(at) for at in told["sent"]),
    )


def _remembered(entry: Mapping[str, Any]) -> Remembered:
    problem = entry["problem"]
    return Remembered(
        problem=Problem(
            key=problem["key"],
            pipeline=problem["pipeline"],
            severity=problem["severity"],
            about=problem["about"],
            says=problem["says"],
            first_seen=datetime.fromisoformat(problem["first_seen"]),
            step=problem["step"],
            count=problem["count"],
            ids=tuple(problem["ids"]),
            checks=tuple(problem["checks"]),
            sink=problem.get("sink", ""),
        ),
        heard=datetime.fromisoformat(entry["heard"]),
        told=_time(entry["told"]),
        told_ids=tuple(entry["told_ids"]),
        told_severity=entry["told_severity"],
        ended=entry["ended"],
        claimed=_time(entry["claimed"]),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
