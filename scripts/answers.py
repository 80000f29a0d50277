"""What the judge of a tree says of histories and stories of tests/truth, a line of JSON each: scripts/differential.py.

    python scripts/answers.py histories FIRST COUNT
    python scripts/answers.py stories

It needs nothing of the tree but `tests.truth`, so that it runs on the tree of an older commit, too.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

from tests.truth.histories import history
from tests.truth.stories import STORIES

_ANSWERED = ("REPAIRED", "ACCEPTED")


def said(judgement: Any) -> dict[str, Any]:
    """The answer, and what was found of which offsets or micro-batch; no message."""
    found = {
        (str(f.code), f.topic, f.topic_id, f.partition, f.start_offset, f.end_offset, f.batch_id, f.epoch)
        for result in judgement.results
        for f in result.findings
        if str(f.level) != "info" or str(f.code) in _ANSWERED
    }
    return {"answer": judgement.answer, "found": sorted(found, key=repr)}


def histories(first: int, count: int) -> Iterator[dict[str, Any]]:
    """The last audits of histories."""
    for seed in range(first, first + count):
        acts, world, judgement = history(seed)
        whole = world.truth_since(judgement.first_batch_id).whole
        faults = sorted(set(acts) - {"runs", "audited", "new epoch"})
        yield {"name": seed, "faults": faults, "whole": whole, **said(judgement)}


def stories() -> Iterator[dict[str, Any]]:
    """The last audits of the stories of the fault catalogue."""
    for name, case in STORIES.items():
        world, judgement = case.story()
        whole = world.truth_since(judgement.first_batch_id).whole
        yield {"name": name, "faults": [], "whole": whole, **said(judgement)}


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    kind, *numbers = sys.argv[1:]
    for answer in histories(*map(int, numbers)) if kind == "histories" else stories():
        print(json.dumps(answer), flush=True)  # noqa: T201
