"""The checks by name, and checks made from the items of recon.yml.

A new check is its class, its test and one line in `REGISTRY`. A check of your own has a line in the entry points
`recon.checks` of your package instead, or a call of `register`. A check's dataclass fields are its arguments: their
names, types and defaults are read from the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from recon.base.errors import ConfigError, ReconError
from recon.base.text import did_you_mean
from recon.checks import threshold
from recon.checks.base import Check
from recon.checks.data.sql import SqlTest
from recon.checks.data_check import QueryCheck
from recon.project import CheckSpec
from recon.project.sql_tests import Generic, SqlTests

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
    "source_table": "recon.checks.evidence.source_table:SourceTableVersions",
    "source_files": "recon.checks.evidence.source_files:SourceFilesRead",
    "checkpoint_commits": "recon.checks.evidence.checkpoint_commits:CheckpointCommits",
    "sink_commits": "recon.checks.evidence.sink_commits:SinkCommits",
    "delta_history": "recon.checks.evidence.delta_history:DeltaHistory",
    "iceberg_history": "recon.checks.evidence.iceberg_history:IcebergHistory",
    "ledger_integrity": "recon.checks.evidence.ledger_integrity:LedgerIntegrity",
    "source_rows": "recon.checks.evidence.source_rows:SourceRows",
    "atomicity": "recon.checks.evidence.atomicity:Atomicity",
    "throughput": "recon.checks.evidence.throughput:Throughput",
    "lag_trend": "recon.checks.evidence.lag_trend:LagTrend",
    "state_growth": "recon.checks.evidence.state_growth:StateGrowth",
}

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


@contextmanager
def only_built_in() -> Iterator[None]:
    """Within it, no check is known but the built-in ones and what is registered or installed meanwhile."""
    before = dict(_OWN)
    _OWN.clear()
    _installed.cache_clear()
    try:
        yield
    finally:
        _OWN.clear()
        _OWN.update(before)
        _installed.cache_clear()


def names() -> list[str]:
    """The names of all checks: built-in, registered, installed."""
    return [*REGISTRY, *_OWN, *(name for name in _installed() if name not in _OWN)]


def known(name: str) -> bool:
    """Whether a check of this name exists."""
    return name.removeprefix("dbt_utils.") in REGISTRY or name in _OWN or name in _installed()


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
        ConfigError: an unknown check; an argument that is unknown, missing or of a wrong type; a threshold that is not
            understood; a fail_calc that the check cannot use. It names the line of recon.yml.
    """
    prefix = f"{place}{line_of(spec)}: "
    try:
        refuse_thresholds(spec)
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


def refuse_thresholds(spec: CheckSpec) -> None:
    """Raises ConfigError when `warn_if` or `error_if` is not understood."""
    for expression in (spec.config.warn_if, spec.config.error_if):
        threshold.parse(expression)


def line_of(spec: CheckSpec) -> str:
    """Where recon.yml lists a test, for a message: ` (line 12)`; empty for one that has no line."""
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
