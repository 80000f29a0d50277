"""schema_contract: the columns a table must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data_check import SchemaCheck
from recon.model import Verdict
from recon.model.wire.columns import STAMPED_COLUMNS
from recon.spark.columns import path_of
from recon.spark.errors import spark_error
from recon.spark.releases import data_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

# Where Spark keeps what a string column was declared as.
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True, kw_only=True)
class ContractColumn:
    """A column of a contract: its name, and what is promised of it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # a misspelt promise is none

    name: str
    data_type: str | None = None
    nullable: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SchemaContract(SchemaCheck):
    """Columns that are missing, of another type or nullability, or not in the contract.

    Failures are columns; each is a sample that says what was expected and found. Names compare exactly, with case; the
    order of columns does not matter. Rows are not looked at, so NULLs and zero rows change nothing. `nullable: false`
    asks whether the table forbids NULL, as Delta does for `NOT NULL` columns; use `not_null` for values. The columns
    that recon stamps (`_batch_id`, `_source_topic`, `_source_partition`, `_source_offset`) are never too many.

    Args:
        columns: the promised columns, each with `name` and, where they matter, `data_type` and `nullable`. A type is
            written as in Spark SQL: `bigint` (or `long`), `decimal(10,2)`, `array<string>`, `struct<city: string>`. A
            nested field is `address.city`; below arrays and maps it goes on with `element`, `key` or `value`.
        mode: `strict` wants no other columns at the top level, `open` allows them.

    Example:
        data_tests:
          - schema_contract:
              arguments:
                mode: open
                columns:
                  - {name: order_id, data_type: bigint, nullable: false}
                  - {name: address.city, data_type: string}
    """

    test: ClassVar[str] = "schema_contract"
    columns_: tuple[ContractColumn, ...]
    mode: Literal["strict", "open"] = "strict"

    def __post_init__(self) -> None:
        if not self.columns_:
            raise ConfigError("columns is empty, so that nothing is promised; list the columns")
        twice = [name for name, times in Counter(c.name for c in self.columns_).items() if times > 1]
        if twice:
            raise ConfigError(f"columns lists {twice[0]!r} twice; keep one")

    @override
    def label(self) -> str:
        return "" if self.mode == "strict" else self.mode

    @override
    def judge_schema(self, schema: StructType) -> Verdict:
        differences = [*self._promised(schema), *(self._extra(schema) if self.mode == "strict" else ())]
        columns = len({row["column"] for row in differences})
        more = f", and {columns - 1} more columns differ" if columns > 1 else ""
        return Verdict(
            failures=columns,
            message=f"column {differences[0]['column']}: {_sentence(differences[0])}{more}" if differences else "",
            samples=tuple(differences),
            evidence={"columns": len(schema), "promised": len(self.columns_)},
        )

    def _promised(self, schema: StructType) -> Iterator[Mapping[str, Any]]:
        for column in self.columns_:
            wanted = None if column.data_type is None else _parsed(column)
            field = _find(schema, column.name)
            if field is None:
                yield _row(column.name, "missing", column.data_type or "a column", _near(schema, column.name))
                continue
            if wanted is not None and not _same(wanted, field):
                yield _row(column.name, "type", wanted.simpleString(), _declared(field))
            if column.nullable is not None and column.nullable != field.nullable:
                yield _row(column.name, "nullability", _nullability(column.nullable), _nullability(field.nullable))

    def _extra(self, schema: StructType) -> Iterator[Mapping[str, Any]]:
        promised = {name for column in self.columns_ for name in (column.name, *path_of(column.name)[:1])}
        for field in schema:
            if field.name not in promised and field.name not in STAMPED_COLUMNS:
                yield _row(field.name, "extra", None, _declared(field))


def _row(column: str, problem: str, expected: str | None, found: str | None) -> Mapping[str, Any]:
    return {"column": column, "problem": problem, "expected": expected, "found": found}


def _sentence(row: Mapping[str, Any]) -> str:
    if row["problem"] == "missing":
        return "missing" + (f"; the table has {row['found']}" if row["found"] else "")
    if row["problem"] == "extra":
        return f"{row['found']}, which the contract does not have"
    return f"{row['found']} instead of {row['expected']}"


def _nullability(nullable: bool) -> str:
    return "nullable" if nullable else "not null"


def _near(schema: StructType, name: str) -> str | None:
    """The column's name in another case."""
    return next((there for there in schema.names if there.lower() == name.lower()), None)


def _parsed(column: ContractColumn) -> DataType:
    assert column.data_type is not None
    try:
        return data_type(column.data_type)
    except Exception as error:
        raise ConfigError(
            f"column {column.name}: {column.data_type!r} is no type of Spark SQL: {spark_error(error)}"
        ) from error


def _find(schema: StructType, path: str) -> StructField | None:
    """A column by name, or the field that a dotted path leads to."""
    from pyspark.sql import types as T

    if path in schema.names:
        return schema[path]
    head, *rest = path_of(path) or (path,)
    if head not in schema.names:
        return None
    field = schema[head]
    for part in rest:
        inside = field.dataType
        if isinstance(inside, T.StructType) and part in inside.names:
            field = inside[part]
        elif isinstance(inside, T.ArrayType) and part == "element":
            field = T.StructField(part, inside.elementType, inside.containsNull)
        elif isinstance(inside, T.MapType) and part == "key":
            field = T.StructField(part, inside.keyType, False)
        elif isinstance(inside, T.MapType) and part == "value":
            field = T.StructField(part, inside.valueType, inside.valueContainsNull)
        else:
            return None
    return field


def _same(wanted: DataType, field: StructField) -> bool:
    """Whether the types are the same; nullability within them is not compared."""
    from pyspark.sql import types as T

    if isinstance(wanted, (T.CharType, T.VarcharType)):
        return wanted.simpleString() == _declared(field)
    return wanted.simpleString() == field.dataType.simpleString()


def _declared(field: StructField) -> str:
    return str((field.metadata or {}).get(_DECLARED, field.dataType.simpleString()))
