"""Turns an error of Spark into a sentence."""

from __future__ import annotations

import re
from itertools import pairwise

_CALLING = "An error occurred while calling"
# PySpark 4.0 fails to look up Delta's errors for its log: the error it raises then has Delta's as its context.
_FROM_THE_JVM = re.compile(r"[^\n]*\.execute\.\n: [\w.]*AnalysisException: ([^\n]+)")
_POSITION = re.compile(r"; line \d+ pos \d+;?$")


def spark_error(error: Exception) -> str:
    r"""Spark's own sentence, without its stack trace and its SQLSTATE; at most 400 characters.

    >>> spark_error(ValueError("An error occurred while calling o1.x.\n: no such column"))
    'no such column'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" :")]
    # A failure on an executor comes as "An error occurred while calling …" with the cause on the next line.
    sentence = next((line for line in lines if not line.startswith(_CALLING)), type(error).__name__)
    sql = dict(pairwise(lines)).get("== SQL ==")  # what could not be parsed
    return sentence.lstrip(": ")[:400] + (f" (in {sql!r})" if sql else "")


def refusal(error: Exception) -> str | None:
    """Why Spark or Delta refused to plan a statement, without the SQLSTATE; None for other errors."""
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        return without_sqlstate(error)
    for text in (str(error), str(error.__context__)):
        message = _FROM_THE_JVM.match(text)
        if message:
            # Where in the statement it is helps nobody: recon wrote the statement.
            return _POSITION.sub("", message[1].split(" SQLSTATE")[0])[:400].rstrip(".;")
    return None


def without_sqlstate(error: Exception) -> str:
    """Spark's own sentence for use inside another one: no SQLSTATE, no full stop."""
    return spark_error(error).split(" SQLSTATE")[0].rstrip(".;")
