"""What the offsets of findings have in common, and what usually causes that. Pure functions of findings and witnesses.

`facts` is what an audit knows of the micro-batches behind findings, `groups` the findings that evidence alone puts
together. `shapes` says what groups have in common; a shape is named only where it holds for each offset that it speaks
of. `stretches` finds offsets that repeat with a period. `causes` lists what usually makes such a shape in such a sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recon.judge.patterns.causes import causes_of
from recon.judge.patterns.facts import Facts
from recon.judge.patterns.groups import Group, united
from recon.judge.patterns.shapes import in_common
from recon.model import Pattern
from recon.model.positions import partition_name

__all__ = ["Facts", "Group", "patterns_of"]


def patterns_of(groups: Sequence[Group], facts: Facts) -> Iterator[tuple[Pattern, Sequence[int]]]:
    """What groups have in common, each time with their places in the list; a group is in one of these at most."""
    for common in in_common(groups, facts):
        mine = [groups[at] for at in common.groups]
        offsets = [
            f"{partition_name(*place)} [{span.start}, {span.end})"
            for place, spans in sorted(united(mine).items())
            for span in spans
        ]
        causes = causes_of(common, mine, facts) if mine[0].state == "open" else ()
        first, last = (offsets[0], offsets[-1]) if offsets else ("", "")
        yield Pattern(shape=common.shape, says=common.says, first=first, last=last, causes=causes), common.groups
