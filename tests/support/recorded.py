"""What audits of tests saw and said, kept in files, so that a changed judge can be held against it without a JVM.

With `RECON_RECORD=FOLDER` each test writes what the evidence checks of its audits got, one file a test;
`python -m scripts.recorded FOLDER` judges all of it again. The files are pickles of recon's classes. One that was moved
since is found by its name; record anew after one was renamed.
"""

from __future__ import annotations

import copyreg
import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, cast

from typing_extensions import override

import recon.checks
import recon.judge
import recon.model
from recon.audits import run
from recon.base.clock import utc_now
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.engine.reading import Reading
from recon.model import CheckResult, CommitRows, PipelineFacts, Unavailable, Witnesses
from recon.model.evidence import Answers, Questions
from recon.model.offsets import Spans
from recon.project import Pipeline, Project

FOLDER = os.environ.get("RECON_RECORD", "")
_NOT_READ = "the recorded audit did not read it"

Said = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One evidence check of an audit: what it got, what it read besides, and its result."""

    bound: Bound
    witnesses: Witnesses
    read: Witnesses
    refused: str
    result: CheckResult

    @property
    def name(self) -> str:
        """The check."""
        return self.bound.name

    def said(self) -> tuple[Said, Said]:
        """What the check said when it was recorded, and what it says of the same now."""
        reader = Reading(self._rows, self._commit_rows, self._answers)
        now = next(iter(runner.run_evidence([self.bound], lambda _: replace(self.witnesses, reader=reader), utc_now)))
        return _of_result(self.result), _of_result(now)

    def _rows(self) -> Any:
        return self.read.rows

    def _commit_rows(self, versions: Sequence[int]) -> Mapping[int, Any]:
        unread = Unavailable("commit_rows", _NOT_READ)
        return {version: self.read.commit_rows.get(version, unread) for version in versions}

    def _answers(self, questions: Questions) -> Answers | Unavailable:
        if self.refused:
            return Unavailable("kafka", self.refused)
        return {where: answer for where, answer in self.read.probes.items() if where in questions}


@dataclass(frozen=True, kw_only=True)
class Summed:
    """What an audit said of one pipeline, out of all that it had read of its sinks and of the checks' results."""

    project: Project
    pipeline: Pipeline
    witnesses: Witnesses
    of_sinks: Mapping[str, Witnesses]
    results: Sequence[CheckResult]
    keeps: bool
    facts: PipelineFacts

    @property
    def name(self) -> str:
        """What is said: the pipeline's answer."""
        return "answer"

    def of_sink(self, sink: str) -> Witnesses:
        """All that the audit had read of one sink."""
        return self.of_sinks[sink]

    def said(self) -> tuple[Said, Said]:
        """The answer and the sums when it was recorded, and those of the same now."""
        now = run.facts_of(self.project, self.pipeline, cast(Any, self), self.results, keeps=self.keeps)
        return _of_facts(self.facts), _of_facts(now)


Recorded = Judged | Summed


def _of_result(result: CheckResult) -> Said:
    found = [
        (str(f.code), str(f.level), f.topic, f.topic_id, f.partition, f.start_offset, f.end_offset, f.batch_id, f.epoch)
        for f in result.findings
    ]
    return {"status": str(result.status), "failures": result.failures, "found": sorted(found, key=repr)}


def _of_facts(facts: PipelineFacts) -> Said:
    of_sinks = [
        {each.name: getattr(sink, each.name) for each in dataclasses.fields(sink)} | {"account": repr(sink.account)}
        for sink in facts.sinks
    ]
    harms = sorted(repr((i.state, [(c.harm, c.offsets, c.rows) for c in i.counts])) for i in facts.incidents)
    return {"answer": facts.answer, "since": facts.since, "sinks": of_sinks, "incidents": harms}


@dataclass(frozen=True)
class _Present:
    """The offsets in the files of a commit, which an audit reads when asked."""

    spans: Sequence[Spans]

    def __call__(self) -> Sequence[Spans]:
        return self.spans


class _Pickler(pickle.Pickler):
    """Leaves out what values find out of themselves and keep: it is found again."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        if not dataclasses.is_dataclass(obj) or isinstance(obj, type) or not hasattr(obj, "__dict__"):
            return NotImplemented
        state = {each.name: obj.__dict__[each.name] for each in dataclasses.fields(obj) if each.name in obj.__dict__}
        if "derived" in state:
            state["derived"] = {}
        if isinstance(obj, CommitRows):
            state["present"] = _Present(obj.present())
        return copyreg.__newobj__, (type(obj),), state  # type: ignore[attr-defined]


@dataclass
class Recorder:
    """Keeps what the audits of one test saw and said."""

    folder: Path
    recorded: list[Recorded] = field(default_factory=list)
    _run_evidence: Callable[..., Iterator[CheckResult]] = runner.run_evidence
    _facts_of: Callable[..., PipelineFacts] = run.facts_of

    def listen(self) -> None:
        """From now on every audit of this process is recorded."""
        runner.run_evidence, run.facts_of = self._judged, self._summed

    def stop(self) -> None:
        """From now on none is."""
        runner.run_evidence, run.facts_of = self._run_evidence, self._facts_of

    def _judged(self, bounds: Sequence[Bound], witnesses_for: Any, clock: Any) -> Iterator[CheckResult]:
        for bound in bounds:
            given: list[Witnesses] = []

            def seen(asking: Bound, given: list[Witnesses] = given) -> Witnesses:
                given.append(witnesses_for(asking))
                return given[-1]

            for result in self._run_evidence([bound], seen, clock):
                if given:
                    self._keep(bound, given[-1], result)
                yield result

    def _keep(self, bound: Bound, witnesses: Witnesses, result: CheckResult) -> None:
        reading, alone = witnesses.reader, replace(witnesses, reader=None)
        read, refused = alone, ""
        if isinstance(reading, Reading):
            read, refused = reading.seen(alone), reading.unanswered
        self.recorded.append(Judged(bound=bound, witnesses=alone, read=read, refused=refused, result=result))

    def _summed(
        self, project: Project, pipeline: Pipeline, evidence: Any, results: Sequence[CheckResult], *, keeps: bool = True
    ) -> PipelineFacts:
        facts = self._facts_of(project, pipeline, evidence, results, keeps=keeps)
        of_sinks = {sink.name: replace(evidence.of_sink(sink.name), reader=None) for sink in facts.sinks}
        alone = replace(evidence.witnesses, reader=None)
        self.recorded.append(
            Summed(
                project=project,
                pipeline=pipeline,
                witnesses=alone,
                of_sinks=of_sinks,
                results=tuple(results),
                keeps=keeps,
                facts=facts,
            )
        )
        return facts

    def write(self, test: str) -> None:
        """Writes what was recorded since the last time into one file, named after the test.

        A test whose project holds a function of its own leaves none, and a line on stderr says so.
        """
        recorded, self.recorded = self.recorded, []
        if not recorded:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        written = io.BytesIO()
        try:
            _Pickler(written, protocol=5).dump((test, recorded))
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            print(f"not recorded: {test}: {error}", file=sys.stderr)
            return
        name = f"{hashlib.sha256(test.encode()).hexdigest()[:16]}.gz"
        (self.folder / name).write_bytes(gzip.compress(written.getvalue(), 1))


def recorder() -> Recorder | None:
    """The recorder of this process, which listens; None where nobody asked for it."""
    if not FOLDER:
        return None
    listening = Recorder(Path(FOLDER))
    listening.listen()
    return listening


def recordings(folder: Path) -> Iterator[tuple[str, Sequence[Recorded]]]:
    """The tests of a folder, and what was recorded of each."""
    for file in sorted(folder.glob("*.gz")):
        yield _Reader(io.BytesIO(gzip.decompress(file.read_bytes()))).load()


class _Reader(pickle.Unpickler):
    """Reads what another tree recorded, whose classes may have been in other modules."""

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return super().find_class(module_name, global_name)
        except (ImportError, AttributeError):
            return getattr(import_module(_module_of(global_name, module_name)), global_name)


@cache
def _module_of(class_name: str, before: str) -> str:
    """The one module that defines a class of this name now; of several, the one in the room where it was."""
    found = [
        name
        for package in (recon.judge, recon.model, recon.checks)
        for _, name, _ in walk_packages(package.__path__, f"{package.__name__}.")
        if getattr(vars(import_module(name)).get(class_name), "__module__", "") == name
    ]
    if len(found) > 1:
        found = [name for name in found if name.split(".")[:2] == before.split(".")[:2]]
    if len(found) != 1:
        raise AttributeError(f"{class_name} is defined in {found or 'no module'} of recon now: record anew")
    return found[0]
