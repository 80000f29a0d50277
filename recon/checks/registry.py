"""The checks by name, and recon.yml's tests bound to them.

A new check is its class, its test and one line in `REGISTRY`; a check of your own is the same, with the line in the
entry points `recon.checks` of your package, or a call of `register`. A check's dataclass fields are its arguments:
their names, types and defaults are read from the class, nothing is said twice.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from recon.checks import threshold
from recon.checks.base import Check
from recon.checks.bound import Bound
from recon.errors import ConfigError, ReconError
from recon.project import CheckSpec, Pipeline, Project, Sink

REGISTRY: dict[str, str] = {
    "not_null": "recon.checks.rows:NotNull",
    "accepted_values": "recon.checks.rows:AcceptedValues",
    "unique": "recon.checks.keys:Unique",
    "unique_combination_of_columns": "recon.checks.keys:UniqueCombinationOfColumns",
    "expectation_suite": "recon.checks.gx:ExpectationSuite",
    "offset_continuity": "recon.checks.offset_continuity:OffsetContinuity",
    "kafka_end_offsets": "recon.checks.kafka_end_offsets:KafkaEndOffsets",
    "checkpoint_commits": "recon.checks.checkpoint_commits:CheckpointCommits",
    "delta_history": "recon.checks.delta_history:DeltaHistory",
    "ledger_integrity": "recon.checks.ledger_integrity:LedgerIntegrity",
    "source_rows": "recon.checks.source_rows:SourceRows",
}

# Bound for every sink whether listed or not: every other evidence check trusts the ledger it looks at.
FOUNDATION = "ledger_integrity"
_LONGEST_NAME = 100
_NOT_A_NAME = re.compile(r"[^0-9a-zA-Z_]+")


_OWN: dict[str, type[Check]] = {}
_ENTRY_POINTS = "recon.checks"


def register(check: type[Check], name: str | None = None) -> type[Check]:
    """Makes a check of your own known under its `test` name; usable as a decorator.

    Args:
        check: a dataclass derived from one of the classes of recon.checks.base.
        name: the name, when it is not the class's `test`.

    Raises:
        ConfigError: it is no check, has no name, or the name belongs to a built-in check.
    """
    if not (isinstance(check, type) and issubclass(check, Check)):
        raise ConfigError(f"{check!r} is no check; derive it from RowCheck, KeyCheck, … of recon.checks")
    found = name or getattr(check, "test", None)
    if not found:
        raise ConfigError(f"check {check.__name__} has no name; give it `test: ClassVar[str]`")
    if found in REGISTRY:
        raise ConfigError(f"check {check.__name__} cannot be named {found!r}, as a built-in check is; choose another")
    if not hasattr(check, "test"):
        check.test = found
    _OWN[found] = check
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
    return name in REGISTRY or name in _OWN or name in _installed()


def scope_of(name: str) -> str:
    """What one verdict of this check is about: "pipeline", "sink" or "table".

    Raises:
        ConfigError: there is no such check.
    """
    return check_class(name).scope


def check_class(name: str) -> type[Check]:
    """The class of a check.

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
    raise ConfigError(f"there is no check {name!r}{nearest(name, names())}")


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or the names there are when none is near.

    >>> nearest("not_nul", ["not_null", "unique"])
    "; did you mean 'not_null'?"
    """
    there = sorted(names)
    close = difflib.get_close_matches(name, there, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(there)}" if there else ""


def build(spec: CheckSpec, where_it_stands: str) -> Check:
    """The one check that an item of `data_tests` asks for; see `build_all`."""
    (check,) = build_all(spec, where_it_stands, Path())
    return check


def build_all(spec: CheckSpec, where_it_stands: str, folder: Path) -> list[Check]:
    """The checks that an item of `data_tests` asks for: one, or all of a suite.

    Args:
        spec: the item.
        where_it_stands: for the error, such as "pipeline orders, sink orders, column status".
        folder: recon.yml's, for arguments that name a file.

    Raises:
        ConfigError: an unknown check, an argument that is unknown, missing or of a wrong type, or a
            threshold that is not understood; it names the line of recon.yml.
    """
    place = f"{where_it_stands}{_at(spec)}: "
    try:
        found = check_class(spec.test)
        for expression in (spec.config.warn_if, spec.config.error_if):
            threshold.parse(expression)
        arguments = _arguments(found, spec)
        return [_instance(found, spec.test, variant) for variant in found.variants(arguments, folder)]
    except ReconError as error:
        raise ConfigError(f"{place}{error}") from error


def _at(spec: CheckSpec) -> str:
    return f" (line {spec.line})" if spec.line is not None else ""


def _arguments(found: type[Check], spec: CheckSpec) -> dict[str, Any]:
    """The item's arguments, all known and none missing, by the class's dataclass fields."""
    arguments = dict(spec.arguments)
    taken = {f.name: f for f in fields(found) if f.init}
    if spec.column is not None:
        if "column_name" not in taken:
            raise ConfigError(f"{spec.test} is not a column's test; list it below the sink")
        arguments.setdefault("column_name", spec.column)
    for name in arguments:
        if name not in taken:
            if not taken:
                raise ConfigError(f"{spec.test} takes no arguments, and was given {name!r}")
            raise ConfigError(f"{spec.test} has no argument {name!r}{nearest(name, taken)}")
    for name, field in taken.items():
        if name not in arguments and field.default is MISSING and field.default_factory is MISSING:
            hint = ": list it below a column, or give the argument" if name == "column_name" else ""
            raise ConfigError(f"{spec.test} needs the argument {name!r}{hint}")
    return arguments


def _instance(found: type[Check], test: str, arguments: Mapping[str, Any]) -> Check:
    """The check with its arguments, each validated against its field's type."""
    from pydantic import ValidationError

    try:
        return cast(Check, _validator(found).validate_python(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{test}'s argument {path!r} cannot be {first['input']!r}: {first['msg'].lower()}") from error


@lru_cache(maxsize=128)
def _validator(found: type[Check]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(found)


@dataclass(frozen=True)
class _Wanted:
    """A test as recon.yml lists it: where, and for whom."""

    spec: CheckSpec
    place: str
    pipeline: Pipeline
    sink: Sink | None
    tags: tuple[str, ...] = ()


def bind(project: Project) -> list[Bound]:
    """All enabled tests of a project, in order: a pipeline's own, then per sink its own and its columns'.

    A check judged per sink that is listed below the pipeline is bound once for each sink. A check judged per
    pipeline that is listed below a sink is bound for that sink. `ledger_integrity` is bound for every sink
    that does not list it, tagged `implicit`.

    Raises:
        ConfigError: a test cannot be bound; it names the place and the line.
    """
    wanted = [w for pipeline in project.pipelines for w in _of_pipeline(pipeline)]
    return _named(project, wanted)


def bind_post_batch(project: Project, pipeline: str, sink: str) -> list[Bound]:
    """The enabled `post_batch` tests of one sink, in order; their names end in `_post_batch`.

    They are data checks on the rows of the micro-batch.

    Raises:
        ConfigError: there is no such pipeline or sink, a test is not about rows, or it cannot be bound.
    """
    pipelines = {p.name: p for p in project.pipelines}
    if pipeline not in pipelines:
        raise ConfigError(f"project {project.name} has no pipeline {pipeline!r}{nearest(pipeline, pipelines)}")
    of = pipelines[pipeline]
    sinks = {s.name: s for s in of.sinks}
    if sink not in sinks:
        raise ConfigError(f"pipeline {pipeline} has no sink {sink!r}{nearest(sink, sinks)}")
    place = f"pipeline {pipeline}, sink {sink}, post_batch"
    for spec in sinks[sink].post_batch:
        if known(spec.test) and scope_of(spec.test) != "table":
            raise ConfigError(
                f"{place}{_at(spec)}: {spec.test} judges witnesses, not rows; list it below data_tests for the audit"
            )
    wanted = [_Wanted(spec, place, of, sinks[sink]) for spec in sinks[sink].post_batch]
    return _named(project, wanted, suffix="post_batch")


def _of_pipeline(pipeline: Pipeline) -> Iterator[_Wanted]:
    place = f"pipeline {pipeline.name}"
    listed: set[str] = set()  # sinks that list the foundation themselves
    for spec in pipeline.data_tests:
        scope = scope_of(spec.test) if known(spec.test) else "pipeline"
        if scope == "table":
            raise ConfigError(
                f"{place}{_at(spec)}: {spec.test} reads a table's rows; list it below one of the pipeline's sinks"
            )
        if spec.test == FOUNDATION:
            listed.update(s.name for s in pipeline.sinks)
        for sink in pipeline.sinks if scope == "sink" else (None,):
            yield _Wanted(spec, place, pipeline, sink)
    for sink in pipeline.sinks:
        below = f"{place}, sink {sink.name}"
        if sink.name not in listed and FOUNDATION not in {s.test for s in sink.data_tests}:
            yield _Wanted(CheckSpec(test=FOUNDATION), below, pipeline, sink, ("implicit",))
        for spec in sink.data_tests:
            yield _Wanted(spec, below, pipeline, sink)
        for column in sink.columns:
            for spec in column.data_tests:
                whole = spec if spec.column else spec.model_copy(update={"column": column.name})
                yield _Wanted(whole, f"{below}, column {column.name}", pipeline, sink)


def _named(project: Project, wanted: Iterable[_Wanted], suffix: str = "") -> list[Bound]:
    """Builds the enabled ones and gives each a name of its own."""
    bounds: list[Bound] = []
    taken: Counter[str] = Counter()
    for want in wanted:
        checks = build_all(want.spec, want.place, project.project_dir)
        for check in checks if want.spec.config.enabled else ():
            name = _unique_name(want, check, suffix, taken)
            taken[name] += 1
            bounds.append(
                Bound(
                    check=check,
                    config=check.settled(want.spec.config),
                    unique_id=f"test.{project.name}.{name}",
                    name=name,
                    pipeline=want.pipeline.name,
                    sink=want.sink.name if want.sink else None,
                    column=getattr(check, "column_name", None),
                    tags=(*want.spec.config.tags, *want.tags),
                )
            )
    return bounds


def _unique_name(want: _Wanted, check: Check, suffix: str, taken: Mapping[str, int]) -> str:
    """A name as dbt's, `<test>_<relation>_<arguments>`; the pipeline, then a number, keep it unique."""
    sink, pipeline, alias = want.sink, want.pipeline.name, want.spec.config.alias
    relation = sink.name if sink else pipeline
    candidates = [_short(check.test, relation, check.label(), suffix)]
    if sink:
        candidates.append(_short(check.test, f"{pipeline}_{relation}", check.label(), suffix))
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
