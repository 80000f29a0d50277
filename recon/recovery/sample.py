"""Samples source records of a period as auditors do, and follows each to its sinks by every witness there is.

What is chosen is arithmetic (recon.model.sample). What became of a record is read anew, without Spark: from ledger
entries, the sink's record of writes, its rows, its quarantine table, the files of commits, and Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime
from functools import partial
from pathlib import Path

from recon._version import __version__
from recon.base.clock import utc_now
from recon.base.errors import ConfigError, LedgerError
from recon.base.instants import instant
from recon.base.lazy import np
from recon.model import LedgerSlice
from recon.model.offsets import Spans
from recon.model.positions import is_kafka
from recon.model.sample import (
    Frame,
    LedgerHead,
    Sample,
    SampledPath,
    SampledRecord,
    SourceRecord,
    choose,
    frames_of,
    key_of,
)
from recon.project import Pipeline, Project, as_project
from recon.recovery.paths import Broker, RecordPaths
from recon.spark.catalog import ask_active
from recon.write.ledger import coverage, open_ledger

Names = tuple[str, str]  # pipeline, sink
Covered = dict[tuple[int, str, str | None, int], Spans]  # source, topic, topic id, partition -> offsets


def sample(
    project: str | Path | Project,
    from_: datetime | date | str,
    to: datetime | date | str,
    *,
    n: int = 25,
    seed: str,
    stratify: bool = False,
    sinks: Collection[Names] | None = None,
) -> Sample:
    """Random source records of a period, each with its path to the sinks of its pipeline.

    Pipelines that read a Delta table or files have no offsets to choose from; they are named in `Sample.left_out`.

    Args:
        project: where recon.yml is, or a `Project`.
        from_: begin of the period, as `recon compliance` takes it.
        to: end of the period, excluded, but for a date, which includes that day.
        n: how many records; all, where the period has no more.
        seed: with the ledger's heads, what the choice is made of: the same gives the same sample.
        stratify: the same number of records from each pipeline.
        sinks: only these (pipeline, sink).

    Raises:
        ConfigError: the period is empty, has not begun or has no record of Kafka, or `n` is not positive.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project = as_project(project)
    ask_active(project)
    begin, end, now = instant("from_", from_), instant("to", to, ends=True), utc_now()
    if begin is None or end is None or not begin < min(end, now):
        raise ConfigError("the period of a sample must begin before it ends, and before now; give --from and --to")
    if n < 1:
        raise ConfigError(f"a sample has at least one record, not {n}")
    ledger = open_ledger(project)
    if not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}; nothing was ever recorded, so nothing can be drawn"
        )
    until = end if end < now else None
    of_pipeline = [
        (pipe, [sink for sink in pipe.sinks if sinks is None or (pipe.name, sink.name) in sinks])
        for pipe in sorted(project.pipelines, key=lambda pipe: pipe.name)
    ]
    slices = {
        (pipe.name, sink.name): ledger.slice(pipe.name, sink.name, begin, until)
        for pipe, chosen_sinks in of_pipeline
        for sink in chosen_sinks
    }
    heads = tuple(_head(names, of_sink) for names, of_sink in sorted(slices.items()))
    covered = {pipe.name: _covered(pipe, slices) for pipe, _ in of_pipeline}
    left_out = tuple(name for name, of_topics in covered.items() if any(not is_kafka(key[1]) for key in of_topics))
    population = tuple(frame for name, of_topics in covered.items() for frame in _frames(name, of_topics))
    if left_out and not population:
        raise ConfigError(
            f"pipeline {', '.join(left_out)} read no Kafka in the period, and rows of other sources have no offsets to "
            "choose from; a sample needs a pipeline that reads Kafka"
        )
    if not population:
        raise ConfigError(
            f"the ledger has no record that was read from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, so there "
            "is nothing to choose from; give another period"
        )
    records = choose(key_of(seed, heads), population, n, stratified=stratify)
    paths: dict[SourceRecord, list[SampledPath]] = {record: [] for record in records}
    for pipe, chosen_sinks in of_pipeline:
        mine = [record for record in records if record.pipeline == pipe.name]
        broker = Broker(project, ledger, pipe, mine)
        for sink in chosen_sinks if mine else ():
            every = partial(ledger.slice, pipe.name, sink.name, after=0, operations=())
            followed = RecordPaths(project, pipe, sink, ledger, slices[pipe.name, sink.name], mine, broker, every)
            for record, path in followed.paths().items():
                paths[record].append(path)
    return Sample(
        project=project.name,
        recon_version=__version__,
        generated_at=now,
        period_from=begin,
        period_to=end,
        seed=seed,
        asked=n,
        stratified=stratify,
        heads=heads,
        population=population,
        left_out=left_out,
        records=tuple(
            SampledRecord(number=number, record=record, paths=tuple(paths[record]))
            for number, record in enumerate(records, 1)
        ),
    )


def _head(names: Names, of_sink: LedgerSlice) -> LedgerHead:
    heads = of_sink.heads[of_sink.anchors :]
    return LedgerHead(*names, heads[-1].entry_hash if heads else "", len(heads))


def _covered(pipe: Pipeline, slices: Mapping[Names, LedgerSlice]) -> Covered:
    """What the entries of a pipeline's sinks say was read in the period, each offset once."""
    covered: Covered = {}
    for (pipeline, _), of_sink in slices.items():
        if pipeline != pipe.name:
            continue
        reads = np.array([at >= of_sink.anchors and head.reads for at, head in enumerate(of_sink.heads)], np.bool_)
        ranges = of_sink.ranges
        for source in {topic[0] for topic in ranges.topics}:
            of_source = np.array([topic[0] == source for topic in ranges.topics], np.bool_)
            for key, spans in coverage.of(ranges.take(reads[ranges.entry] & of_source[ranges.topic])).items():
                covered[source, *key] = covered.get((source, *key), Spans()).union(spans)
    return covered


def _frames(pipeline: str, covered: Covered) -> list[Frame]:
    """The offsets of Kafka among them: those of other sources are positions in a log, not records."""
    return frames_of(pipeline, {key: spans for key, spans in covered.items() if is_kafka(key[1])})
