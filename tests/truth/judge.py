"""recon's real judge in a `World`: the same reading order, checks and answer as `recon audit`, read from memory."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from typing_extensions import override

from recon.audits import run as audit_run
from recon.audits.collect import collect
from recon.audits.options import Options
from recon.audits.session import AuditSession
from recon.audits.sources import Sources
from recon.audits.store import append_proof
from recon.base.errors import EvidenceError
from recon.checks.binding import bind
from recon.checks.bound import Bound
from recon.checks.engine import runner
from recon.checks.select import select
from recon.judge.account.lines import account_of
from recon.judge.case import SinkCase
from recon.model import (
    WITHOUT_NUMBER,
    Answer,
    CheckpointWitness,
    CheckResult,
    Code,
    CommitRows,
    CountedRows,
    KafkaPartition,
    KafkaTopic,
    KafkaWitness,
    Level,
    LiveFiles,
    PipelineFacts,
    ProbeAnswer,
    ProgressWitness,
    RowGroup,
    RowSearch,
    RowsWitness,
    RunResult,
    TableCommit,
    TableLog,
    Unavailable,
)
from recon.model.deletion import AskedDeletion, DeletedRows
from recon.model.erasure import Erasure
from recon.model.evidence import Answers, Questions
from recon.model.fingerprint import of_offsets
from recon.model.offsets import OffsetSpan, Span, Spans
from recon.project import CheckSpec, DeltaSink, LedgerConfig, Pipeline, Project, Sink, Source
from recon.project.model import Rows
from recon.project.sinks.deletes import Age, DeletedBy, Deletes
from recon.witness.sink_rows import group_of, repeated
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.results import hash_of, rows_of
from tests.support.codes_page import unlisted
from tests.support.subjects import assert_subjects
from tests.truth.accounts import wrong_in
from tests.truth.world import (
    ELSEWHERE,
    ELSEWHERES_PIPELINE,
    KEPT_FOR,
    PIPELINE,
    RETENTION,
    SINK,
    TOPIC,
    IsolationLevel,
    Row,
    World,
    fingerprint,
)

Offsets = Mapping[tuple[str, int], int]
Epochs = Mapping[tuple[str, int], Collection[tuple[int, int]]]

_OF_PIPELINE = ("offset_continuity", "kafka_end_offsets", "checkpoint_commits")
_OF_SINK = ("ledger_integrity", "delta_history", "source_rows")


@cache
def project(
    isolation_level: IsolationLevel, topics: tuple[str, ...] = (TOPIC,), elsewhere: tuple[str, ...] = ()
) -> Project:
    """A project with every check that "complete" rests on; where topics `elsewhere` are named, with who reads these."""
    hours = KEPT_FOR // timedelta(hours=1)
    deletes = Deletes(by=DeletedBy(user_metadata=RETENTION), older_than=Age(count=hours, period="hour"))
    tests = tuple(CheckSpec(test=name) for name in _OF_SINK)
    sink = DeltaSink(name=SINK, target="orders", data_tests=tests, deletes=(deletes,))
    pipeline = Pipeline(
        name=PIPELINE,
        checkpoint="cp",
        source=Source(topics=topics, isolation_level=isolation_level),
        data_tests=tuple(CheckSpec(test=name) for name in _OF_PIPELINE),
        sinks=(sink,),
    )
    other = Pipeline(
        name=ELSEWHERES_PIPELINE,
        checkpoint="cp_elsewhere",
        source=Source(topics=elsewhere),
        sinks=(DeltaSink(name=SINK, target="orders"),),
    )
    pipelines = (pipeline, other) if elsewhere else (pipeline,)
    return Project(name="truth", ledger=LedgerConfig(location="_recon"), pipelines=pipelines, project_dir=Path())


@cache
def _selected(isolation_level: IsolationLevel, topics: tuple[str, ...], only: tuple[str, ...]) -> list[Bound]:
    """The project's checks, or those with the names that an audit is asked for."""
    selectors = [f"test_name:{name}" for name in only]
    bounds = [b for b in select(bind(project(isolation_level, topics)), selectors, (), None) if b.kind == "evidence"]
    assert not only or {bound.check.test for bound in bounds} == set(only)
    return bounds


class WorldSources(Sources):
    """The witnesses of a world as it is now."""

    def __init__(self, world: World) -> None:
        of = project(world.declared, world.named, (ELSEWHERE,) if ELSEWHERE in world.topics else ())
        super().__init__(of, of.pipelines[0], AuditSession(of, no_spark=True, spark=None))
        object.__setattr__(self, "world", world)

    world: World

    @override
    def other_writers(self, sink: Sink) -> Sequence[tuple[Sources, Sink]]:
        """The pipeline that reads elsewhere, which writes through the hook."""
        found = []
        for pipeline, its in self.project.other_writers(self.pipeline, sink):
            other = copy(self)
            object.__setattr__(other, "pipeline", pipeline)
            found.append((other, its))
        return found

    @override
    def ledger(self) -> Ledger:
        return self.world.ledger

    @override
    def checkpoint(self) -> CheckpointWitness:
        query = self.world.query
        batches = tuple(query.planned)
        return CheckpointWitness(
            location="cp",
            query_id=query.query_id,
            batches=batches,
            sources=query.sources,
            begins=query.initial,
            flaws=self.world.flaws,
        )

    @override
    def history(self, sink: Sink, from_version: int | None, *, files: bool) -> TableLog:
        world = self.world
        commits = {v: _with_origins(c, from_version, world.commits) for v, c in world.commits.items()}
        txns: dict[str, int] = {}
        for commit in commits.values():
            txns.update(commit.txn)
        return TableLog(
            location="lake/orders",
            exists=bool(commits),
            first_retained=min(commits, default=None),
            last=max(commits, default=None),
            commits={v: c for v, c in commits.items() if from_version is None or v >= from_version},
            txns=txns,
            table_id=world.table_id if commits else None,
            files=self._live_files() if files else Unavailable("delta_files", "the data files were not looked at"),
        )

    def _live_files(self) -> LiveFiles:
        """A file for each version that has rows; the log does not know which of them are gone."""
        rows = [*self.world.rows, *(row for of_file in self.world.lost_files for row in of_file)]
        files = len({row.version for row in rows})
        without = 0 if self.world.statistics else files
        return LiveFiles(
            files=files,
            rows=None if without else len(rows),
            without_statistics=without,
            gone=self.world.files_gone,
        )

    @override
    def commit_rows(self, sink: Sink, versions: Sequence[int]) -> Mapping[int, CommitRows | Unavailable]:
        return {version: self._added(version) for version in versions}

    def _added(self, version: int) -> CommitRows | Unavailable:
        """The rows in the files that a version added; nobody runs VACUUM, but files may be removed."""
        world = self.world
        places = [row.place for row in world.snapshots.get(version, world.rows) if row.version == version]
        gone = any(rows[0].version == version for rows in world.lost_files)
        if gone or len(places) != world.written[version]:
            return Unavailable("commit_rows", "data files are no longer in the store")
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, _, partition, offset in places:
            offsets.setdefault((topic, partition), []).append(offset)
        return CommitRows(
            version=version,
            held=CountedRows(len(places), fingerprint(places)),
            offsets=sum(len(set(mine)) for mine in offsets.values()),
            spans=[OffsetSpan(t, None, p, min(mine), max(mine) + 1) for (t, p), mine in sorted(offsets.items())],
            present=lambda: [Spans.of_offsets(mine) for _, mine in sorted(offsets.items())],
        )

    @override
    def deleted_rows(self, sink: Sink, asked: Sequence[AskedDeletion]) -> Mapping[int, DeletedRows | Unavailable]:
        return {question.version: self._deleted(question.version) for question in asked}

    def _deleted(self, version: int) -> DeletedRows | Unavailable:
        if version in self.world.vacuumed:
            return Unavailable("deleted_rows", "data files that it removed are no longer in the store")
        rows = self.world.deleted[version]
        places = [row.place for row in rows]
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, _, partition, offset in places:
            offsets.setdefault((topic, partition), []).append(offset)
        return DeletedRows(
            version=version, rows=len(rows), offsets={of: Spans.of_offsets(mine) for of, mine in offsets.items()}
        )

    @override
    def kafka(self, topics: Sequence[str], positions: Offsets, epochs: Epochs) -> KafkaWitness:
        described = {}
        for name in topics:
            topic = self.world.topics.get(name)
            if topic is None:
                described[name] = KafkaTopic(topic=name, exists=False)
                continue
            committed = self.world.declared == "read_committed"
            partitions = {}
            for p, log in enumerate(topic.logs):
                stable = log.end if log.stable is None else log.stable
                partitions[p] = KafkaPartition(
                    partition=p,
                    log_start=log.start,
                    log_end=stable if committed else log.end,
                    high_watermark=log.end,
                    last_stable=stable,
                    leader_epoch=log.leader_epoch,
                    kept={
                        (epoch, offset): log.kept(epoch, offset)
                        for epoch, offset in epochs.get((name, p), ())
                        if epoch != log.leader_epoch and log.start <= offset <= log.end
                    },
                )
            described[name] = KafkaTopic(
                topic=name,
                exists=True,
                topic_id=topic.topic_id,
                cluster_id=topic.cluster_id,
                cleanup_policy="compact" if topic.compacts else "delete",
                partitions=partitions,
            )
        return KafkaWitness(
            bootstrap_servers="memory", isolation_level=self.world.declared, read_at=self.world.now, topics=described
        )

    @override
    def progress(self, since: datetime, until: datetime | None, samples: int) -> ProgressWitness:
        return ProgressWitness(location="_recon/progress", batches=[], offsets={})  # no listener

    @override
    def erasures(self, sink: str) -> Sequence[tuple[Erasure, str]]:
        return ()

    @override
    def probe(self, questions: Questions) -> Answers:
        return {where: self._answer(where, asked) for where, asked in questions.items()}

    def _answer(self, where: tuple[str, int], asked: Spans) -> ProbeAnswer:
        topic, partition = where
        log = self.world.topics[topic].logs[partition]
        held = [
            (offset, log.kinds[offset])
            for start, end in asked
            for offset in range(max(start, log.start), min(end, log.end))
            if offset not in log.compacted
        ]
        stable = log.end if log.stable is None else log.stable
        return ProbeAnswer(
            topic=topic,
            partition=partition,
            requested=asked,
            uncommitted=Spans.of_offsets(o for o, kind in held if kind != "marker"),
            committed=Spans.of_offsets(o for o, kind in held if kind == "record" and o < stable),
            log_start=log.start,
            last_stable=stable,
            truncated=f"the log ends at {log.end}" if asked.ranges[-1].end > log.end else None,
        )

    @override
    def rows(
        self,
        sink: Sink,
        first_batch: int | None,
        search: RowSearch,
        *,
        version: int | None,
        lacking: bool,
        within: Mapping[tuple[str, int], Span] | None = None,
    ) -> RowsWitness | Unavailable:
        groups: dict[tuple[int, str, int], list[int]] = {}
        unstamped, live = 0, self.live_rows(sink)
        found = _looked_for(live, search)
        for row in live:
            if row.batch_id is None:
                unstamped += 1
            elif first_batch is None or row.batch_id >= first_batch:
                topic, _, partition, offset = row.place
                groups.setdefault((row.batch_id, topic, partition), []).append(offset)
        return RowsWitness(
            location="lake/orders",
            version=version,
            rows=unstamped + sum(map(len, groups.values())),
            unstamped_rows=unstamped,
            has_source_columns=True,
            groups=[group_of(*of, offsets) for of, offsets in sorted(groups.items())],
            repeated=repeated(found),
            of_others=found,
        )

    def live_rows(self, sink: Sink) -> Sequence[Row]:
        """The rows that the sink has now."""
        return self.world.rows


def _with_origins(commit: TableCommit, first: int | None, log: Collection[int]) -> TableCommit:
    """The commit as one reads it who reads the log from a version on: who wrote a file before that is not known."""
    of = commit.removed_rows_of
    known = of is None or all(version in log and version >= (first or 0) for version in of)
    return commit if known else replace(commit, removed_rows_of=None)


def _looked_for(rows: Sequence[Row], search: RowSearch) -> list[RowGroup]:
    """How many rows have the offsets of those that are looked for; by whether one of these has no number."""
    times = Counter(row.place[:1] + row.place[2:] for row in rows)  # rows carry no topic id
    numbered: dict[tuple[str, int, int], bool] = {}
    for row in rows:
        topic, _, partition, offset = row.place
        asked = offset in search.offsets.get((topic, partition), Spans())
        if row.version in search.versions or asked or (search.unnumbered and row.batch_id is None):
            numbered[topic, partition, offset] = (
                numbered.get((topic, partition, offset), True) and row.batch_id is not None
            )
    groups: dict[tuple[str, int, int, bool], list[int]] = {}
    for (topic, partition, offset), has_number in numbered.items():
        groups.setdefault((topic, partition, times[topic, partition, offset], has_number), []).append(offset)
    return [
        RowGroup(
            batch_id=0 if has_number else WITHOUT_NUMBER,
            topic=t,
            partition=p,
            rows=each * len(offsets),
            present=Spans.of_offsets(sorted(offsets)),
        )
        for (t, p, each, has_number), offsets in sorted(groups.items())
    ]


class WithoutKafka(WorldSources):
    """The same while no broker answers."""

    @override
    def kafka(self, topics: Sequence[str], positions: Offsets, epochs: Epochs) -> KafkaWitness:
        raise EvidenceError("no broker answers")


class WithoutSpark(WorldSources):
    """The same with --no-spark."""

    @override
    def rows(
        self,
        sink: Sink,
        first_batch: int | None,
        search: RowSearch,
        *,
        version: int | None,
        lacking: bool,
        within: Mapping[tuple[str, int], Span] | None = None,
    ) -> RowsWitness | Unavailable:
        return Unavailable("rows", "not read: --no-spark", skipped=True)


class DeclaresSeveral(WorldSources):
    """Its sources, where recon.yml says `rows: {explodes: true}`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        pipeline = self.pipeline.model_copy(update={"rows": Rows(explodes=True)})
        object.__setattr__(self, "pipeline", pipeline)
        object.__setattr__(self, "project", self.project.model_copy(update={"pipelines": (pipeline,)}))

    @override
    def rows(
        self,
        sink: Sink,
        first_batch: int | None,
        search: RowSearch,
        *,
        version: int | None,
        lacking: bool,
        within: Mapping[tuple[str, int], Span] | None = None,
    ) -> RowsWitness | Unavailable:
        found = super().rows(sink, first_batch, search, version=version, lacking=lacking, within=within)
        assert isinstance(found, RowsWitness)
        offsets: dict[tuple[int, str, int], list[int]] = {}
        for row in self.world.rows:
            if row.batch_id is not None:
                topic, _, partition, offset = row.place
                offsets.setdefault((row.batch_id, topic, partition), []).append(offset)
        groups = [
            replace(
                group,
                fingerprint=of_offsets(
                    group.topic, group.partition, offsets[group.batch_id, group.topic, group.partition]
                ),
            )
            for group in found.groups
        ]
        return replace(found, groups=groups)


@dataclass(frozen=True)
class Judgement:
    """What an audit said: the answer, why, and every check's result."""

    answer: Answer
    because: str
    results: tuple[CheckResult, ...]
    facts: PipelineFacts

    @property
    def codes(self) -> set[str]:
        """The codes that are more than an explanation, and what was repaired or accepted."""
        answered = (Code.REPAIRED, Code.ACCEPTED)
        findings = [f for r in self.results for f in r.findings]
        return {str(f.code) for f in findings if f.level is not Level.INFO or f.code in answered}

    @property
    def first_batch_id(self) -> int:
        """The micro-batch that the answer begins with; 0 where it speaks of all."""
        return int(self.facts.since.removeprefix("micro-batch ")) if self.facts.since else 0


def audit(
    world: World,
    *,
    from_: datetime | None = None,
    to: datetime | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    sources_of: Callable[[World], WorldSources] = WorldSources,
) -> Judgement:
    """`recon audit` at the world's present, which its results and its proof remember."""
    world.tick()
    sources = sources_of(world)
    options = Options(select=tuple(only), from_=from_, to=to, full=full)
    bounds = _selected(world.declared, world.named, options.select)
    evidence = collect(sources, bounds, options, world.now)
    results = tuple(runner.run_evidence(bounds, evidence.seen_by, lambda: world.now))
    facts = audit_run.facts_of(sources.project, sources.pipeline, evidence, results, keeps=options.goes_on)
    run = RunResult(
        invocation_id=str(uuid.uuid4()),
        project="truth",
        recon_version="0",
        generated_at=world.now,
        period_from=evidence.witnesses.period_from,
        period_to=evidence.witnesses.period_to,
        elapsed_time=0.0,
        results=results,
        pipelines=(facts,),
    )
    rows = rows_of(run)
    world.ledger.results.append_rows(rows)
    if options.goes_on:
        kept = append_proof(world.ledger.proofs, SINK, evidence.witnesses, results, run, hash_of(rows))
        assert kept == "" or evidence.witnesses.proofs.unreadable[SINK] in kept, kept
    if options.goes_on and not only and sources_of is WorldSources:
        world.lost_unread.clear()
    if sources_of is not WithoutKafka and not only:
        world.sees_open()
    if options.goes_on and not only and sources_of is WorldSources:
        world.seen |= {*world.deleted}
    assert_subjects(results)
    assert unlisted(results) == set(), "docs/evidence_checks.md lists the codes of each check"
    seen = evidence.of_sink(SINK)
    account, case = account_of(seen), SinkCase(seen)
    if account is not None:
        world.wrong_accounts += wrong_in(world, account, case.ledger, facts.answer, past=to is not None)
    told = Judgement(facts.answer, facts.because, results, facts)
    of = [f"from {from_}"] * (from_ is not None) + [f"to {to}"] * (to is not None) + ["--full"] * full + list(only)
    of += [sources_of.__name__] * (sources_of is not WorldSources)
    asked = f" ({'; '.join(of)})" if of else ""
    world.tell(f'An audit{asked} says "{told.answer}": {told.because}.')
    world.tell(f"It reports {', '.join(sorted(told.codes)) or 'no code'}.")
    return told
