"""Pairs the columns of two tables, and finds the type in which their values are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.comparison.result import SchemaDifference
from recon.errors import ConfigError
from recon.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MAX_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A column of the left table and its counterpart, compared as `type`. `name` is the left one's."""

    name: str
    other: str
    type: DataType


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The key, the columns to compare, the differences of the schemas, and the columns that `where` may use."""

    key: tuple[Pair, ...]
    columns: tuple[Pair, ...]
    schema: tuple[SchemaDifference, ...]
    names: tuple[tuple[str, str], ...]


def align(
    left: StructType,
    right: StructType,
    *,
    key: Sequence[str],
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    mapping: Mapping[str, str],
    names: tuple[str, str],
) -> Alignment:
    """Pairs the columns of two tables by `mapping` (left name to right name) and else by name.

    A name that is on one side only in other letter case is paired with it.

    Raises:
        ConfigError: a name is unknown or given twice, or its types cannot be compared.
    """
    lefts, rights = _types(left, names[0]), _types(right, names[1])
    pairs: dict[str, str] = {}
    for ours, theirs in mapping.items():
        pairs[_find(ours, lefts, names[0], "mapping")] = _find(theirs, rights, names[1], "mapping")
    if len(set(pairs.values())) < len(pairs):
        twice = next(r for r in pairs.values() if list(pairs.values()).count(r) > 1)
        raise ConfigError(f"mapping gives column {twice!r} of {names[1]} to more than one column of {names[0]}")
    unpaired = [name for name in rights if name not in pairs.values()]
    for name in lefts:
        if name not in pairs and (other := _named(name, unpaired, exact_only=_several(name, lefts))) is not None:
            pairs[name] = other
            unpaired.remove(other)
    if not key:
        raise ConfigError("a comparison needs a key: the columns that identify a row on both sides")
    keys = list(dict.fromkeys(_both(k, lefts, pairs, names, "key") for k in key))
    if columns is not None:
        wanted = list(dict.fromkeys(_both(c, lefts, pairs, names, "columns") for c in columns))
    else:
        left_out = set(_excluded(exclude, lefts, rights, pairs, names))
        if clash := left_out.intersection(keys):
            raise ConfigError(f"key column {sorted(clash)[0]!r} is in exclude; a comparison needs its key")
        wanted = [name for name in lefts if name in pairs and name not in left_out]
    wanted = [name for name in wanted if name not in keys]
    matched = {name: _pair(name, pairs[name], lefts, rights, names) for name in (*keys, *wanted)}
    schema = [
        SchemaDifference(
            column=p.name,
            left=lefts[p.name].simpleString(),
            right=rights[p.other].simpleString(),
            compared_as=p.type.simpleString(),
        )
        for p in matched.values()
        if lefts[p.name].simpleString() != rights[p.other].simpleString()
    ]
    if columns is None:
        schema += [
            SchemaDifference(column=name, left=lefts[name].simpleString(), right=None)
            for name in lefts
            if name not in pairs and name not in left_out
        ]
        schema += [
            SchemaDifference(column=name, left=None, right=rights[name].simpleString())
            for name in unpaired
            if name not in left_out
        ]
    paired = {name.casefold() for name in pairs}
    return Alignment(
        key=tuple(matched[name] for name in keys),
        columns=tuple(matched[name] for name in wanted),
        schema=tuple(schema),
        names=(*pairs.items(), *((name, name) for name in unpaired if name.casefold() not in paired)),
    )


def _types(schema: StructType, table: str) -> dict[str, DataType]:
    types: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in types:
            raise ConfigError(f"{table} has more than one column {field.name!r}; rename one of them")
        types[field.name] = field.dataType
    return types


def _several(name: str, names: Iterable[str]) -> bool:
    return sum(other.casefold() == name.casefold() for other in names) > 1


def _named(name: str, names: Sequence[str], exact_only: bool = False) -> str | None:
    """The column of this name, or the only one that differs from it in letter case alone."""
    if name in names:
        return name
    alike = [] if exact_only else [other for other in names if other.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def _find(name: str, names: Mapping[str, DataType], table: str, option: str) -> str:
    column = _named(name, list(names))
    if column is None:
        raise ConfigError(f"{option} names {name!r}, which {table} does not have{did_you_mean(name, names, 'it has')}")
    return column


def _both(name: str, lefts: Mapping[str, DataType], pairs: Mapping[str, str], tables: tuple[str, str], of: str) -> str:
    column = _find(name, lefts, tables[0], of)
    if column not in pairs:
        raise ConfigError(f"{of} names {name!r}, which {tables[1]} does not have; map it to the name that it has there")
    return column


def _excluded(
    exclude: Sequence[str],
    lefts: Mapping[str, DataType],
    rights: Mapping[str, DataType],
    pairs: Mapping[str, str],
    tables: tuple[str, str],
) -> Iterable[str]:
    back = {theirs: ours for ours, theirs in pairs.items()}
    for name in exclude:
        ours, theirs = _named(name, list(lefts)), _named(name, list(rights))
        if ours is None and theirs is None:
            near = did_you_mean(name, [*lefts, *rights], "they have")
            raise ConfigError(f"exclude names {name!r}, which neither {tables[0]} nor {tables[1]} has{near}")
        if ours is not None:
            yield ours
        elif theirs is not None:
            yield back.get(theirs, theirs)


def _pair(
    name: str, other: str, lefts: Mapping[str, DataType], rights: Mapping[str, DataType], tables: tuple[str, str]
) -> Pair:
    ours, theirs = lefts[name], rights[other]
    for type_, table, column in ((ours, tables[0], name), (theirs, tables[1], other)):
        if not _comparable(type_):
            raise ConfigError(
                f"column {column!r} of {table} is {type_.simpleString()}, which has no equality in Spark; "
                "exclude it, or turn it into text such as to_json before the comparison"
            )
    common = common_type(ours, theirs)
    if common is None:
        raise ConfigError(
            f"column {name!r} is {ours.simpleString()} in {tables[0]} and {theirs.simpleString()} in {tables[1]}, "
            "which have no common type; cast one of them, or exclude the column"
        )
    return Pair(name=name, other=other, type=common)


def _comparable(type_: DataType) -> bool:
    from pyspark.sql import types as T

    if isinstance(type_, T.StructType):
        return all(_comparable(field.dataType) for field in type_.fields)
    if isinstance(type_, T.ArrayType):
        return _comparable(type_.elementType)
    return isinstance(
        type_,
        (
            T.NumericType,
            T.StringType,
            T.CharType,
            T.VarcharType,
            T.BinaryType,
            T.BooleanType,
            T.DateType,
            T.TimestampType,
            T.TimestampNTZType,
            T.DayTimeIntervalType,
            T.YearMonthIntervalType,
            T.NullType,
        ),
    )


def common_type(left: DataType, right: DataType) -> DataType | None:
    """The type in which values of both are compared; casts to it never fail, and only `double` loses digits.

    Whole numbers widen; a boolean next to one becomes 0 or 1; decimals keep all digits, and None is returned where
    that takes more than 38; anything next to `double` or `float` becomes `double`; dates become timestamps, timestamps
    without a zone are read in the session's; anything next to a string becomes its text. Text is compared byte by byte.
    """
    from pyspark.sql import types as T

    left, right = _plain(left), _plain(right)
    if left == right:
        return left
    for one, two in ((left, right), (right, left)):
        if isinstance(one, T.NullType):
            return two
        if isinstance(one, T.BinaryType) and isinstance(two, T.StringType):
            return one
    if isinstance(left, T.StructType) and isinstance(right, T.StructType):
        return _common_struct(left, right)
    if isinstance(left, T.ArrayType) and isinstance(right, T.ArrayType):
        element = common_type(left.elementType, right.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(left, (T.StructType, T.ArrayType)) or isinstance(right, (T.StructType, T.ArrayType)):
        return None
    if isinstance(left, T.StringType) or isinstance(right, T.StringType):
        return T.StringType()
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    if isinstance(left, times) and isinstance(right, times):
        zoned = T.TimestampType in (type(left), type(right))
        return T.TimestampType() if zoned else T.TimestampNTZType()
    for one, two in ((left, right), (right, left)):
        if isinstance(one, T.BooleanType) and isinstance(two, T.IntegralType):
            return two
    if isinstance(left, T.NumericType) and isinstance(right, T.NumericType):
        return _common_number(left, right)
    return None


def _plain(type_: DataType) -> DataType:
    """Without collation, length and nullability."""
    from pyspark.sql import types as T

    if isinstance(type_, (T.StringType, T.CharType, T.VarcharType)):
        return T.StringType()
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(_plain(type_.elementType))
    if isinstance(type_, T.StructType):
        return T.StructType([T.StructField(field.name, _plain(field.dataType)) for field in type_.fields])
    return type_


def _common_struct(left: StructType, right: StructType) -> StructType | None:
    """Fields are paired by their position; names are those of the left struct."""
    from pyspark.sql import types as T

    if [f.name.casefold() for f in left.fields] != [f.name.casefold() for f in right.fields]:
        return None
    fields = []
    for ours, theirs in zip(left.fields, right.fields, strict=True):
        type_ = common_type(ours.dataType, theirs.dataType)
        if type_ is None:
            return None
        fields.append(T.StructField(ours.name, type_))
    return T.StructType(fields)


def _common_number(left: DataType, right: DataType) -> DataType | None:
    from pyspark.sql import types as T

    if isinstance(left, T.FractionalType) and isinstance(right, T.FractionalType) and type(left) is type(right):
        if not isinstance(left, T.DecimalType):
            return left
    elif isinstance(left, (T.FloatType, T.DoubleType)) or isinstance(right, (T.FloatType, T.DoubleType)):
        return T.DoubleType()
    ours, theirs = _INTEGER_DIGITS.get(left.simpleString()), _INTEGER_DIGITS.get(right.simpleString())
    if ours and theirs:
        return left if ours > theirs else right
    digits, scales = zip(*(_digits(type_) for type_ in (left, right)), strict=True)
    if max(digits) + max(scales) > _MAX_DIGITS:
        return None
    return T.DecimalType(max(digits) + max(scales), max(scales))


def _digits(type_: DataType) -> tuple[int, int]:
    """Digits before and after the point."""
    from pyspark.sql import types as T

    if isinstance(type_, T.DecimalType):
        return type_.precision - type_.scale, type_.scale
    return _INTEGER_DIGITS[type_.simpleString()], 0


__all__ = ["Alignment", "Pair", "align", "common_type"]
