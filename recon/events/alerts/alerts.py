"""The consumer that notifies one channel of problems: on change only, at most so often, and not twice by two processes.

A problem is claimed in the channel's memory, sent, and then marked as told. A claim that is never marked, since its
process ended, expires after some minutes: then another process sends it. So a message may come twice, and none is lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from recon.base.clock import utc_now
from recon.base.errors import EvidenceError, ReconError
from recon.events.alerts.channel import MESSAGE_S, Sender
from recon.events.alerts.memory import Memory, State
from recon.events.alerts.problems import Remembered, after, is_routine
from recon.events.alerts.text import Message, messages
from recon.events.model import Event
from recon.project import Project
from recon.project.alerts import Channel

log = logging.getLogger("recon")

CLAIM = timedelta(minutes=5)
_TRIES = 50  # states that others may store first
_READ_AGAIN_S = 60.0  # the memory, while streams go on as they did
_JUST_NOW_S = 5.0
_RETRY_S, _RETRY_LONGEST_S = 30.0, 600.0


class ChannelAlerts:
    """Tells one channel."""

    every: float | None = _RETRY_S

    def __init__(
        self,
        project: Project,
        channel: Channel,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
        within_s: float = MESSAGE_S,
    ) -> None:
        """Reaches nothing.

        Args:
            project: its `alerts`, and those of its pipelines.
            channel: one of them.
            now: the time, UTC.
            clock: seconds that never jump.
            within_s: the time that one message has.

        Raises:
            ConfigError: apprise is not installed, or does not know the channel's URL.
        """
        self.name = f"alerts to {channel.name}"
        self.kinds = frozenset({"audit.finished", "audit.failed", "finding.accepted", "micro_batch.*", "stream.*"})
        self._project, self._channel, self._now, self._clock = project, channel, now, clock
        self._wants = {
            name: project.alerts.told_of(channel, of_pipeline)
            for name, of_pipeline in [("", None), *((pipe.name, pipe.alerts) for pipe in project.pipelines)]
        }
        self._sender, self._memory = Sender(project, channel, within_s), Memory(project, channel.name)
        self._state: State | None = None  # as last seen
        self._read_at = float("-inf")
        self._unremembered = ""  # why the memory cannot be used
        self._left = False
        self._claimed_at = now()
        self._tried_at, self._retry_at, self._pause = float("-inf"), float("-inf"), _RETRY_S

    def take(self, events: Sequence[Event]) -> None:
        """Tells what the events change; what could not be told before is tried again.

        Raises:
            EvidenceError: a message was not sent, or what was told cannot be remembered.
        """
        if self._state is not None and self._clock() - self._read_at < _READ_AGAIN_S:
            known = self._state.problems
            events = [event for event in events if not is_routine(event, known)]
        if not events and not (self._left and self._clock() >= self._retry_at):
            return
        self._unremembered = ""
        self._tried_at = self._clock()
        plan = self._claim(events)
        failed = self._send(plan)
        if plan:
            self._settle(plan, failed)
        problems = [*failed.values(), *([self._unremembered] if self._unremembered else [])]
        if problems:
            self._retry_at, self._pause = self._clock() + self._pause, min(2 * self._pause, _RETRY_LONGEST_S)
            raise EvidenceError(problems[0])
        self._pause = _RETRY_S

    def close(self) -> None:
        """Tries once more what is left, unless that was tried just now."""
        if self._left and self._clock() - self._tried_at >= _JUST_NOW_S:
            self._retry_at = float("-inf")
            self.take(())

    # -- what to tell -------------------------------------------------------------------------------------------------

    def _claim(self, events: Sequence[Event]) -> list[Message]:
        """Stores what the events change, with what is told now marked as claimed."""
        plan: list[Message] = []

        def change(state: State) -> State:
            nonlocal plan
            at, known = self._now(), state.problems
            self._claimed_at = at
            for event in events:
                known = after(event, known)
            known = {key: remembered for key, remembered in known.items() if self._is_kept(remembered, at)}
            news = [
                remembered
                for remembered in known.values()
                if self._is_told(remembered) and not _is_claimed(remembered, at)
            ]
            alerts = self._project.alerts
            sent = tuple(then for then in state.sent if then > at - alerts.rate_limit.within)
            plan = messages(news, self._project.name, alerts.rate_limit.count - len(sent), alerts.report_url)
            claimed = {key for message in plan for key in message.tells}
            self._left = len(claimed) < len(news)
            problems = {
                key: replace(remembered, claimed=at) if key in claimed else remembered
                for key, remembered in known.items()
            }
            return replace(state, problems=problems, sent=(*sent, *([at] * len(plan))))

        self._change(change)
        return plan

    def _wants_of(self, remembered: Remembered) -> frozenset[str]:
        return self._wants.get(remembered.problem.pipeline, frozenset())

    def _is_told(self, remembered: Remembered) -> bool:
        """Whether the channel is to be told of it now."""
        wanted = "recovery" if remembered.news == "over" else remembered.problem.severity
        return bool(remembered.news) and wanted in self._wants_of(remembered)

    def _is_kept(self, remembered: Remembered, at: datetime) -> bool:
        """Whether it lasts, or its end is still to be told, or another process tells of it now."""
        return not remembered.ended or self._is_told(remembered) or _is_claimed(remembered, at)

    # -- telling ------------------------------------------------------------------------------------------------------

    def _send(self, plan: Sequence[Message]) -> Mapping[str, str]:
        """By key of what was not told, why."""
        failed: dict[str, str] = {}
        for message in plan:
            try:
                self._sender.send(message)
            except ReconError as error:
                failed |= dict.fromkeys(message.tells, str(error))
        return failed

    def _settle(self, plan: Sequence[Message], failed: Mapping[str, str]) -> None:
        """Marks what was told."""
        tells = {key: told for message in plan for key, told in message.tells.items()}

        def change(state: State) -> State:
            problems: dict[str, Remembered] = {}
            for key, remembered in state.problems.items():
                told = tells.get(key)
                if told is None:
                    problems[key] = remembered
                elif key in failed:
                    problems[key] = replace(remembered, claimed=None)
                elif told.ended and not remembered.ended:  # it began again while its end was told
                    problems[key] = Remembered(problem=remembered.problem, heard=remembered.heard)
                elif not told.ended:
                    problems[key] = replace(
                        remembered,
                        told=self._now(),
                        told_ids=told.problem.ids,
                        told_severity=told.problem.severity,
                        claimed=None,
                    )
            self._left = self._left or any(self._is_told(remembered) for remembered in problems.values())
            # What no channel took counts for no limit.
            sent = list(state.sent)
            for message in plan:
                if failed.keys() & message.tells.keys() and self._claimed_at in sent:
                    sent.remove(self._claimed_at)
            return replace(state, problems=problems, sent=tuple(sent))

        self._change(change)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _change(self, change: Callable[[State], State]) -> None:
        """Stores what `change` makes of the newest state, unless nothing changes.

        Where that cannot be read or written, this process goes on with what it knows itself.
        """
        if self._unremembered:
            self._state = change(self._state or State())
            return
        try:
            for _ in range(_TRIES):
                state = self._memory.newest()
                if state.damaged:
                    log.warning("%s: what it was told was damaged; what is open is told again", self.name)
                changed = change(state)
                if _same(changed, state):
                    self._remember(state)
                    return
                stored = self._memory.store(changed)
                if stored is not None:
                    self._remember(stored)
                    return
            raise EvidenceError("others stored it first each time")
        except Exception as error:
            if not isinstance(error, (ReconError, OSError)):
                raise
            self._unremembered = f"what channel {self._channel.name} was told cannot be remembered: {error}"
            self._state = change(self._state or State())

    def _remember(self, state: State) -> None:
        self._state, self._read_at = state, self._clock()


def _same(state: State, other: State) -> bool:
    return (state.problems, state.sent) == (other.problems, other.sent) and not other.damaged


def _is_claimed(remembered: Remembered, at: datetime) -> bool:
    return remembered.claimed is not None and timedelta(0) <= at - remembered.claimed < CLAIM
