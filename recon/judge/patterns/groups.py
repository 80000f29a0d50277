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

# What these report, they say of whole ranges: of what no micro-batch read, or brought to the sink.
OF_RANGES = frozenset({"offset_continuity", "checkpoint_commits", "kafka_end_offsets"})
_OF_EACH = frozenset({Code.OVERLAP, Code.LOSS, Code.LOSS_RETENTION})


@dataclass(frozen=True)
class Group:
    """Findings of one harm and state, which name the same offsets, micro-batch or commit.

    `kind` is what happened, whatever a check calls it; `told` are the findings, each with its check.
    """

    harm: Harm
    kind: str
    state: str
    told: Sequence[tuple[Finding, str]]

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """The findings without their checks."""
        return [finding for finding, _ in self.told]

    @cached_property
    def unread(self) -> bool:
        """Whether checks of ranges alone report it: no micro-batch brought these offsets to the sink."""
        return all(check in OF_RANGES for _, check in self.told)

    @cached_property
    def offsets(self) -> Mapping[Place, Spans]:
        """The offsets that findings say something of, one by one."""
        exact = [f for f, check in self.told if names_each(f, check)]
        return spans_by(((f.topic or "", f.partition or 0), f.span) for f in exact if f.span is not None)

    @cached_property
    def is_exact(self) -> bool:
        """Whether all findings name offsets of Kafka one by one, of one incarnation of each topic."""
        if len({(f.topic, f.topic_id) for f in self.findings}) > len({f.topic for f in self.findings}):
            return False
        return all(names_each(finding, check) for finding, check in self.told)

    @cached_property
    def numbers(self) -> frozenset[Number]:
        """The micro-batches that the findings name."""
        numbers = (number_of(finding) for finding in self.findings)
        return frozenset(number for number in numbers if number is not None)

    @property
    def codes(self) -> frozenset[Code]:
        """What checks call it."""
        return frozenset(f.code for f in self.findings)


def number_of(finding: Finding) -> Number | None:
    """The micro-batch that a finding names."""
    if finding.epoch is None or finding.batch_id is None:
        return None
    return finding.epoch, finding.batch_id


def is_counted(finding: Finding) -> bool:
    """Whether a finding counts rows without saying of which offsets they are."""
    return finding.rows is not None and (finding.span is None or finding.rows != finding.span.size)


def names_each(finding: Finding, check: str) -> bool:
    """Whether a finding speaks of each of its offsets of Kafka, and not of some among them."""
    if finding.span is None or finding.span.size == 0 or finding.topic is None or not is_kafka(finding.topic):
        return False
    if finding.rows is not None:
        return finding.rows == finding.span.size
    return finding.code in _OF_EACH or (check in OF_RANGES and finding.code in (Code.GAP, Code.SKIPPED))


def united(groups: Sequence[Group]) -> Mapping[Place, Spans]:
    """The offsets of several groups."""
    return spans_by((place, span) for group in groups for place, spans in group.offsets.items() for span in spans)
