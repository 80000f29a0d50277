"""Binds recon.yml's tests to pipelines and sinks: which checks run, on what, under which names."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.checks.base import Check, EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.data.sql import SqlTest
from recon.checks.registry import build_all, check_class, known, line_of, refuse_thresholds
from recon.model.positions import SourceKind
from recon.project import CheckSpec, Pipeline, Project, Sink, Table
from recon.project.sql_tests import MODEL, SqlTests

# Bound for every sink whether listed or not, because every other evidence check trusts the ledger.
FOUNDATION = "ledger_integrity"
# By what a pipeline reads: the check that says how far it lags.
_LAG_OF: Mapping[SourceKind, str] = {
    "Kafka": "kafka_end_offsets",
    "a Delta table": "source_table",
    "a folder of files": "source_files",
}
_LONGEST_NAME = 100
_NOT_A_NAME = re.compile(r"[^0-9a-zA-Z_]+")


@dataclass(frozen=True)
class _ListedTest:
    """A test as recon.yml lists it: where it stands, and which pipeline and table it is about."""

    spec: CheckSpec
    place: str
    pipeline: Pipeline | None  # None for an entry of `tables`
    table: Sink | Table | None
    tags: tuple[str, ...] = ()
    singular: SqlTest | None = None  # the check, for a SQL file


def bind(project: Project) -> list[Bound]:
    """All enabled tests of a project, in order: a pipeline's own, then per sink its own and its columns'.

    Then come those of the entries of `tables`, and the files of SQL tests.

    A check judged per sink that is listed below the pipeline is bound once for each sink. A check judged per
    pipeline that is listed below a sink is bound for that sink. `ledger_integrity` is bound for every sink
    that does not list it, tagged `implicit`. A SQL file belongs to the first sink it refers to, else to the first
    entry of `tables`.

    Raises:
        ConfigError: a test cannot be bound; it names the place and the line.
    """
    listed = [test for pipeline in project.pipelines for test in _of_pipeline(project, pipeline)]
    listed += [test for table in project.tables for test in _of_table(table)]
    _refuse_built_in_names(project.sql_tests, [test.spec.test for test in listed if not _is_foreign(test.spec)])
    return _named(project, [*listed, *_singular(project)])


def bind_post_batch(project: Project, pipeline: str, sink: str) -> list[Bound]:
    """The enabled `post_batch` tests of one sink, in order; their names end in `_post_batch`.

    They are data checks on the rows of the micro-batch.

    Raises:
        ConfigError: there is no such pipeline or sink, a test is not about rows, or it cannot be bound.
    """
    owner, of_sink = project.find_sink(pipeline, sink)
    place = f"pipeline {pipeline}, sink {sink}, post_batch"
    for spec in of_sink.post_batch:
        if known(spec.test) and check_class(spec.test).scope != "table":
            raise ConfigError(
                f"{place}{line_of(spec)}: {spec.test} judges witnesses, not rows; "
                "list it below data_tests for the audit"
            )
    listed = [_ListedTest(spec, place, owner, of_sink) for spec in of_sink.post_batch]
    return _named(project, listed, suffix="post_batch")


def _of_pipeline(project: Project, pipeline: Pipeline) -> Iterator[_ListedTest]:
    place = f"pipeline {pipeline.name}"
    listed: set[str] = set()  # sinks that list the built-in evidence checks themselves
    for spec in pipeline.data_tests:
        if _is_foreign(spec):
            continue
        own = not known(spec.test) and spec.test in project.sql_tests.generic
        scope = check_class(spec.test).scope if known(spec.test) else "table" if own else "pipeline"
        if scope == "table":
            raise ConfigError(
                f"{place}{line_of(spec)}: {spec.test} reads a table's rows; list it below one of the pipeline's sinks"
            )
        if spec.test == FOUNDATION:
            listed.update(s.name for s in pipeline.sinks)
        for sink in pipeline.sinks if scope == "sink" else (None,):
            yield _ListedTest(spec, place, pipeline, sink)
    for sink in pipeline.sinks:
        below = f"{place}, sink {sink.name}"
        if sink.name not in listed and FOUNDATION not in {s.test for s in sink.data_tests}:
            yield _ListedTest(CheckSpec(test=FOUNDATION), below, pipeline, sink, ("implicit",))
        yield from _listed(sink, below, pipeline)


def _listed(table: Sink | Table, place: str, pipeline: Pipeline | None) -> Iterator[_ListedTest]:
    """A table's own tests, and those of its columns."""
    for spec in table.data_tests:
        yield _ListedTest(spec, place, pipeline, table)
    for column in table.columns:
        for spec in column.data_tests:
            whole = spec if spec.column else spec.model_copy(update={"column": column.name})
            yield _ListedTest(whole, f"{place}, column {column.name}", pipeline, table)


def _of_table(table: Table) -> Iterator[_ListedTest]:
    """The tests of an entry of `tables`, all of them about its rows."""
    for test in _listed(table, f"table {table.name}", None):
        if known(test.spec.test) and check_class(test.spec.test).scope != "table":
            raise ConfigError(
                f"{test.place}{line_of(test.spec)}: {test.spec.test} judges what a stream wrote; list it below the "
                "pipeline that writes this table, or below its sink"
            )
        yield test


def _refuse_built_in_names(sql_tests: SqlTests, listed: Sequence[str]) -> None:
    try:
        own = sql_tests.generic
    except ConfigError:
        if sql_tests.singular or not all(map(known, listed)):
            raise
        return  # such as the macros of a dbt project beside, which no test of this one uses
    for test in own.values():
        if known(test.name):
            raise ConfigError(
                f"{test.file}:{test.line}: test {test.name!r} has the name of a check that there is already; rename it"
            )


def _singular(project: Project) -> Iterator[_ListedTest]:
    """The enabled files of data_tests, each for the first sink, else the first table, that it refers to."""
    for test in project.sql_tests.singular:
        rendered = project.sql_tests.render(test)
        if not rendered.config.enabled:
            continue
        named = [_table_of(project, reference, test.file) for reference in rendered.references]
        # Sinks first: a test of what a stream wrote belongs to its pipeline, whatever else it reads.
        tables = sorted((table for table in named if table), key=lambda table: table[0] is None)
        if not tables:
            raise ConfigError(
                f"{test.file} refers to {', '.join(rendered.references) or 'nothing'}, and to no table of recon.yml, "
                f"whose test it would be; write ref('name') of one{did_you_mean('', project.table_names())}"
            )
        pipeline, table = tables[0]
        spec = CheckSpec(test=SqlTest.test, config=rendered.config.over(project.defaults_of(pipeline, table)))
        yield _ListedTest(spec, test.file, pipeline, table, singular=SqlTest(file=test.file, rendered=rendered))


def _table_of(project: Project, reference: str, file: str) -> tuple[Pipeline | None, Sink | Table] | None:
    """The sink or entry of `tables` that a SQL test refers to; None when it is another table."""
    try:
        table = project.find_table(".".join(re.findall(r"""['"](.+?)['"]""", reference)))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return (None, table) if isinstance(table, Table) else table


def _checks(project: Project, test: _ListedTest) -> list[Check]:
    """The checks of a listed test; a SQL test gets the references that are the tested rows themselves."""
    if test.singular is None:
        checks = build_all(test.spec, test.place, project.project_dir, project.sql_tests)
    else:
        try:
            refuse_thresholds(test.spec)
        except ConfigError as error:
            raise ConfigError(f"{test.place}: {error}") from error
        checks = [test.singular]
    return [_placed(project, check, test) if isinstance(check, SqlTest) else check for check in checks]


def _placed(project: Project, check: SqlTest, test: _ListedTest) -> SqlTest:
    mine = (test.pipeline, test.table)
    own = {r for r in check.rendered.references if r != MODEL and _table_of(project, r, check.file) == mine}
    return replace(check, own=frozenset(own))


def _named(project: Project, listed: Iterable[_ListedTest], suffix: str = "") -> list[Bound]:
    """The enabled tests as checks, each with a unique name."""
    bounds: list[Bound] = []
    taken: Counter[str] = Counter()
    for test in listed:
        if _is_foreign(test.spec):
            continue
        for check in _checks(project, test):
            config = check.settled(test.spec.config)
            if not config.enabled:
                continue
            _require_source(test, check)
            name = _unique_name(test, project.mask(check.label()), suffix, taken, check.test)
            taken[name] += 1
            bounds.append(
                Bound(
                    check=check,
                    config=config,
                    unique_id=f"test.{project.name}.{name}",
                    name=name,
                    pipeline=test.pipeline.name if test.pipeline else None,
                    sink=test.table.name if test.table else None,
                    column=getattr(check, "column_name", None),
                    tags=(*config.tags, *test.tags),
                    line=test.spec.line,
                )
            )
    return bounds


def _require_source(test: _ListedTest, check: Check) -> None:
    """Raises where a check is about another kind of source than the pipeline's."""
    reads = test.pipeline.source.kind if test.pipeline else None
    if reads is not None and isinstance(check, EvidenceCheck) and check.about not in (None, reads):
        raise ConfigError(
            f"{test.place}{line_of(test.spec)}: {check.test} is about streams that read {check.about}, and "
            f"this pipeline reads {reads}; use {_LAG_OF[reads]}"
        )


def _is_foreign(spec: CheckSpec) -> bool:
    """Whether a test is disabled and unknown to recon, such as one of a dbt package; all others must be correct."""
    return not spec.config.enabled and not known(spec.test)


def _unique_name(test: _ListedTest, label: str, suffix: str, taken: Mapping[str, int], kind: str) -> str:
    """A name as dbt's, `<test>_<relation>_<arguments>`; the pipeline, then a number, keep it unique.

    `label` are the arguments without secrets: what a name makes of one is none that a mask knows.
    """
    table, alias = test.table, test.spec.config.alias
    pipeline = test.pipeline.name if test.pipeline else "table"
    relation = table.name if table else pipeline
    candidates = [_short(kind, relation, label, suffix)]
    if table:
        candidates.append(_short(kind, f"{pipeline}_{relation}", label, suffix))
    if test.singular:
        candidates = [stem := Path(test.singular.file).stem, f"{stem}_{relation}"]
    if alias:
        candidates = [alias, f"{alias}_{relation}"]
    for name in candidates:
        if name not in taken:
            return name
    number = 2
    while f"{candidates[0]}_{number}" in taken:
        number += 1
    return f"{candidates[0]}_{number}"


def _short(*parts: str) -> str:
    """The parts as one name; a long one is cut and ends in a hash of the whole, as dbt does."""
    name = "_".join(_NOT_A_NAME.sub("_", part) for part in parts if part)
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[: _LONGEST_NAME - 33]}_{digest}"
