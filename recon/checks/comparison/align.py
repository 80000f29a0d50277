"""Pairs the columns of two tables, and finds the type in which their values are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.checks.comparison.result import SchemaDifference
from recon.spark.columns import named, path_of, unknown
from recon.spark.lazy import T

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MAX_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A column, or a field of one, and its counterpart, compared as `type`; both are named as in recon.yml.

    `name` is the left one's.
    """

    name: str
    other: str
    type: DataType


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The key, the columns to compare, the differences of the schemas, and the columns that `where` may use.

    Of `names`, each is what `where` calls a column, and what the right table calls it.
    """

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

    Names are written as in every check: `a.b` is a field of a struct. A name that is on one side only in other letter
    case is paired with it.

    Raises:
        ConfigError: a name is unknown or given twice, or its types cannot be compared.
    """
    ours, theirs = _Table.of(names[0], left), _Table.of(names[1], right)
    mapped = _mapped(ours, theirs, mapping)
    pairs, unpaired = _paired(ours, theirs, mapped)

    def both_have(wanted: Sequence[str], option: str) -> Iterator[str]:
        for name in wanted:
            column = ours.find(name, option)
            other = pairs.get(column) or _of_fields(column, theirs, pairs)
            if other is None:
                raise ConfigError(
                    f"{option} names {name!r}, which {theirs.name} does not have; map it to the name that it has there"
                )
            pairs[column] = other
            yield column

    if not key:
        raise ConfigError("a comparison needs a key: the columns that identify a row on both sides")
    keys = list(dict.fromkeys(both_have(key, "key")))
    if columns is not None:
        wanted, one_sided = list(dict.fromkeys(both_have(columns, "columns"))), []
    else:
        left_out = set(_excluded(exclude, ours, theirs, pairs))
        if clash := left_out.intersection(keys):
            raise ConfigError(f"key column {sorted(clash)[0]!r} is in exclude; a comparison needs its key")
        fields = [name for name in mapped if name not in ours.types]
        wanted = [name for name in (*ours.types, *fields) if name in pairs and name not in left_out]
        one_sided = [
            *((name, ours.type_name(name), None) for name in ours.types if name not in pairs and name not in left_out),
            *((name, None, theirs.type_name(name)) for name in unpaired if name not in left_out),
        ]
    names_of_where = [(path_of(name)[0], other) for name, other in pairs.items() if name in ours.types]
    matched = {name: _pair(name, pairs[name], ours, theirs) for name in (*keys, *wanted)}
    differing = [
        SchemaDifference(column=p.name, left=left_type, right=right_type, compared_as=p.type.simpleString())
        for p in matched.values()
        if (left_type := ours.type_name(p.name)) != (right_type := theirs.type_name(p.other))
    ]
    taken = {name.casefold() for name, _ in names_of_where}
    return Alignment(
        key=tuple(matched[name] for name in keys),
        columns=tuple(pair for name, pair in matched.items() if name not in keys),
        schema=(*differing, *(SchemaDifference(column=c, left=here, right=there) for c, here, there in one_sided)),
        names=(
            *names_of_where,
            *((name, other) for other in unpaired if (name := path_of(other)[0]).casefold() not in taken),
        ),
    )


@dataclass(frozen=True)
class _Table:
    """One side: its name in messages, its schema, and the types of its columns by the names that recon.yml has."""

    name: str
    schema: StructType
    types: Mapping[str, DataType]

    @classmethod
    def of(cls, name: str, schema: StructType) -> _Table:
        for column, count in Counter(schema.fieldNames()).items():
            if count > 1:
                raise ConfigError(f"{name} has more than one column {column!r}; rename one of them")
        return cls(name, schema, {named([field.name]): field.dataType for field in schema.fields})

    def type_name(self, column: str) -> str:
        return self.type_of(column).simpleString()

    def type_of(self, column: str) -> DataType:
        return self.types.get(column) or type_within(self.schema, column)

    def spelt(self, name: str) -> str | None:
        """The name of a column or field as this table spells it; None where it has none of that name."""
        type_: DataType = self.schema
        path = []
        for part in path_of(name):
            field = _field(type_, part)
            if field is None:
                return None
            path.append(field[0])
            type_ = field[1]
        return named(path) or None

    def find(self, name: str, option: str) -> str:
        """The column that an option names."""
        column = self.spelt(name)
        if column is None:
            how = unknown(name, self.schema.fieldNames(), "it has")
            raise ConfigError(f"{option} names {name!r}, which {self.name} does not have{how}")
        return column


def type_within(schema: StructType, name: str) -> DataType:
    """The type of a column or field that the schema has."""
    type_: DataType = schema
    for part in path_of(name):
        field = _field(type_, part)
        assert field is not None, name
        type_ = field[1]
    return type_


def _field(type_: DataType, part: str) -> tuple[str, DataType] | None:
    """A field's name as the type spells it, and its type; of an array of structs, as Spark has it, all its values."""
    if isinstance(type_, T.MapType):
        return part, type_.valueType
    if isinstance(type_, T.ArrayType):
        field = _field(type_.elementType, part) if isinstance(type_.elementType, T.StructType) else None
        return field and (field[0], T.ArrayType(field[1]))
    if not isinstance(type_, T.StructType):
        return None
    name = _named(part, type_.fieldNames())
    return None if name is None else (name, type_[name].dataType)


def _named(name: str, columns: Iterable[str]) -> str | None:
    """The column of this name, or the only one that differs from it in letter case alone."""
    alike = [column for column in columns if column.casefold() == name.casefold()]
    if name in alike:
        return name
    return alike[0] if len(alike) == 1 else None


def _mapped(ours: _Table, theirs: _Table, mapping: Mapping[str, str]) -> Mapping[str, str]:
    """The mapping, in the tables' spelling."""
    pairs = {ours.find(left, "mapping"): theirs.find(other, "mapping") for left, other in mapping.items()}
    for column, count in Counter(pairs.values()).items():
        if count > 1:
            raise ConfigError(
                f"mapping gives column {column!r} of {theirs.name} to more than one column of {ours.name}"
            )
    return pairs


def _paired(ours: _Table, theirs: _Table, mapped: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Each left column's right one, and the right columns that have no left one."""
    pairs = dict(mapped)
    unpaired = [name for name in theirs.types if name not in pairs.values()]
    spellings = Counter(name.casefold() for name in ours.types)
    for name in ours.types:
        # Of two names that differ in letter case alone, each is only paired with exactly its own.
        candidates = unpaired if spellings[name.casefold()] == 1 else [name] if name in unpaired else []
        if name not in pairs and (other := _named(name, candidates)) is not None:
            pairs[name] = other
            unpaired.remove(other)
    return pairs, unpaired


def _of_fields(field: str, theirs: _Table, pairs: Mapping[str, str]) -> str | None:
    """The field of the same name in the counterpart of a field's column; None where there is none."""
    column, *within = path_of(field)
    other = pairs.get(named([column]))
    return theirs.spelt(".".join([other, named(within)])) if other is not None and within else None


def _excluded(exclude: Sequence[str], ours: _Table, theirs: _Table, pairs: Mapping[str, str]) -> Iterator[str]:
    """The columns to leave out, by their left name where they are paired."""
    left_of = {other: left for left, other in pairs.items()}
    for name in exclude:
        left, right = ours.spelt(name), theirs.spelt(name)
        if (left or right) is not None and len(path_of(name)) > 1:
            raise ConfigError(
                f"exclude names {name!r}, a field of a column; leave out the whole column, or list the columns and "
                "fields to compare instead"
            )
        if left is not None:
            yield left
        elif right is not None:
            yield left_of.get(right, right)
        else:
            known = dict.fromkeys([*ours.schema.fieldNames(), *theirs.schema.fieldNames()])
            how = unknown(name, known, "they have")
            raise ConfigError(f"exclude names {name!r}, which neither {ours.name} nor {theirs.name} has{how}")


def _pair(name: str, other: str, ours: _Table, theirs: _Table) -> Pair:
    types = ours.type_of(name), theirs.type_of(other)
    for table, column, type_ in zip((ours, theirs), (name, other), types, strict=True):
        if not has_equality(type_):
            raise ConfigError(
                f"column {column!r} of {table.name} is {table.type_name(column)}, which has no equality in Spark; "
                "exclude it, or turn it into text such as to_json before the comparison"
            )
    common = common_type(*types)
    if common is None:
        raise ConfigError(
            f"column {name!r} is {ours.type_name(name)} in {ours.name} and {theirs.type_name(other)} in {theirs.name}, "
            "which have no common type; cast one of them, or exclude the column"
        )
    return Pair(name=name, other=other, type=common)


def has_equality(type_: DataType) -> bool:
    """Whether Spark can compare two values of a type."""
    if isinstance(type_, T.StructType):
        return all(has_equality(field.dataType) for field in type_.fields)
    if isinstance(type_, T.ArrayType):
        return has_equality(type_.elementType)
    texts = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
    times = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.YearMonthIntervalType)
    return isinstance(type_, (T.NumericType, T.BooleanType, T.NullType, *texts, *times))


def common_type(left: DataType, right: DataType) -> DataType | None:
    """The type in which values of both are compared; casts to it never fail, and only `double` loses digits.

    Whole numbers widen; a boolean next to one becomes 0 or 1. Decimals keep all digits; None where that takes more than
    38. Anything next to `double` or `float` becomes `double`. Dates become timestamps; timestamps without a zone are
    read in the session's. Anything next to a string becomes its text, and text is compared byte by byte.
    """
    left, right = _plain(left), _plain(right)
    if left == right:
        return left
    for first, second in ((left, right), (right, left)):
        if isinstance(first, T.NullType):
            return second
        if isinstance(first, T.BinaryType) and isinstance(second, T.StringType):
            return first
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
    for first, second in ((left, right), (right, left)):
        if isinstance(first, T.BooleanType) and isinstance(second, T.IntegralType):
            return second
    if isinstance(left, T.NumericType) and isinstance(right, T.NumericType):
        return _common_number(left, right)
    return None


def _plain(type_: DataType) -> DataType:
    """Without collation, length and nullability."""
    if isinstance(type_, (T.StringType, T.CharType, T.VarcharType)):
        return T.StringType()
    if isinstance(type_, T.ArrayType):
        return T.ArrayType(_plain(type_.elementType))
    if isinstance(type_, T.StructType):
        return T.StructType([T.StructField(field.name, _plain(field.dataType)) for field in type_.fields])
    return type_


def _common_struct(left: StructType, right: StructType) -> StructType | None:
    """Fields are paired by their position; names are those of the left struct."""
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
    if isinstance(type_, T.DecimalType):
        return type_.precision - type_.scale, type_.scale
    return _INTEGER_DIGITS[type_.simpleString()], 0
