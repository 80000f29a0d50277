"""The checks by name, and recon.yml's tests bound to them.

A new check is its class, its test and one line in `REGISTRY`; a check of your own is the same, with the line in the
entry points `recon.checks` of your package, or a call of `register`. A check's dataclass fields are its arguments:
their names, types and defaults are read from the class.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from recon.checks import threshold
from recon.checks.base import Check, QueryCheck
from recon.checks.bound import Bound
from recon.checks.data.sql import SqlTest
from recon.errors import ConfigError, ReconError
from recon.project import CheckSpec, Pipeline, Project, Sink
from recon.project.sql_tests import MODEL, Generic, SqlTests
from recon.text import did_you_mean

REGISTRY: dict[str, str] = {
    "not_null": "recon.checks.data.rows:NotNull",
    "accepted_values": "recon.checks.data.rows:AcceptedValues",
    "not_empty_string": "recon.checks.data.rows:NotEmptyString",
    "accepted_range": "recon.checks.data.rows:AcceptedRange",
    "matches_regex": "recon.checks.data.rows:MatchesRegex",
    "expression_is_true": "recon.checks.data.rows:ExpressionIsTrue",
    "row_count": "recon.checks.data.counts:RowCount",
    "not_null_proportion": "recon.checks.data.counts:NotNullProportion",
    "not_constant": "recon.checks.data.counts:NotConstant",
    "at_least_one": "recon.checks.data.counts:AtLeastOne",
    "column_mean": "recon.checks.data.statistics:ColumnMean",
    "column_min": "recon.checks.data.statistics:ColumnMin",
    "column_max": "recon.checks.data.statistics:ColumnMax",
    "column_sum": "recon.checks.data.statistics:ColumnSum",
    "column_stddev": "recon.checks.data.statistics:ColumnStddev",
    "column_quantile": "recon.checks.data.statistics:ColumnQuantile",
    "freshness": "recon.checks.data.freshness:Freshness",
    "recency": "recon.checks.data.freshness:Recency",
    "volume_anomaly": "recon.checks.data.anomaly:VolumeAnomaly",
    "metric_anomaly": "recon.checks.data.anomaly:MetricAnomaly",
    "schema_contract": "recon.checks.data.schema:SchemaContract",
    "unique": "recon.checks.data.keys:Unique",
    "unique_combination_of_columns": "recon.checks.data.keys:UniqueCombinationOfColumns",
    "expectation_suite": "recon.checks.data.gx:ExpectationSuite",
    "relationships": "recon.checks.data.relations:Relationships",
    "relationships_where": "recon.checks.data.relations:RelationshipsWhere",
    "cardinality_equality": "recon.checks.data.row_counts:CardinalityEquality",
    "equal_rowcount": "recon.checks.data.row_counts:EqualRowcount",
    "fewer_rows_than": "recon.checks.data.row_counts:FewerRowsThan",
    "equality": "recon.checks.data.row_counts:Equality",
    "compare": "recon.checks.data.compare:Compare",
    "sequential_values": "recon.checks.data.order:SequentialValues",
    "mutually_exclusive_ranges": "recon.checks.data.order:MutuallyExclusiveRanges",
    "offset_continuity": "recon.checks.evidence.offset_continuity:OffsetContinuity",
    "kafka_end_offsets": "recon.checks.evidence.kafka_end_offsets:KafkaEndOffsets",
    "checkpoint_commits": "recon.checks.evidence.checkpoint_commits.check:CheckpointCommits",
    "sink_commits": "recon.checks.evidence.sink_commits:SinkCommits",
    "delta_history": "recon.checks.evidence.delta_history:DeltaHistory",
    "ledger_integrity": "recon.checks.evidence.ledger_integrity:LedgerIntegrity",
    "source_rows": "recon.checks.evidence.source_rows.check:SourceRows",
    "atomicity": "recon.checks.evidence.atomicity:Atomicity",
    "throughput": "recon.checks.evidence.throughput:Throughput",
    "lag_trend": "recon.checks.evidence.lag_trend:LagTrend",
    "state_growth": "recon.checks.evidence.state_growth:StateGrowth",
}

# Bound for every sink whether listed or not, because every other evidence check trusts the ledger.
FOUNDATION = "ledger_integrity"
_LONGEST_NAME = 100
_NOT_A_NAME = re.compile(r"[^0-9a-zA-Z_]+")

_OWN: dict[str, type[Check]] = {}  # made known by `register`
_ENTRY_POINTS = "recon.checks"


def register(check: type[Check], name: str | None = None) -> type[Check]:
    """Makes a check of your own known under its `test` name; usable as a decorator.

    Args:
        check: a dataclass derived from one of the classes of recon.checks.
        name: the name, when it is not the class's `test`.

    Raises:
        ConfigError: it is no check, has no name, or the name belongs to a built-in check.
    """
    if not (isinstance(check, type) and issubclass(check, Check)):
        raise ConfigError(f"{check!r} is no check; derive it from RowCheck, KeyCheck, … of recon.checks")
    test = name or getattr(check, "test", None)
    if not test:
        raise ConfigError(f"check {check.__name__} has no name; give it `test: ClassVar[str]`")
    if test in REGISTRY:
        raise ConfigError(f"check {check.__name__} cannot be named {test!r}, as a built-in check is; choose another")
    if not hasattr(check, "test"):
        check.test = test
    _OWN[test] = check
    return check


@lru_cache(maxsize=1)
def _installed() -> Mapping[str, EntryPoint]:
    """Checks that installed packages offer, by name."""
    return {entry.name: entry for entry in entry_points(group=_ENTRY_POINTS) if entry.name not in REGISTRY}


def names() -> list[str]:
    """The names of all checks: built-in, registered, installed."""
    return [*REGISTRY, *_OWN, *(name for name in _installed() if name not in _OWN)]


def known(name: str) -> bool:
    """Whether a check of this name exists."""
    return name.removeprefix("dbt_utils.") in REGISTRY or name in _OWN or name in _installed()


def scope_of(name: str) -> str:
    """What one verdict of this check is about: "pipeline", "sink" or "table".

    Raises:
        ConfigError: there is no such check.
    """
    return check_class(name).scope


def check_class(name: str, more: Iterable[str] = ()) -> type[Check]:
    """The class of a check; `more` are further names to propose where there is none.

    Raises:
        ConfigError: there is no such check, or the package that offers it cannot be imported.
    """
    # dbt names a package's tests with its name.
    plain = name.removeprefix("dbt_utils.")
    if plain in REGISTRY:
        module, _, attribute = REGISTRY[plain].partition(":")
        return cast("type[Check]", getattr(import_module(module), attribute))
    if name not in _OWN and name in _installed():
        entry = _installed()[name]
        try:
            register(entry.load(), name)
        except Exception as error:
            raise ConfigError(f"check {name!r} of {entry.value} cannot be loaded: {error}") from error
    if name in _OWN:
        return _OWN[name]
    raise ConfigError(f"there is no check {name!r}{did_you_mean(name, sorted([*names(), *more]))}")


def build(spec: CheckSpec, place: str) -> Check:
    """The one check of an item of `data_tests`; see `build_all`."""
    (check,) = build_all(spec, place, Path())
    return check


def build_all(spec: CheckSpec, place: str, folder: Path, sql_tests: SqlTests | None = None) -> list[Check]:
    """The checks of an item of `data_tests`: one, or all of a suite.

    Args:
        spec: the item.
        place: for the error, such as "pipeline orders, sink orders, column status".
        folder: recon.yml's, for arguments that name a file.
        sql_tests: the project's SQL tests; its generic tests are checks, too.

    Raises:
        ConfigError: an unknown check, an argument that is unknown, missing or of a wrong type, or a
            threshold that is not understood, or a fail_calc that the check cannot use; it names the line of recon.yml.
    """
    prefix = f"{place}{_at(spec)}: "
    try:
        _refuse_thresholds(spec)
        generic = sql_tests.generic if sql_tests is not None and not known(spec.test) else {}
        if sql_tests is not None and spec.test in generic:
            return [_generic(sql_tests, generic[spec.test], spec)]
        check = check_class(spec.test, generic)
        refuse_fail_calc(check, spec.test, spec.config.fail_calc)
        arguments = _arguments_of_class(check, spec)
        return [_instance(check, spec.test, variant) for variant in check.variants(arguments, folder)]
    except ReconError as error:
        raise ConfigError(f"{prefix}{error}") from error


def refuse_fail_calc(check: type[Check], test: str, fail_calc: str | None) -> None:
    """Refuses a `fail_calc` for a check without a query, which would ignore it and count failures its own way.

    Raises:
        ConfigError: the check has no query, and `fail_calc` is given.
    """
    if fail_calc is not None and not issubclass(check, QueryCheck):
        raise ConfigError(
            f"{test} returns no rows that fail_calc {fail_calc!r} could count; remove it, here or in defaults, or "
            "write the test as a SQL test"
        )


def _refuse_thresholds(spec: CheckSpec, place: str = "") -> None:
    try:
        for expression in (spec.config.warn_if, spec.config.error_if):
            threshold.parse(expression)
    except ConfigError as error:
        raise ConfigError(f"{place}{error}") from error


def _at(spec: CheckSpec) -> str:
    return f" (line {spec.line})" if spec.line is not None else ""


def _arguments_of_class(check: type[Check], spec: CheckSpec) -> dict[str, Any]:
    """The item's arguments, by the names of the class's dataclass fields."""
    known_fields = check.argument_fields()
    required = {name: f.default is MISSING and f.default_factory is MISSING for name, f in known_fields.items()}
    return {known_fields[name].name: value for name, value in _arguments(spec, required).items()}


def _arguments(spec: CheckSpec, required: Mapping[str, bool]) -> dict[str, Any]:
    """The item's arguments, all known and none missing; `required` says of each known one whether it must be given."""
    arguments = dict(spec.arguments)
    if spec.column is not None:
        if "column_name" not in required:
            raise ConfigError(f"{spec.test} is not a column's test; list it below the sink")
        arguments.setdefault("column_name", spec.column)
    for name in arguments:
        if name not in required:
            if not required:
                raise ConfigError(f"{spec.test} takes no arguments, and was given {name!r}")
            raise ConfigError(f"{spec.test} has no argument {name!r}{did_you_mean(name, required)}")
    for name, must_be_given in required.items():
        if must_be_given and name not in arguments:
            hint = ": list it below a column, or give the argument" if name == "column_name" else ""
            raise ConfigError(f"{spec.test} needs the argument {name!r}{hint}")
    return arguments


def _generic(sql_tests: SqlTests, test: Generic, spec: CheckSpec) -> SqlTest:
    """A generic test of the project with the item's arguments."""
    arguments = _arguments(spec, test.arguments)
    column = arguments.get("column_name")
    return SqlTest(
        file=test.file,
        rendered=sql_tests.render_generic(test, arguments),
        arguments=arguments,
        column_name=column if isinstance(column, str) else None,
        test=test.name,
        singular=False,
    )


def _instance(check: type[Check], test: str, arguments: Mapping[str, Any]) -> Check:
    """The check with its arguments, each validated against its field's type."""
    from pydantic import ValidationError

    try:
        return cast(Check, _validator(check).validate_python(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part).rstrip("_") for part in first["loc"])
        raise ConfigError(f"{test}'s argument {path!r} cannot be {first['input']!r}: {first['msg'].lower()}") from error


@lru_cache(maxsize=128)
def _validator(check: type[Check]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(check)


@dataclass(frozen=True)
class _ListedTest:
    """A test as recon.yml lists it: where it stands, and which pipeline and sink it is about."""

    spec: CheckSpec
    place: str
    pipeline: Pipeline
    sink: Sink | None
    tags: tuple[str, ...] = ()
    singular: SqlTest | None = None  # the check, for a SQL file


def bind(project: Project) -> list[Bound]:
    """All enabled tests of a project, in order: a pipeline's own, then per sink its own and its columns', then files.

    A check judged per sink that is listed below the pipeline is bound once for each sink. A check judged per
    pipeline that is listed below a sink is bound for that sink. `ledger_integrity` is bound for every sink
    that does not list it, tagged `implicit`. A SQL file belongs to the first sink it refers to.

    Raises:
        ConfigError: a test cannot be bound; it names the place and the line.
    """
    listed = [test for pipeline in project.pipelines for test in _of_pipeline(project, pipeline)]
    _refuse_built_in_names(project.sql_tests, [test.spec.test for test in listed if not _is_foreign(test.spec)])
    return _named(project, [*listed, *_singular(project)])


def bind_post_batch(project: Project, pipeline: str, sink: str) -> list[Bound]:
    """The enabled `post_batch` tests of one sink, in order; their names end in `_post_batch`.

    They are data checks on the rows of the micro-batch.

    Raises:
        ConfigError: there is no such pipeline or sink, a test is not about rows, or it cannot be bound.
    """
    pipelines = {p.name: p for p in project.pipelines}
    if pipeline not in pipelines:
        raise ConfigError(f"project {project.name} has no pipeline {pipeline!r}{did_you_mean(pipeline, pipelines)}")
    sinks = {s.name: s for s in pipelines[pipeline].sinks}
    if sink not in sinks:
        raise ConfigError(f"pipeline {pipeline} has no sink {sink!r}{did_you_mean(sink, sinks)}")
    place = f"pipeline {pipeline}, sink {sink}, post_batch"
    for spec in sinks[sink].post_batch:
        if known(spec.test) and scope_of(spec.test) != "table":
            raise ConfigError(
                f"{place}{_at(spec)}: {spec.test} judges witnesses, not rows; list it below data_tests for the audit"
            )
    listed = [_ListedTest(spec, place, pipelines[pipeline], sinks[sink]) for spec in sinks[sink].post_batch]
    return _named(project, listed, suffix="post_batch")


def _of_pipeline(project: Project, pipeline: Pipeline) -> Iterator[_ListedTest]:
    place = f"pipeline {pipeline.name}"
    listed: set[str] = set()  # sinks that list the foundation themselves
    for spec in pipeline.data_tests:
        if _is_foreign(spec):
            continue
        own = not known(spec.test) and spec.test in project.sql_tests.generic
        scope = scope_of(spec.test) if known(spec.test) else "table" if own else "pipeline"
        if scope == "table":
            raise ConfigError(
                f"{place}{_at(spec)}: {spec.test} reads a table's rows; list it below one of the pipeline's sinks"
            )
        if spec.test == FOUNDATION:
            listed.update(s.name for s in pipeline.sinks)
        for sink in pipeline.sinks if scope == "sink" else (None,):
            yield _ListedTest(spec, place, pipeline, sink)
    for sink in pipeline.sinks:
        below = f"{place}, sink {sink.name}"
        if sink.name not in listed and FOUNDATION not in {s.test for s in sink.data_tests}:
            yield _ListedTest(CheckSpec(test=FOUNDATION), below, pipeline, sink, ("implicit",))
        for spec in sink.data_tests:
            yield _ListedTest(spec, below, pipeline, sink)
        for column in sink.columns:
            for spec in column.data_tests:
                whole = spec if spec.column else spec.model_copy(update={"column": column.name})
                yield _ListedTest(whole, f"{below}, column {column.name}", pipeline, sink)


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
    """The enabled files of data_tests, each for the first sink that it refers to."""
    for test in project.sql_tests.singular:
        rendered = project.sql_tests.render(test)
        if not rendered.config.enabled:
            continue
        sinks = (_sink_of(project, reference, test.file) for reference in rendered.references)
        first = next((sink for sink in sinks if sink), None)
        if first is None:
            known_sinks = did_you_mean("", [s.name for p in project.pipelines for s in p.sinks])
            raise ConfigError(
                f"{test.file} refers to {', '.join(rendered.references) or 'nothing'} and to no sink, whose test it "
                f"would be; write ref('name') of a sink{known_sinks}"
            )
        pipeline, sink = first
        around = sink.defaults.over(pipeline.defaults.over(project.defaults))
        spec = CheckSpec(test=SqlTest.test, config=rendered.config.over(around))
        yield _ListedTest(spec, test.file, pipeline, sink, singular=SqlTest(file=test.file, rendered=rendered))


def _sink_of(project: Project, reference: str, file: str) -> tuple[Pipeline, Sink] | None:
    """The sink that a SQL test refers to; None when it is another table."""
    try:
        found = project.find_table(".".join(re.findall(r"""['"](.+?)['"]""", reference)))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return found if isinstance(found, tuple) else None


def _checks(project: Project, test: _ListedTest) -> list[Check]:
    """The checks of a listed test; a SQL test gets the references that are the tested rows themselves."""
    if test.singular is None:
        checks = build_all(test.spec, test.place, project.project_dir, project.sql_tests)
    else:
        _refuse_thresholds(test.spec, f"{test.place}: ")
        checks = [test.singular]
    return [_placed(project, check, test) if isinstance(check, SqlTest) else check for check in checks]


def _placed(project: Project, check: SqlTest, test: _ListedTest) -> SqlTest:
    mine = (test.pipeline, test.sink)
    own = {r for r in check.rendered.references if r != MODEL and _sink_of(project, r, check.file) == mine}
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
            name = _unique_name(test, check, suffix, taken)
            taken[name] += 1
            bounds.append(
                Bound(
                    check=check,
                    config=config,
                    unique_id=f"test.{project.name}.{name}",
                    name=name,
                    pipeline=test.pipeline.name,
                    sink=test.sink.name if test.sink else None,
                    column=getattr(check, "column_name", None),
                    tags=(*config.tags, *test.tags),
                )
            )
    return bounds


def _is_foreign(spec: CheckSpec) -> bool:
    """Whether a test is disabled and unknown to recon, such as one of a dbt package; all others must be correct."""
    return not spec.config.enabled and not known(spec.test)


def _unique_name(test: _ListedTest, check: Check, suffix: str, taken: Mapping[str, int]) -> str:
    """A name as dbt's, `<test>_<relation>_<arguments>`; the pipeline, then a number, keep it unique."""
    sink, pipeline, alias = test.sink, test.pipeline.name, test.spec.config.alias
    relation = sink.name if sink else pipeline
    candidates = [_short(check.test, relation, check.label(), suffix)]
    if sink:
        candidates.append(_short(check.test, f"{pipeline}_{relation}", check.label(), suffix))
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
