"""Erases rows of a person from what recon itself keeps: quarantine, stored failures, samples of the last results.

Each erasure is entered first, in a chain of its own, and then carried out. Where it is interrupted, the same condition
finds what is still there. Rows in quarantine lose their values and keep their place, so that audits go on accounting
for their offsets. Which rows of JSON meet the condition is decided by SQLite, in memory.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.clock import utc_now
from recon.base.errors import ConfigError, LedgerError
from recon.base.lazy import pa
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.model import CheckResult, RunResult
from recon.model.erasure import Erasure
from recon.model.wire.columns import ERASED, QUARANTINE_COLUMNS, REASONS, ROW_ID, STAMPED_COLUMNS
from recon.model.wire.quarantine import dump_erased
from recon.project import Pipeline, Project, Sink
from recon.witness import delta_log
from recon.write.ledger import arrow, quarantined
from recon.write.ledger.erasures import ERASURES, ErasureTable
from recon.write.ledger.failures import FAILURES
from recon.write.ledger.store import Filter, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 500  # rows that one statement names
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
UNREACHED = (
    "Not reached are Kafka's topics, the sinks' own tables, earlier versions of quarantine and failures until VACUUM "
    "removes their files (by default after a week), backups, logs, and copies of reports: erase there, too."
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What meets the condition, of one sink.

    `quarantined` are the `_recon_id` of rows in quarantine. `failures` are stored failing rows, as (invocation_id,
    unique_id, row_number). `samples` has the numbers of samples by the unique_id of their check. `unknown` are
    sentences about rows of which nobody can tell whether they meet it.
    """

    pipeline: str
    sink: str
    quarantined: tuple[str, ...] = ()
    failures: tuple[tuple[str, str, int], ...] = ()
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def sample_count(self) -> int:
        """The number of samples."""
        return sum(map(len, self.samples.values()))

    @property
    def rows(self) -> int:
        """The number of rows and samples."""
        return len(self.quarantined) + len(self.failures) + self.sample_count


class Forgetting:
    """Finds and erases the rows of one condition."""

    def __init__(
        self,
        project: Project,
        where: str,
        *,
        pipeline: str | None = None,
        sink: str | None = None,
        checks: Collection[str] | None = None,
        run: RunResult | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            project: a loaded recon.yml.
            where: an SQL condition on the columns of the rows.
            pipeline: only this pipeline.
            sink: only this sink.
            checks: only failing rows of these checks, by unique_id, and no rows in quarantine.
            run: the last results.
            spark: the session, for a ledger that Spark writes.
        """
        self._project, self._where, self._checks, self._run = project, where, checks, run
        self._sinks = [
            (pipe, out)
            for pipe in project.pipelines
            for out in pipe.sinks
            if pipeline in (None, pipe.name) and sink in (None, out.name)
        ]
        self._failures: Store = open_store(project, FAILURES, spark)
        self._erasures = ErasureTable(open_store(project, ERASURES, spark))

    def found(self) -> list[Found]:
        """What meets the condition, or may, by sink.

        Raises:
            ConfigError: the condition is none.
            LedgerError: a table cannot be read.
        """
        matches([{}], self._where)  # a condition that is none is better known before anything is read
        each = (self._of_sink(pipe, out) for pipe, out in self._sinks)
        return [found for found in each if found.rows or found.unknown]

    def erase(
        self, found: Sequence[Found], *, by: str, reason: str, failpoint: Callable[[str], None] = lambda step: None
    ) -> RunResult | None:
        """Enters and carries out the erasure; the last results without the samples, None where they have none of them.

        Raises:
            LedgerError: a table cannot be written; run it again, which finds what is left.
        """
        for of_sink in found:
            if not of_sink.rows:
                continue
            number = self._erasures.append(
                Erasure(
                    pipeline=of_sink.pipeline,
                    sink=of_sink.sink,
                    at=utc_now(),
                    by=by,
                    reason=reason,
                    quarantined=len(of_sink.quarantined),
                    failures=len(of_sink.failures),
                    samples=of_sink.sample_count,
                )
            )
            failpoint("entered")
            self._erase_quarantined(of_sink, number)
            failpoint("quarantine")
            for some in _parts(of_sink.failures):
                self._failures.remove(" OR ".join(_named(*row) for row in some))
            failpoint("failures")
        samples = {name: places for of_sink in found for name, places in of_sink.samples.items()}
        if self._run is None or not samples:
            return None
        return replace(self._run, results=tuple(_without(result, samples) for result in self._run.results))

    # -- what meets the condition ------------------------------------------------------------------------

    def _of_sink(self, pipeline: Pipeline, sink: Sink) -> Found:
        unknown: list[str] = []
        found = Found(
            pipeline=pipeline.name,
            sink=sink.name,
            quarantined=() if self._checks is not None else tuple(self._in_quarantine(pipeline, sink, unknown)),
            failures=tuple(self._in_failures(pipeline.name, sink.name, unknown)),
            samples=dict(self._in_samples(pipeline.name, sink.name, unknown)),
        )
        return replace(found, unknown=tuple(unknown))

    def _in_quarantine(self, pipeline: Pipeline, sink: Sink, unknown: list[str]) -> Iterator[str]:
        place = quarantined.location(self._project, pipeline.name, sink)
        if place is None or not quarantined.exists(Storage(place, self._project.storage_options)):
            return
        from deltalake import QueryBuilder

        table = delta_log.open_table(Storage(place, self._project.storage_options))
        kept = f"NOT coalesce(array_has({REASONS}, '{ERASED}'), false)"
        try:
            query = QueryBuilder().register("q", table)
            # As a column it is one expression, whatever brackets and comments it has.
            met = f"SELECT {ROW_ID}, {REASONS}, ({self._where}\n) AS _recon_met FROM q"
            found = query.execute(f"SELECT {ROW_ID} FROM ({met}) WHERE _recon_met AND {kept}")
            rows = pa.table(found).to_pylist()
        except Exception as error:  # DataFusion raises many kinds; a column that is not there among them
            unknown.append(f"the quarantined rows of {place} cannot be searched: {first_line(error)}")
            return
        yield from (row[ROW_ID] for row in rows)

    def _in_failures(self, pipeline: str, sink: str, unknown: list[str]) -> Iterator[tuple[str, str, int]]:
        if not self._failures.exists():
            return
        rows = arrow.rows(self._failures.read(Filter.of(pipeline, sink)))
        rows = [row for row in rows if self._checks is None or row["unique_id"] in self._checks]
        answers = matches([json.loads(row["failing_row"]) for row in rows], self._where)
        for row, answer in zip(rows, answers, strict=True):
            if answer:
                yield row["invocation_id"], row["unique_id"], row["row_number"]
        _count_unknown(answers, "stored failing rows", unknown)

    def _in_samples(self, pipeline: str, sink: str, unknown: list[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        every: list[bool | None] = []
        for result in self._run.results if self._run is not None else ():
            if (result.pipeline, result.sink) != (pipeline, sink) or not result.samples:
                continue
            if self._checks is not None and result.unique_id not in self._checks:
                continue
            answers = matches(result.samples, self._where)
            every += answers
            if places := tuple(place for place, answer in enumerate(answers) if answer):
                yield result.unique_id, places
        _count_unknown(every, "samples of the last results", unknown)

    # -- erasing ------------------------------------------------------------------------------------------

    def _erase_quarantined(self, found: Found, number: int) -> None:
        """Removes the values of rows in quarantine, for the erasure of this number; ids, places and reasons stay."""
        if not found.quarantined:
            return
        from deltalake import CommitProperties

        _, sink = self._project.find_sink(found.pipeline, found.sink)
        place = quarantined.location(self._project, found.pipeline, sink)
        assert place is not None, "rows were found there"
        table = delta_log.open_table(Storage(place, self._project.storage_options))
        kept = {*QUARANTINE_COLUMNS, *STAMPED_COLUMNS}
        nothing = {f'"{column.name}"': "NULL" for column in table.schema().fields if column.name not in kept}
        updates = {**nothing, REASONS: f"array_append({REASONS}, '{ERASED}')"}
        marked = CommitProperties(custom_metadata={"userMetadata": dump_erased(number)})
        try:
            for some in _parts(found.quarantined):
                named = f"{ROW_ID} IN ({', '.join(map(_text, some))})"
                table.update(predicate=named, updates=updates, commit_properties=marked)
        except Exception as error:  # delta-rs raises many kinds
            raise LedgerError(
                f"the quarantined rows of {place} cannot be erased: {first_line(error)}; run the same command again"
            ) from error


def matches(rows: Sequence[Mapping[str, Any]], where: str) -> list[bool | None]:
    """Which rows meet an SQL condition; None where a row lacks a column that it names.

    Raises:
        ConfigError: the condition is none.

    >>> matches([{"id": 7, "a": "x"}, {"id": 8, "a": None}, {"a": "x"}], "id = 7 and a is not null")
    [True, False, None]
    """
    answers: list[bool | None] = [None] * len(rows)
    places: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(tuple(sorted(row)), []).append(place)
    for names, of_names in places.items():
        met = _met([[_plain(rows[place][name]) for name in names] for place in of_names], names, where)
        for at, place in enumerate(of_names):
            answers[place] = None if met is None else at in met
    return answers


def _met(rows: Sequence[Sequence[Any]], names: Sequence[str], where: str) -> set[int] | None:
    """The places of rows that meet the condition; None where they lack a column of it."""
    known = {name.casefold() for name in names}
    # To SQLite a quoted name that no column has is a text, and the condition just not met.
    if any(name.replace('""', '"').casefold() not in known for name in _QUOTED.findall(where)):
        return None
    database = sqlite3.connect(":memory:")
    try:
        columns = "".join(f", {_identifier(name)}" for name in names)
        database.execute(f"CREATE TABLE r (_recon_place INTEGER{columns})")
        marks = ", ".join("?" * (len(names) + 1))
        database.executemany(f"INSERT INTO r VALUES ({marks})", ([at, *row] for at, row in enumerate(rows)))
        database.execute("PRAGMA query_only = 1")
        return {place for (place,) in database.execute(f"SELECT _recon_place FROM r WHERE ({where}\n)")}
    except sqlite3.Error as error:
        if str(error).startswith(("no such column", "ambiguous column")):
            return None
        raise ConfigError(f"--where {where!r} is no condition that can be evaluated: {error}") from error
    finally:
        database.close()


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else json.dumps(value, ensure_ascii=False)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _named(invocation_id: str, unique_id: str, row_number: int) -> str:
    of_check = f"invocation_id = {_text(invocation_id)} AND unique_id = {_text(unique_id)}"
    return f"({of_check} AND row_number = {int(row_number)})"


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]


def _count_unknown(answers: Sequence[bool | None], what: str, unknown: list[str]) -> None:
    count = sum(answer is None for answer in answers)
    if count:
        unknown.append(f"{count:,} {what} lack a column of the condition, so that it is not known whether they meet it")


def _without(result: CheckResult, samples: Mapping[str, Collection[int]]) -> CheckResult:
    places = samples.get(result.unique_id, ())
    kept = tuple(sample for place, sample in enumerate(result.samples) if place not in places)
    return replace(result, samples=kept) if places else result


def last_results(target: Path) -> Path | None:
    """The results of the last run, where there are any."""
    file = target / "run_results.json"
    return file if file.is_file() else None
