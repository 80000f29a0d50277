"""Great Expectations' suites as checks: one check for each expectation, all measured in one run of GX.

GX is imported when a suite is run: reading a suite, naming its checks and listing them works without it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install
from recon.base.text import complaint, did_you_mean
from recon.checks.data_check import JointCheck
from recon.model import Verdict
from recon.spark.errors import spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from recon.project import CheckConfig

# Failing values that GX returns for each expectation; the config's limit says how many are shown.
_SAMPLES = 20
# Expectations on the table rather than its rows: they have a result on an empty table, too.
_OF_TABLE = ("expect_table_", "expect_column_to_exist", "expect_query_")
# The view that GX creates for an expectation that is an SQL query, and does not drop.
_VIEW = "tmp_view"


@dataclass(frozen=True, kw_only=True)
class ExpectationSuite(JointCheck):
    """Rows or values that a Great Expectations suite does not expect; each expectation is a check of its own.

    Failures are GX's unexpected count, of rows or values. An expectation that fails and counts nothing (a mean, the
    table's columns) is 1 failure, and the message shows what GX observed. An expectation that GX calls a success
    passes, also with unexpected values within `mostly`; their count is in the evidence. NULL is treated as GX does:
    most expectations on a column leave NULL out, so that a column of NULLs passes; add `not_null`.
    GX's severity `warning` and `info` become `severity: warn` unless a severity is configured here. An expectation that
    GX does not know, whose arguments do not fit, or whose column is missing is an error. So is a suite that cannot be
    read; the others still run.

    Args:
        suite: the JSON file of a GX 1.x suite, relative to recon.yml; with `project`, the suite's name.
        project: the folder of a GX project (the one with `great_expectations.yml`, or its parent).
        expectations: the expectations themselves, each as `{type, kwargs}` or short as
            `expect_column_values_to_not_be_null: {column: id}`.
        parameters: values for `$PARAMETER` in the suite, by name.
        expectation: filled in: the one expectation of the suite that this check evaluates, as JSON text.

    Zero rows:
        a table (or `where`) with no rows is skipped, except for expectations on the table itself, such as
        `expect_table_row_count_to_be_between`, which are judged.

    Cost:
        one run of GX for all expectations with one `where`: a few Spark jobs, none of them shared with other checks.
        Nothing is cached, no file is written, and GX's telemetry is off. Needs the extra `gx`.

    Example:
        data_tests:
          - expectation_suite: {suite: gx/expectations/orders.json}
          - expectation_suite:
              arguments:
                expectations:
                  - expect_column_values_to_be_between: {column: amount, min_value: 0, mostly: 0.99}
    """

    test: ClassVar[str] = "expectation_suite"
    suite: str | None = None
    project: str | None = None
    expectations: tuple[Any, ...] | None = None
    parameters: dict[str, Any] | None = None
    expectation: str | None = None

    @classmethod
    @override
    def variants(cls, arguments: Mapping[str, Any], folder: Path) -> Iterable[Mapping[str, Any]]:
        if arguments.get("expectation") is not None:
            return (arguments,)
        sources = {name for name in ("suite", "project", "expectations") if arguments.get(name) is not None}
        if sources not in ({"suite"}, {"suite", "project"}, {"expectations"}):
            raise ConfigError(
                "expectation_suite needs one of: suite (a JSON file), suite (a name) with project (a folder), or "
                f"expectations (a list); found {', '.join(sorted(sources)) or 'none of them'}"
            )
        if not isinstance(parameters := arguments.get("parameters") or {}, Mapping):
            raise ConfigError(f"expectation_suite's argument parameters must be a mapping, found {parameters!r}")
        source = "expectations"
        try:
            if "expectations" in sources:
                suite: Any = {"expectations": arguments["expectations"]}
            else:
                file = _file(str(arguments["suite"]), arguments.get("project"), folder)
                source = f"suite {file}"
                suite = _read(file)
            each_expectation = list(_expectations(suite, parameters, source))
        except ConfigError as error:
            each_expectation = [{"type": Path(str(arguments.get("suite") or "")).stem, "problem": str(error)}]
        return [
            {"expectation": json.dumps(expectation, sort_keys=True, default=str)} for expectation in each_expectation
        ]

    def parsed(self) -> dict[str, Any]:
        """The expectation as GX writes it (`type`, `kwargs`, `meta`, `severity`), or with a `problem`."""
        expectation: dict[str, Any] = json.loads(self.expectation or "{}")
        return expectation

    @override
    def label(self) -> str:
        expectation = self.parsed()
        return "_".join([expectation.get("type") or "expectation", *_columns(expectation.get("kwargs") or {})])

    @override
    def settled(self, config: CheckConfig) -> CheckConfig:
        if self.parsed().get("severity") not in ("warning", "info") or "severity" in config.model_fields_set:
            return config
        return config.model_copy(update={"severity": "warn"})

    @override
    def fit(self, types: Mapping[str, DataType], rows: DataFrame) -> ExpectationSuite:
        if self.judges_empty or not self.parsed().get("type", "").startswith(_OF_TABLE):
            return self
        return _OfTable(expectation=self.expectation)

    @override
    def group(self) -> Hashable:
        return "gx"

    @classmethod
    @override
    def judge_all(cls, checks: Sequence[ExpectationSuite], rows: DataFrame) -> Sequence[Verdict]:
        """GX's results, each as a verdict; an expectation that GX could not evaluate is measured again alone.

        Raises:
            ConfigError: Great Expectations is not installed.
        """
        _gx()
        verdicts: dict[int, Verdict] = {}
        expectations: dict[int, Any] = {}
        for at, check in enumerate(checks):
            expectation = check.parsed()
            try:
                expectations[at] = _domain_object(expectation, at)
            except ConfigError as error:
                verdicts[at] = Verdict(unproved=str(error))
        results = _results(expectations, rows) if expectations else {}
        verdicts |= {at: _verdict(checks[at].parsed(), result) for at, result in results.items()}
        return [verdicts[at] for at in range(len(checks))]


@dataclass(frozen=True, kw_only=True)
class _OfTable(ExpectationSuite):
    """An expectation on the table itself, which is judged on zero rows, too."""

    judges_empty: ClassVar[bool] = True


# -- reading suites --------------------------------------------------------------------------------------------


def _file(suite: str, project: Any, folder: Path) -> Path:
    """The suite's JSON file."""
    if project is None:
        return folder / suite
    root = folder / str(project)
    context = next((c for c in (root, root / "gx") if (c / "great_expectations.yml").is_file()), root)
    suites_folder = context / _base_directory(context)
    name = suite.removesuffix(".json")
    for candidate in (suites_folder / f"{name}.json", suites_folder / f"{name.replace('.', '/')}.json"):
        if candidate.is_file():
            return candidate
    suite_names = (
        sorted(str(f.relative_to(suites_folder).with_suffix("")) for f in suites_folder.rglob("*.json"))
        if suites_folder.is_dir()
        else []
    )
    listing = f"; there is {', '.join(suite_names)}" if suite_names else ""
    raise ConfigError(f"GX project {root} has no suite {name!r} in {suites_folder}{listing}")


def _base_directory(context: Path) -> str:
    """Where a GX project keeps its suites."""
    import yaml

    try:
        config = yaml.safe_load((context / "great_expectations.yml").read_text(encoding="utf-8"))
        store = config["stores"][config["expectations_store_name"]]
        return str(store["store_backend"]["base_directory"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return "expectations"


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"GX suite {file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"GX suite {file} is not valid JSON: {error}; export it again from GX") from error


def _expectations(suite: Any, parameters: Mapping[str, Any], source: str) -> Iterator[dict[str, Any]]:
    """Each expectation in GX's form with its `$PARAMETER`s replaced, or with the `problem` that it has."""
    listed = suite.get("expectations") if isinstance(suite, Mapping) else None
    if not isinstance(listed, (list, tuple)):
        raise ConfigError(f"GX {source} holds no list 'expectations'; is it a suite that GX 1.x wrote?")
    if not listed:
        raise ConfigError(f"GX {source} holds no expectation, so that nothing would be proved")
    values = {**(suite.get("suite_parameters") or {}), **parameters}
    for number, item in enumerate(listed, 1):
        try:
            yield _expectation(item, values)
        except ConfigError as error:
            yield {"type": f"expectation_{number}", "problem": f"expectation {number} of GX {source}: {error}"}


def _expectation(item: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, Mapping):
        raise ConfigError(f"must be a mapping with type and kwargs, found {item!r}")
    # Before 1.0, GX wrote expectation_type.
    kind = item.get("type") or item.get("expectation_type")
    body: dict[str, Any]
    if kind is not None:
        body = {key: item[key] for key in ("kwargs", "meta", "severity") if item.get(key) is not None}
    elif len(item) == 1:
        ((kind, kwargs),) = item.items()
        body = {"kwargs": {} if kwargs is None else kwargs}
    else:
        raise ConfigError(f"needs a 'type', found {', '.join(map(str, item)) or 'nothing'}")
    if not isinstance(kind, str) or not isinstance(body.setdefault("kwargs", {}), Mapping):
        raise ConfigError("needs a name as its 'type' and a mapping as its 'kwargs'")
    body["kwargs"] = dict(body["kwargs"])
    # In the short form, severity and meta are among the arguments, as in GX's own classes.
    for key in ("meta", "severity"):
        if key in body["kwargs"]:
            body[key] = body["kwargs"].pop(key)
    return {**body, "type": kind, "kwargs": _with_parameters(body["kwargs"], parameters)}


def _with_parameters(value: Any, parameters: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"$PARAMETER"}:
            name = value["$PARAMETER"]
            if name not in parameters:
                raise ConfigError(f"parameter {name!r} has no value; give it in parameters")
            return parameters[name]
        return {key: _with_parameters(inner, parameters) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_parameters(inner, parameters) for inner in value]
    return value


# -- running them ----------------------------------------------------------------------------------------------


_quiet = partial(warnings.catch_warnings, action="ignore")


def _gx() -> Any:
    """The package, with its telemetry off."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    try:
        with _quiet():
            import great_expectations
    except ImportError as error:
        raise ConfigError(
            f"expectation_suite needs Great Expectations, which is not installed; {how_to_install('gx')}"
        ) from error
    return great_expectations


def _domain_object(expectation: Mapping[str, Any], at: int) -> Any:
    """GX's own object for an expectation; its meta holds its place, because GX returns results in another order."""
    if "problem" in expectation:
        raise ConfigError(expectation["problem"])
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    kind = expectation["type"]
    try:
        with _quiet():
            return ExpectationConfiguration(
                type=kind, kwargs=dict(expectation["kwargs"]), meta={"recon": at}
            ).to_domain_obj()
    except _gx().exceptions.ExpectationNotFoundError:
        near = did_you_mean(kind, list_registered_expectation_implementations(), "")
        raise ConfigError(f"Great Expectations knows no expectation '{kind}'{near}") from None
    except Exception as error:
        raise ConfigError(f"{kind} cannot be made of its arguments: {complaint(error)}") from None


def _results(expectations: Mapping[int, Any], rows: DataFrame) -> dict[int, Mapping[str, Any] | Exception]:
    """GX's results by place, or what GX raised; expectations that may have broken each other are measured alone.

    GX measures many expectations in one aggregate: where one breaks it, GX has no result for the others either.
    """
    results: dict[int, Mapping[str, Any] | Exception]
    try:
        results = {**_validated(expectations, rows)}
    except Exception as error:
        results = dict.fromkeys(expectations, error)
    broken = [at for at in expectations if _raised(results[at]) is not None]
    for at in broken if len(broken) > 1 else ():
        results |= _results({at: expectations[at]}, rows)
    return results


def _validated(expectations: Mapping[int, Any], rows: DataFrame) -> dict[int, Mapping[str, Any]]:
    """GX's results by place, plain as JSON."""
    with _quiet(), _ephemeral_context() as context:
        source = context.data_sources.add_spark("recon", persist=False)
        # A micro-batch has a session of its own, which is not the one that GX finds.
        source._spark = rows.sparkSession
        definition = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
        batch = definition.get_batch({"dataframe": rows})
        suite = _gx().ExpectationSuite(name="recon", expectations=list(expectations.values()))
        # SUMMARY, because COMPLETE would bring every unexpected value to the driver.
        wanted = {"result_format": "SUMMARY", "partial_unexpected_count": _SAMPLES}
        try:
            results = []
            for result in batch.validate(suite, result_format=wanted).results:
                result.result = _writable(result.result)
                results.append(result.to_json_dict())
        finally:
            if any("query" in (e.expectation_type + "".join(e.configuration.kwargs)) for e in expectations.values()):
                rows.sparkSession.catalog.dropTempView(_VIEW)
    return {result["expectation_config"]["meta"]["recon"]: result for result in results}


def _writable(value: Any) -> Any:
    """What GX observed, with values that it cannot write as JSON as text: binary in base64, as in Spark's JSON."""
    from great_expectations.util import convert_to_json_serializable

    if isinstance(value, Mapping):
        return {key: _writable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(inner) for inner in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    try:
        convert_to_json_serializable(value)
    except TypeError:
        return str(value)
    return value


@contextmanager
def _ephemeral_context() -> Iterator[Any]:
    """A context in memory alone; the context that was GX's current one is restored afterwards."""
    gx = _gx()
    from great_expectations.data_context.data_context.context_factory import project_manager
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    before = getattr(project_manager, "_ProjectManager__project", None)
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    try:
        yield gx.get_context(mode="ephemeral", project_config=config)
    finally:
        project_manager.set_project(before)


# -- results -----------------------------------------------------------------------------------------------


def _raised(result: Mapping[str, Any] | Exception) -> str | None:
    """The error of an expectation in one sentence; None when GX has a result."""
    if isinstance(result, Exception):
        return spark_error(result)
    info = result.get("exception_info") or {}
    # One exception, or several by the metric that raised them.
    each = [info] if "raised_exception" in info else [e for e in info.values() if isinstance(e, Mapping)]
    for exception in each:
        if exception.get("raised_exception"):
            message = re.sub(r"^\s*Error: ", "", str(exception.get("exception_message")), flags=re.MULTILINE)
            return spark_error(ConfigError(message)) if message.strip() else "GX gives no reason"
    return None


def _verdict(expectation: Mapping[str, Any], result: Mapping[str, Any] | Exception) -> Verdict:
    kind, kwargs = expectation["type"], expectation["kwargs"]
    if (raised := _raised(result)) is not None or isinstance(result, Exception):
        return Verdict(unproved=f"{kind} could not be evaluated: {raised}")
    details = result.get("result") or {}
    shown = ("element_count", "missing_count", "unexpected_count", "unexpected_percent", "observed_value")
    evidence: dict[str, Any] = {"expectation": kind, "kwargs": kwargs}
    evidence |= {key: details[key] for key in shown if details.get(key) is not None}
    if not _is_figure(observed := evidence.get("observed_value")):  # values of rows, such as all that a column has
        del evidence["observed_value"]
    if details.get("element_count") is not None:
        evidence["rows"] = details["element_count"]
    unexpected = details.get("unexpected_count")
    if result["success"]:
        message = f"{unexpected} unexpected, within mostly {kwargs.get('mostly')}" if unexpected else ""
        return Verdict(message=message, evidence=evidence)
    if kind == "unexpected_rows_expectation" and isinstance(details.get("observed_value"), int):
        unexpected = details["observed_value"]
    elements = details.get("element_count")
    of = f" of {elements}" if elements is not None else ""
    problem = f"{unexpected}{of} unexpected" if unexpected else _observed(details)
    about = ", ".join(_columns(kwargs))
    return Verdict(
        failures=unexpected or 1,
        message=f"{kind}{f' ({about})' if about else ''}: {problem}",
        samples=tuple(_sample(value, kwargs) for value in details.get("partial_unexpected_list") or _listed(observed)),
        evidence=evidence,
    )


def _observed(details: Mapping[str, Any]) -> str:
    if "observed_value" not in details:
        return "GX says it is not met"
    value = details["observed_value"]
    return f"observed {json.dumps(value)}" if _is_figure(value) else "GX observed the values that the samples show"


def _is_figure(value: Any) -> bool:
    """Whether what GX observed is a number, or nothing; all else is, or may be, values of rows."""
    return value is None or isinstance(value, (bool, int, float))


def _listed(observed: Any) -> Sequence[Any]:
    """What GX observed as values to show; none where it is a figure."""
    if _is_figure(observed):
        return ()
    return list(observed)[:_SAMPLES] if isinstance(observed, (list, tuple)) else (observed,)


def _sample(value: Any, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """An unexpected value as column → value."""
    if isinstance(value, Mapping):
        return value
    columns = _columns(kwargs)
    if isinstance(value, (list, tuple)) and "column" not in kwargs and len(value) == len(columns):
        return dict(zip(columns, value, strict=True))
    return {str(kwargs.get("column", "value")): value}


def _columns(kwargs: Mapping[str, Any]) -> list[str]:
    """The columns that an expectation is about."""
    listed = kwargs.get("column_list")
    named = [kwargs.get(key) for key in ("column", "column_A", "column_B")]
    return [str(column) for column in (*named, *(listed if isinstance(listed, list) else ())) if column]
