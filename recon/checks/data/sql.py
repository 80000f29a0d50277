"""A project's own SQL tests as checks."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.checks.data_check import Measure, QueryCheck, Tables, count_if
from recon.model import Verdict
from recon.project.sql_tests import MODEL, Rendered
from recon.spark.columns import distinct
from recon.spark.errors import spark_error
from recon.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from recon.project import CheckConfig

_TOKENS = re.compile(
    r"""
      (?P<comment> --[^\n]* )
    | (?P<open> /\* )
    | (?P<quoted> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` )
    | (?P<word> \w+ )
    | (?P<mark> \S )
    """,
    re.VERBOSE | re.DOTALL,
)
# Functions that run code outside of SQL; IDENTIFIER can spell their names.
_RUNS_CODE = ("java_method", "reflect", "try_reflect", "identifier")


@dataclass(frozen=True, kw_only=True)
class SqlTest(QueryCheck):
    """Rows that a SELECT of the project returns: a file of `data_tests`, or a `{% test %}` block with arguments.

    NULL means what the query makes of it. The query also runs without rows in the sink (that meet `where`), as it may
    test just that. If it then returns no row, `if_empty` decides. Costs a Spark job of its own, over every table that
    it names.

    Args:
        test: the generic test's name; `sql_test` for a singular one.
        file: where it stands, for messages.
        rendered: the query.
        arguments: of a generic test.
        column_name: the column of a generic test listed below one.
        own: references that mean the tested rows themselves, beside `model`.
        singular: whether it is a file of its own; False for a generic test.
    """

    reads: ClassVar[Sequence[str]] = ("column_name",)
    judges_empty: ClassVar[bool] = True
    test: str = "sql_test"  # type: ignore[misc]  # a ClassVar of other checks
    file: str
    rendered: Rendered
    arguments: Mapping[str, Any] = field(default_factory=dict)
    column_name: str | None = None
    own: frozenset[str] = frozenset()
    singular: bool = True

    @override
    def settled(self, config: CheckConfig) -> CheckConfig:
        return config if self.singular else config.over(self.rendered.config)

    @override
    def hide(self, text: str) -> str:
        return self.rendered.mask(text)

    @override
    def label(self) -> str:
        others = [value for name, value in self.arguments.items() if name != "column_name"]
        return "_".join(map(_text, [*self.columns(), *others]))

    @override
    def failing_rows(self, rows: DataFrame, tables: Tables) -> DataFrame:
        from pyspark.sql.utils import is_remote

        query = one_select(self.rendered.text, self.file)
        spark = rows.sparkSession
        views: list[str] = []
        try:
            for reference in self.rendered.references:
                table = rows if reference == MODEL or reference in self.own else tables.open(reference)
                views.append(f"recon_{uuid.uuid4().hex}")
                table.createOrReplaceTempView(views[-1])
            # As a subquery nothing but a SELECT is valid. The first line stays the first, for Spark's line numbers.
            named = replace(self.rendered, text=query).sql(views)
            failing = spark.sql(f"SELECT * FROM ({named}\n)")
            failing = failing.toDF(*distinct(failing.columns))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.file}: {self._with_references(spark_error(error), views)}") from error
        finally:
            # Once analysed a query needs its views no more; Connect analyses again when it runs.
            for view in () if is_remote() else views:
                spark.catalog.dropTempView(view)
        return failing

    @override
    def measures(self) -> Mapping[str, Measure]:
        return {"tested": count_if(F.lit(True))}

    @override
    def judge(self, measured: Mapping[str, Any]) -> Verdict:
        failures = measured["failures"]
        if not failures and not measured["rows"]:
            return Verdict(skipped="0 rows, and the query returns none")
        return Verdict.counted(failures, f"the query returns {failures} failing rows", rows=measured["rows"])

    def _with_references(self, message: str, views: list[str]) -> str:
        for view, reference in zip(views, self.rendered.references, strict=False):
            message = message.replace(view, reference)
        return message


def one_select(sql: str, file: str) -> str:
    """The statement without what may follow it: semicolons.

    Raises:
        ConfigError: it is no SELECT, or more than one statement, or its parentheses do not match, or it runs a
            script or a Java method.
    """
    at, depth, end, begun, before = 0, 0, None, False, ""
    while match := _TOKENS.search(sql, at):
        at = _after_comment(sql, match.end(), file) if match["open"] else match.end()
        if match["comment"] or match["open"]:
            continue
        token = match[0]
        if token == ";":
            end = match.start() if end is None else end
            continue
        if end is not None:
            raise ConfigError(f"{file} holds more than one statement; a SQL test is one SELECT")
        if not begun and token != "(":
            begun = True
            if token.upper() not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE"):
                raise ConfigError(f"{file} begins with {token!r}; a SQL test is one SELECT that returns failing rows")
        _refuse_code(before, token, file)
        before = token
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            break
    if not begun:
        raise ConfigError(f"{file} holds no statement; a SQL test is one SELECT that returns failing rows")
    if depth:
        raise ConfigError(f"the parentheses of {file} do not match")
    return sql if end is None else sql[:end]


def _refuse_code(before: str, token: str, file: str) -> None:
    """SELECT TRANSFORM, MAP and REDUCE name their script after USING; a join has columns in parentheses there."""
    name = before.strip("`").lower()
    if token == "(" and name in _RUNS_CODE:
        raise ConfigError(f"{file} calls {name}, which can run code outside of SQL; a SQL test may not")
    if name == "using" and token[-1] in "'\"":
        raise ConfigError(f"{file} runs a script (TRANSFORM … USING); a SQL test may not")


def _after_comment(sql: str, at: int, file: str) -> int:
    """The end of a bracketed comment, which may hold others."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise ConfigError(f"{file} has a comment /* that does not end")


def _text(value: Any) -> str:
    return "__".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
