"""Random histories of a function that puts no number on its commits, held against what really is in the table."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from deltalake import DeltaTable
from hypothesis import given, note, settings
from hypothesis import strategies as st

from recon.model import Level
from tests.support.native_stream import NativeStream
from tests.unit.observer.test_look import answer, codes
from tests.unit.observer.test_look_at_rows import audited, entered, of, project_in

HISTORIES = int(os.environ.get("RECON_OBSERVED_HISTORIES", "40"))
STEPS = (
    "written",
    "written",
    "written",
    "swallowed",
    "tried again",
    "in two parts",
    "one row less",
    "late",
    "copied now",
    "other rows now",
    "other rows and swallowed",
    "copied and swallowed",
    "next micro-batch's rows now",
    "interrupted",
    "empty",
    "purged",
    "checkpoint lost, goes on",
    "checkpoint lost, reads again",
    "checkpoint lost, leaves out",
    "audit",
    "audit",
)


class History:
    """A stream of one partition; each micro-batch reads ten offsets."""

    def __init__(self, folder: Path) -> None:
        self.stream = NativeStream(folder / "checkpoint", folder / "table", app_id="app", numbered=False)
        self.stream.start({"t": {0: 0}})
        self.folder, self.end = folder, 0
        self.reads: list[tuple[int, int]] = []  # of each micro-batch that Spark finished
        self.late: list[range] = []

    def does(self, step: str) -> None:
        if step.startswith("checkpoint lost"):
            self._loses_the_checkpoint({"on": 0, "in": -5, "ut": 5}[step[-2:]])
        elif step == "purged":
            plans = sorted(int(file.name) for file in (self.folder / "checkpoint/offsets").iterdir())
            self.stream.purge(*plans[:-1])
        elif step == "other rows now":
            self._appends(range(1_000, 1_003))
        elif step == "empty":
            self.stream.batch({"t": {0: self.end}}, writes=False)
        elif step == "copied now":
            self._appends(range(max(self.end - 10, 0), self.end))
        elif step == "next micro-batch's rows now":
            self._appends(range(self.end, self.end + 10))
        else:
            self._micro_batch(step)

    def _micro_batch(self, step: str) -> None:
        begin, self.end = self.end, self.end + 10
        mine = range(begin, self.end)
        if step == "interrupted":  # behind the write; the driver starts again, and Spark gives it once more
            self.stream.batch({"t": {0: self.end}}, of(mine), commits=False)
            self.stream.at += timedelta(minutes=5)
            self._appends(mine)
            self._finish()
        elif step in ("swallowed", "late"):
            self.stream.batch({"t": {0: self.end}}, writes=False)
            self.late += [mine] if step == "late" else []
        elif step.endswith("and swallowed"):
            self.stream.batch({"t": {0: self.end}}, of(range(1_000, 1_003) if "other" in step else mine))
        elif step == "in two parts":
            self.stream.batch({"t": {0: self.end}}, of(mine[::2]), commits=False)
            self._appends(mine[1::2])
            self._finish()
        elif step == "tried again":
            self.stream.batch({"t": {0: self.end}}, of(mine), commits=False)
            self._appends(mine)
            self._finish()
        else:
            self.stream.batch({"t": {0: self.end}}, of(mine[:-1] if step == "one row less" else mine))
            for offsets in self.late:
                self._appends(offsets)
            self.late.clear()
        self.reads.append((begin, self.end))

    def _finish(self) -> None:
        number = self.stream.batch_id
        (self.folder / "checkpoint/commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self.stream.batch_id += 1

    def _appends(self, offsets: Sequence[int]) -> None:
        """An append of whoever, a moment after what was written last."""
        self.stream.at -= timedelta(seconds=8)
        if offsets:
            self.stream.commit(0, of(offsets))
        self.stream.at += timedelta(seconds=8)

    def _loses_the_checkpoint(self, shift: int) -> None:
        shutil.rmtree(self.folder / "checkpoint")
        self.end = max(self.end + shift, 0)
        self.stream.start({"t": {0: self.end}})
        self.stream.at += timedelta(seconds=10)


@settings(max_examples=HISTORIES, deadline=None, derandomize=HISTORIES == 40)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=8))
def test_complete_is_never_said_of_what_is_lost_or_doubled(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project, history = project_in(folder), History(folder)
        for step in (*steps, "audit"):
            if step != "audit":
                history.does(step)
                continue
            run = audited(project)
            entries = entered(project)
            said = [(str(f.code), f.message) for r in run.results for f in r.findings]
            note(f"{answer(run)}: {run.pipelines[0].because}, {entries}, {said}")
            if not entries:
                assert answer(run) != "complete"
                continue
            since = min(version for _, _, version, _ in entries if version is not None)
            # No verdict speaks of the rows that the table had before.
            before = _at(folder, since - 1) if since else Counter[int]()
            rows = _at(folder) - before
            first = min(_at(folder, since) - before)
            note(str(sorted(rows.items())))
            speaks_of = {n for begin, end in history.reads for n in range(max(begin, first), end)}
            lost = {n for n in speaks_of if not rows[n]}
            doubled = {n for n, count in rows.items() if count > 1 and n >= first}
            strange = {n for n in rows if n >= first and n not in speaks_of}
            if answer(run) == "complete":
                assert not before or "UNWITNESSED" in codes(run, Level.WARN)
                assert not lost and not doubled and not strange, (lost, doubled, strange)
            elif answer(run) == "not complete":
                read = Counter(n for begin, end in history.reads for n in range(begin, end))
                read_twice = any(count > 1 for count in read.values())
                unread = set(range(history.end)) - read.keys()
                missing = read.keys() - _at(folder).keys()  # also of before the first entry
                assert missing or doubled or read_twice or unread


def _at(folder: Path, version: int | None = None) -> Counter[int]:
    table = DeltaTable(str(folder / "table"), version=version)
    return Counter(table.to_pyarrow_table(columns=["kafka_offset"])["kafka_offset"].to_pylist())
