"""Somebody who follows what an audit prints, in a `World`: each command is parsed by the real command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recon.judge.history.table_history import as_write
from recon.model import Level
from recon.model.proof import Acceptance, with_id
from recon.recovery.repair.plan import RepairPlan
from recon.recovery.starting_offsets import ends_in_kafka, ledgers_end
from recon.recovery.topic_clusters import clusters_of
from recon.write.ledger.rebuild import unrecorded
from tests.support.pages import parsed_command
from tests.truth.histories import restores_entries
from tests.truth.judge import Judgement, WorldSources, audit
from tests.truth.repairs import repair, repair_plan
from tests.truth.world import PIPELINE, SINK, World

Given = Mapping[str, Any]  # the options and arguments of a command, as the command line reads them


@dataclass
class Followed:
    """What somebody did who followed an audit, and what recon said to it.

    Attributes:
        commands: as they were printed, in the order in which they were run.
        plans: of the repairs.
        accepted: the ids of findings that were accepted.
        last: what the last audit said.
    """

    world: World
    last: Judgement
    commands: list[str] = field(default_factory=list)
    plans: list[RepairPlan] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)

    def run(self, command: str) -> None:
        """Runs a printed command; one that recon's command line does not read is an error."""
        name, given = parsed_command(shlex.split(command)[1:])
        self.commands.append(command)
        _COMMANDS[name](self, given)

    def audits(self, given: Given) -> None:
        """`recon audit`."""
        self.last = audit(self.world, full=given["full"])

    def repairs(self, given: Given) -> None:
        """`recon repair plan`, and `recon repair apply` where the plan does something."""
        assert given["pipeline"] in (PIPELINE, None) and given["sink"] in (SINK, None), given
        plan = repair_plan(self.world, finding=given["finding"])
        self.plans.append(plan)
        if plan.does_something:
            repair(self.world, finding=given["finding"])

    def accepts(self, given: Given) -> None:
        """`recon accept`; what an id in front of it accepted along with it is left."""
        state = self.world.ledger.proofs.newest(PIPELINE, SINK)
        assert state is not None
        ids = {waiting.id for waiting in with_id(state.open, given["finding"])}
        by = Acceptance(by=given["by"], reason=given["reason"], at=self.world.now)
        opened = tuple(
            replace(waiting, accepted=by) if waiting.id in ids and waiting.accepted is None else waiting
            for waiting in state.open
        )
        assert self.world.ledger.proofs.append(
            replace(state, open=opened), after=state.sequence, prev_hash=state.entry_hash, cause="accept", at=by.at
        )
        self.accepted += ids

    def offsets(self, command: str) -> Mapping[str, Mapping[str, int]]:
        """What a printed `recon offsets` prints."""
        name, given = parsed_command(shlex.split(command)[1:])
        assert (name, given["pipeline"]) == ("offsets", PIPELINE), command
        self.commands.append(command)
        world, sources = self.world, WorldSources(self.world)
        entered = {(epoch, number) for epoch, number, _ in world.ledger.numbers(PIPELINE, SINK)}
        later = [
            as_write(commit, commit.stamp)
            for _, commit in sorted(world.commits.items())
            if commit.stamp is not None and unrecorded(commit.stamp, PIPELINE, SINK, entered)
        ]
        last = ledgers_end(world.ledger, PIPELINE, SINK, later)
        kafka = sources.kafka(world.query.topics, {}, {})
        clusters = clusters_of(world.ledger, sources.pipeline, kafka)
        return ends_in_kafka(last, kafka, clusters, lambda: world.ledger.coverage(PIPELINE, SINK))

    def starts_fresh(self, command: str) -> None:
        """The query starts on a fresh checkpoint with what `recon offsets` prints, as Spark takes it: whole."""
        starts = {(topic, int(p)): offset for topic, of in self.offsets(command).items() for p, offset in of.items()}
        there = {(topic, p) for topic in self.world.query.topics for p in range(len(self.world.topics[topic].logs))}
        assert set(starts) == there, "Spark takes startingOffsets that name every partition, and no other"
        self.world.query.left_out.clear()
        self.world.new_checkpoint(starts)

    def restores_entries(self, given: Given) -> None:
        """`recon ledger rebuild`."""
        restores_entries(self.world)

    def looks(self, given: Given) -> None:
        """A command that only shows something."""


_COMMANDS: Mapping[str, Callable[[Followed, Given], None]] = {
    "audit": Followed.audits,
    "repair plan": Followed.repairs,
    "accept": Followed.accepts,
    "findings": Followed.looks,
    "explain": Followed.looks,
    "offsets": Followed.looks,
    "advise": Followed.looks,
    "ledger verify": Followed.looks,
    "ledger rebuild": Followed.restores_entries,
}


def printed(judgement: Judgement) -> Sequence[str]:
    """The commands that an audit prints: those of its messages, and those of its open incidents."""
    told = [f.message for r in judgement.results for f in r.findings if f.level is not Level.INFO]
    of_messages = [command for message in told for command in re.findall(r"`(recon [^`]*)`", message)]
    steps = [step.command for incident in judgement.facts.incidents for step in incident.steps]
    # A message names a command, and the incident's step has it with all that it needs.
    whole = [command for command in of_messages if not any(step.startswith(command) for step in steps)]
    return list(dict.fromkeys([*(command for command in whole if not command.startswith("recon accept")), *steps]))
