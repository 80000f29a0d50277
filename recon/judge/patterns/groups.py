"""Findings that evidence alone puts together, as their offsets and micro-batches are compared with others'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from recon.judge.patterns.facts import Number, Place
from recon.model import Code, Finding
from recon.model.grouping import spans_by
from recon.model.incident import Harm
from recon.model.offsets import Spans
from recon.model.positions import is_kafka


@dataclass(frozen=True)
class Group:
    """Findings of one harm and state, which name the same offsets, micro-batch or commit.

    `kind` is what happened, whatever a check calls it. `unread` is whether checks say that nothing read the offsets.
    """

    harm: Harm
    kind: str
    state: str
    findings: Sequence[Finding]
    unread: bool = False

    @cached_property
    def offsets(self) -> Mapping[Place, Spans]:
        """The offsets that findings name one by one: where they count as many rows, or do not count."""
        exact = [f for f in self.findings if f.span is not None and f.span.size > 0 and not is_counted(f)]
        return spans_by(((f.topic or "", f.partition or 0), f.span) for f in exact if f.span is not None)

    @cached_property
    def is_exact(self) -> bool:
        """Whether all findings name offsets of Kafka one by one, of one incarnation of each topic."""
        if len({(f.topic, f.topic_id) for f in self.findings}) > len({f.topic for f in self.findings}):
            return False
        return all(
            f.topic is not None and is_kafka(f.topic) and f.span is not None and not is_counted(f)
            for f in self.findings
        )

    @cached_property
    def numbers(self) -> frozenset[Number]:
        """The micro-batches that the findings name."""
        return frozenset((f.epoch, f.batch_id) for f in self.findings if f.epoch is not None and f.batch_id is not None)

    @property
    def codes(self) -> frozenset[Code]:
        """What checks call it."""
        return frozenset(f.code for f in self.findings)


def is_counted(finding: Finding) -> bool:
    """Whether a finding counts rows without saying of which offsets they are."""
    return finding.rows is not None and (finding.span is None or finding.rows != finding.span.size)


def united(groups: Sequence[Group]) -> Mapping[Place, Spans]:
    """The offsets of several groups."""
    return spans_by((place, span) for group in groups for place, spans in group.offsets.items() for span in spans)
