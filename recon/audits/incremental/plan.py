"""Decides which checks can be measured incrementally: how their values merge, and a fingerprint of their meaning."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recon.audits.incremental.memory import Plan
from recon.audits.incremental.merge import Merge
from recon.checks.bound import Bound
from recon.checks.data_check import (
    DataCheck,
    JointCheck,
    KeyCheck,
    Measure,
    QueryCheck,
    RowCheck,
    SchemaCheck,
    WholeCheck,
)
from recon.checks.engine.scan import fitted
from recon.spark.columns import is_expression, key_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FORMAT = 1  # of the state; with another one the whole table is measured again
_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")
# Functions whose value for the same row changes with time or chance: values of several days must not be added up.
_VOLATILE = re.compile(
    r"\b(current_(?:date|timestamp|time|timezone|user|database|schema|catalog)|curdate|now|localtimestamp|getdate"
    r"|unix_timestamp\s*\(\s*\)|session_user|user\s*\(\s*\)|rand|randn|random|uniform(?=\s*\()|randstr(?=\s*\()|uuid|shuffle"
    r"|monotonically_increasing_id|input_file_name|input_file_block_start|input_file_block_length|spark_partition_id"
    r"|java_method|reflect|try_reflect|select|(?:date|timestamp\w*)\s*r?['\"]\s*(?:yesterday|today|tomorrow))(?!\w)",
    re.IGNORECASE,
)


def volatile(text: str) -> str | None:
    """The first part of an expression whose value for the same row may change; None where no such part is known.

    >>> volatile("day < date'today'"), volatile("status = 'today'")
    ("date'today", None)
    """
    match = _VOLATILE.search(text)
    return match[0].lower() if match else None


_WHOLE_TABLE: Mapping[type[DataCheck], str] = {
    QueryCheck: "it derives its failing rows by a query over the whole table",
    SchemaCheck: "it looks at the schema alone",
    JointCheck: "it is measured by code of another library",
    WholeCheck: "it measures itself on the whole table",
}


class WholeTable(Exception):
    """The check has to be measured on the whole table; the message says why."""


def plan_for(bound: Bound, table: DataFrame, name: str) -> Plan:
    """How a check is measured incrementally on this table.

    Raises:
        WholeTable: it cannot be.
        ReconError: it cannot be measured at all.
    """
    check, where = fitted(bound, table, name)
    measured = check.measured_as()
    for kind, reason in _WHOLE_TABLE.items():
        if isinstance(measured, kind):
            raise WholeTable(reason)
    _require_lasting(bound, check)
    _require_binary(check, table)
    if isinstance(measured, KeyCheck):
        _require_hashable(measured, table)
        return Plan(bound, _fingerprint(bound, check, table, {}), None)
    assert isinstance(measured, RowCheck)
    measures = measured.measures()
    merges: dict[str, Merge] = {"rows": lambda a, b: a + b}
    for key, measure in measures.items():
        if not isinstance(measure, Measure) or measure.merge is None:
            raise WholeTable(f"its measure {key!r} cannot be merged")
        merges[key] = measure.merge
    columns = {key: measure.over(where) for key, measure in measures.items()}
    return Plan(bound, _fingerprint(bound, check, table, columns), merges)


def _require_lasting(bound: Bound, check: DataCheck) -> None:
    """Refuses conditions on today's date, on chance or on another table, whose counts cannot be added up."""
    texts = [bound.config.where or "", *_texts([getattr(check, f.name) for f in check.argument_fields().values()])]
    for text in texts:
        if part := volatile(text):
            raise WholeTable(f"it uses {part!r}, whose value for the same row may change")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return []


def _require_binary(check: DataCheck, table: DataFrame) -> None:
    """Refuses columns with a collation, whose order a merge in Python does not know."""
    types = {f.name: f.dataType.json() for f in table.schema.fields}
    for column in check.columns():
        kind = types.get(column.split(".")[0].strip("`"), "")
        if is_expression(column):
            kind = table.select(key_column(column)).schema.json()
        if "collat" in kind:
            raise WholeTable(f"column {column} has a collation")


def _require_hashable(check: KeyCheck, table: DataFrame) -> None:
    """Refuses keys whose equal values may have two hashes, as -0.0 and 0.0 inside of a struct or array have."""
    for field in table.select(*(key_column(name) for name in check.key())).schema:
        kind = field.dataType.simpleString()
        if "<" in kind and ("double" in kind or "float" in kind):
            raise WholeTable(f"its key holds a {kind}, in which equal values may have two hashes")


def _fingerprint(bound: Bound, check: DataCheck, table: DataFrame, measures: Mapping[str, Column]) -> str:
    conf = table.sparkSession.conf
    parts = {
        "format": _FORMAT,
        "check": f"{type(check).__module__}.{type(check).__qualname__}",
        "arguments": repr(check),
        "where": bound.config.where,
        "measures": {key: str(column) for key, column in measures.items()},
        "schema": table.schema.json(),
        "settings": {key: conf.get(key, None) for key in _SETTINGS},
        "zone": time.tzname,  # Spark gives instants in the zone of this process
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
