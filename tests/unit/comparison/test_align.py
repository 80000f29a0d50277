"""Which columns of two tables belong together, and as what they are compared; needs no JVM."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T
from pyspark.sql.types import StructType

from recon.base.errors import ConfigError
from recon.checks.comparison.align import align, common_type
from tests.support.messages import raises

TYPES = {
    "bool": T.BooleanType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "varchar(5)": T.VarcharType(5),
    "lower": T.StringType("UTF8_LCASE"),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "ntz": T.TimestampNTZType(),
    "void": T.NullType(),
    "dec(10,2)": T.DecimalType(10, 2),
    "dec(12,4)": T.DecimalType(12, 4),
    "dec(38,2)": T.DecimalType(38, 2),
    "array<int>": T.ArrayType(T.IntegerType(), False),
    "array<bigint>": T.ArrayType(T.LongType()),
    "struct<x int>": T.StructType([T.StructField("x", T.IntegerType())]),
    "struct<X bigint>": T.StructType([T.StructField("X", T.LongType())]),
    "struct<y int>": T.StructType([T.StructField("y", T.IntegerType())]),
}


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("int", "bigint", "bigint"),
        ("bool", "int", "int"),
        ("int", "double", "double"),
        ("float", "double", "double"),
        ("float", "float", "float"),
        ("dec(10,2)", "dec(12,4)", "decimal(12,4)"),
        ("dec(10,2)", "bigint", "decimal(21,2)"),
        ("dec(10,2)", "double", "double"),
        ("dec(38,2)", "dec(12,4)", None),
        ("string", "int", "string"),
        ("string", "date", "string"),
        ("string", "varchar(5)", "string"),
        ("lower", "lower", "string"),
        ("string", "binary", "binary"),
        ("date", "ntz", "timestamp_ntz"),
        ("date", "timestamp", "timestamp"),
        ("timestamp", "ntz", "timestamp"),
        ("void", "date", "date"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("array<int>", "int", None),
        ("array<int>", "string", None),
        ("struct<x int>", "struct<X bigint>", "struct<x:bigint>"),
        ("struct<x int>", "struct<y int>", None),
        ("date", "int", None),
        ("bool", "double", None),
        ("binary", "int", None),
    ],
)
def test_the_common_type_whichever_side(left, right, common):
    for one, two in ((left, right), (right, left)):
        found = common_type(TYPES[one], TYPES[two])
        assert (found and found.simpleString().lower()) == common


def schema(**columns: str) -> StructType:
    return StructType(
        [T.StructField(name, TYPES.get(t) or T.MapType(T.StringType(), T.StringType())) for name, t in columns.items()]
    )


def aligned(left, right, key=("id",), **options):
    options = {"columns": None, "exclude": (), "mapping": {}, **options}
    found = align(left, right, key=key, names=("source", "sink"), **options)
    return (
        [(p.name, p.other) for p in found.key],
        [(p.name, p.other) for p in found.columns],
        [(s.column, s.left, s.right) for s in found.schema],
    )


def test_columns_belong_together_by_name_then_by_letter_case():
    left = schema(id="int", a="int", B="int", gone="date")
    right = schema(ID="int", b="int", a="bigint", more="bool")
    assert aligned(left, right) == (
        [("id", "ID")],
        [("a", "a"), ("B", "b")],
        [("a", "int", "bigint"), ("gone", "date", None), ("more", None, "boolean")],
    )


def test_names_that_differ_in_case_alone_on_one_side_are_exact():
    both = schema(id="int", a="int", A="int")
    assert aligned(both, schema(id="int", A="int"))[1:] == ([("A", "A")], [("a", "int", None)])


def test_mapping_goes_first():
    left, right = schema(id="int", amount="int"), schema(key="int", total="int", amount="int")
    assert aligned(left, right, mapping={"id": "key", "amount": "total"}) == (
        [("id", "key")],
        [("amount", "total")],
        [("amount", None, "int")],
    )


def test_names_may_be_swapped():
    both = schema(id="int", a="int", b="int")
    assert aligned(both, both, mapping={"a": "b", "b": "a"})[1] == [("a", "b"), ("b", "a")]


def test_exclude_reaches_both_sides():
    left, right = schema(id="int", a="int", b="int", l="int"), schema(id="int", a="date", b="int", r="int")
    assert aligned(left, right, exclude=["A", "l", "r"])[1:] == ([("b", "b")], [])


def test_only_the_named_columns():
    left, right = schema(id="int", a="int", l="int"), schema(id="int", a="int", m="map")
    assert aligned(left, right, columns=["a", "id"])[1:] == ([("a", "a")], [])


def test_names_are_those_of_every_check():
    left = schema(**{"my col": "int", "a.b": "int", "a`b": "int", "a": "struct<x int>"})
    right = schema(**{"MY COL": "int", "a.b": "bigint", "a`b": "int", "a": "struct<X bigint>", "n": "int"})
    assert aligned(left, right, key=["`my col`", "`a``b`"], columns=["my col", "`a.b`", "a.x"]) == (
        [("my col", "MY COL"), ("`a``b`", "`a``b`")],
        [("`a.b`", "`a.b`"), ("a.x", "a.X")],
        [("`a.b`", "int", "bigint"), ("a.x", "int", "bigint")],
    )
    assert aligned(left, right, key=["a.x"], exclude=["a", "`a.b`", "my col", "`a``b`"], mapping={"a.x": "n"}) == (
        [("a.x", "n")],
        [],
        [],
    )


def test_a_key_alone_can_be_compared():
    assert aligned(schema(id="int"), schema(id="int")) == ([("id", "id")], [], [])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ()}, "a comparison needs a key"),
        ({"key": ("idd",)}, "key names 'idd', which source does not have; did you mean 'id'?"),
        ({"key": ("l",)}, "key names 'l', which sink does not have; map it"),
        ({"columns": ["l"]}, "columns names 'l', which sink does not have; map it"),
        ({"exclude": ["amuont"]}, "exclude names 'amuont', which neither source nor sink has; did you mean 'amount'?"),
        ({"exclude": ["id"]}, "key column 'id' is in exclude"),
        ({"mapping": {"nope": "id"}}, "mapping names 'nope', which source does not have"),
        ({"mapping": {"id": "nope"}}, "mapping names 'nope', which sink does not have"),
        ({"mapping": {"l": "id", "id": "id"}}, "mapping gives column 'id' of sink to more than one"),
        ({}, "column 'm' of source is map<string,string>, which has no equality in Spark"),
        ({"key": ("a.b",)}, "key names 'a.b', which source does not have; write `a.b`: a dot leads to a field"),
        ({"key": ("a`b",)}, "key names 'a`b', which source does not have; write `a``b`: a dot leads to a field"),
        ({"exclude": ["a.b"]}, "exclude names 'a.b', which neither source nor sink has; write `a.b`:"),
        ({"key": ("s.x",)}, "key names 's.x', which sink does not have; map it"),
        ({"exclude": ["s.x"]}, "exclude names 's.x', a field of a column; leave out the whole column"),
        ({"columns": ["t"]}, "column 't' is date in source and int in sink, which have no common type"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(options, says):
    odd = {"a.b": "int", "a`b": "int"}
    left = schema(id="int", amount="int", l="int", m="map", t="date", s="struct<x int>", **odd)
    right = schema(id="int", amount="int", m="map", t="int", s="struct<y int>", **odd)
    with pytest.raises(ConfigError) as error:
        aligned(left, right, **options)
    assert says in str(error.value)


def test_a_name_that_stands_twice():
    twice = StructType([T.StructField("id", T.IntegerType())] * 2)
    with raises(ConfigError):
        aligned(twice, schema(id="int"))
