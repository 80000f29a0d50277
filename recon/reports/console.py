"""Prints a run: a line per check in dbt's form, then details of what failed, then dbt's summary.

    1 of 9 PASS offset_continuity_orders ................... [PASS in 0.01s]
    3 of 9 FAIL 7 unique_orders_order_id ................. [FAIL 7 in 0.12s]

Colours and the progress line appear on a terminal only, and NO_COLOR is respected (both by rich).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Self

from recon.base.text import plural, some
from recon.model import CheckResult, Finding, Incident, Level, PipelineFacts, RunResult, SinkFacts
from recon.reports import runbook
from recon.reports.words import duration, harm, located, one_line, sink_name

if TYPE_CHECKING:
    from rich.status import Status as Spinner

DBT_WIDTH = 80  # dbt pads a line with dots to this column, then adds the status
MAX_FINDINGS = 5  # printed per check; the report has all of them

_UNREAD = "could not be read: "  # in notes on witnesses, before the reason
_STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "error": "red", "skipped": "yellow"}
_ANSWER_STYLES = {"complete": "green", "not complete": "red", "could not be proved": "yellow"}


class Console:
    """Writes one run to a text stream.

    Args:
        file: the stream; standard output when None.
        width: in columns; by default the terminal's, or dbt's 80 plus the status when it is not a terminal.

    As a context manager it removes the progress line at the end, after an error too.
    """

    def __init__(self, file: IO[str] | None = None, *, width: int | None = None) -> None:
        from rich.console import Console as Rich

        self._out = Rich(file=file, width=width, highlight=False, markup=False, emoji=False)
        self._width = width or (self._out.width if self._out.is_terminal else None)
        self._spinner: Spinner | None = None
        self._printed = self._total = 0  # checks
        self._skipped = ""  # why the last check was skipped that said so

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def expect(self, total: int) -> None:
        """Sets the number of checks that the progress line shows."""
        self._total = total

    def started(self, name: str) -> None:
        """Shows which check is running; does nothing when the stream is not a terminal."""
        if not self._out.is_terminal:
            return
        text = one_line(f"{self._printed + 1} of {self._total} {name}")
        if self._spinner is None:
            self._spinner = self._out.status(text)
            self._spinner.start()
        else:
            self._spinner.update(text)

    def stop(self) -> None:
        """Removes the progress line."""
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def line(self, index: int, total: int, result: CheckResult) -> None:
        """Prints a check's line, and below it the reason why it was skipped."""
        self._printed = index
        word = _word(result)
        status = f"[{word} in {result.execution_time:.2f}s]"
        if result.status == "skipped":
            status = f"[{word}]"
        start = f"{index} of {total} {word} {one_line(result.name)} "
        room = DBT_WIDTH if self._width is None else self._width - len(status) - 1
        dots = start.ljust(min(room, DBT_WIDTH), ".")
        style = _STYLES[result.status]
        self._write((dots + " ", None), ("[", None), (status[1:-1], style), ("]", None))
        if result.status == "skipped" and result.message and result.message != self._skipped:
            self._skipped = result.message
            self._write((f"  {one_line(result.message)}", "dim"))

    def summary(self, run: RunResult) -> None:
        """Prints what failed and why, each pipeline's answer, and dbt's closing line."""
        self.stop()
        counts = run.counts()
        self._write()
        total = plural(len(run.results), "data test")
        self._write((f"Finished running {total} in {duration(run.elapsed_time)} ({run.elapsed_time:.2f}s).", None))
        self._write()
        self._write(_completed(run))
        once, told = _Once(run), _Told(run)
        for name, incident in told.incidents:
            self._incident(name, incident)
        for results in _together(run.results):
            self._details(results, once, told)
        if run.pipelines:
            self._write()
            for pipeline in run.pipelines:
                self._answer(pipeline, once)
        runbooks = runbook.of_run(run)
        if runbooks:
            self._write()
            self._write(("What to do about it:", None))
            for book in runbooks:
                self._write((f"  {book.command}", "bold"), (f"  {book.url}" if book.url else "", None))
        for note in run.notes:
            self._write(("Note: ", "bold"), (once(one_line(note)), None))
        self._write()
        # As in dbt, a failed check counts under ERROR, next to one that could not be evaluated.
        self._write(
            (
                f"Done. PASS={counts['pass']} WARN={counts['warn']} ERROR={counts['fail'] + counts['error']} "
                f"SKIP={counts['skipped']} TOTAL={len(run.results)}",
                None,
            )
        )

    def _incident(self, pipeline: str, incident: Incident) -> None:
        """What findings have in common, and what usually causes that."""
        pattern = incident.pattern
        assert pattern is not None, "only such incidents are told before the checks"
        name = f"Incident {one_line(incident.id)}" if incident.id else "Incident"
        counts = "".join(f", {harm(count)}" for count in incident.counts)
        where = one_line(sink_name(pipeline, incident.sink))
        self._write()
        self._write((name, "red"), (f" ({where}): {one_line(', '.join(incident.codes))}{counts}", None))
        self._write((f"  Pattern: {one_line(pattern.says)}", None))
        if pattern.first not in pattern.says:
            self._write((f"  First {one_line(pattern.first)}, last {one_line(pattern.last)}", "dim"))
        if pattern.causes:
            self._write(("  Likely causes, the one that takes least to check first:", None))
        for number, cause in enumerate(pattern.causes, start=1):
            self._write((f"  {number}. {one_line(cause.says)}", "bold"))
            for word, text in (("For it", cause.because), ("Look at", cause.look), ("Then", cause.then)):
                self._write((f"     {word}: {one_line(text)}", None))

    def _details(self, results: Sequence[CheckResult], once: _Once, told: _Told) -> None:
        """What a check says, or several that could not be evaluated for one reason."""
        result = results[0]
        title = {"fail": "Failure", "error": "Error", "warn": "Warning"}[result.status]
        scope = ".".join(part for part in (result.pipeline, result.sink) if part)
        self._write()
        if len(results) == 1:
            where = f" in test {one_line(result.name)}" + (f" ({one_line(scope)})" if scope else "")
        else:
            where = f" in {len(results)} tests: {one_line(some([check.name for check in results]))}"
        self._write((title, _STYLES[result.status]), (where, None))
        if result.message:
            self._write((f"  {once(one_line(result.message))}", None))
        findings = [f for f in result.findings if f.level is not Level.INFO]
        counts = Counter(told.of(finding) for finding in findings)
        many = [incident for incident, count in counts.items() if incident and count > MAX_FINDINGS]
        for incident in many:
            self._write((f"  {plural(counts[incident], 'finding')} of incident {one_line(incident)}, above", None))
        findings = [finding for finding in findings if told.of(finding) not in many]
        for finding in findings[:MAX_FINDINGS]:
            where = located(finding)
            self._write(
                (f"  {finding.code}", "bold"),
                (f"  {where}" if where else "", None),
                ("" if finding.message == result.message else f"  {once(one_line(finding.message))}", None),
            )
        if len(findings) > MAX_FINDINGS:
            self._write((f"  … and {len(findings) - MAX_FINDINGS} more in the report", "dim"))
        for sample in result.samples[:MAX_FINDINGS]:
            self._write(("  " + one_line(", ".join(f"{k}={v}" for k, v in sample.items())), "dim"))

    def _answer(self, pipeline: PipelineFacts, once: _Once) -> None:
        self._write(
            (f"Pipeline {one_line(pipeline.name)}: ", None),
            (pipeline.says, f"bold {_ANSWER_STYLES[pipeline.answer]}"),
            (f". {once(one_line(pipeline.because))}" if pipeline.because else "", None),
        )
        for accepted in pipeline.accepted:
            self._write(("  Accepted: ", "bold"), (one_line(accepted), None))
        for sink in pipeline.sinks:
            left_out = _left_out(sink)
            if left_out:
                self._write((f"  {one_line(sink.name)}: {left_out}", None))

    def _write(self, *parts: tuple[str, str | None]) -> None:
        from rich.text import Text

        text = Text()
        for part, style in parts:
            text.append(part, style=style)
        # One line per check, for grep and for logs; a terminal wraps long lines itself.
        self._out.print(text, soft_wrap=True)


class _Told:
    """The open incidents whose findings have something in common, and which findings these are."""

    def __init__(self, run: RunResult) -> None:
        self.incidents = run.incidents_with_a_pattern
        self._of = {id_: incident.id for _, incident in self.incidents for id_ in incident.findings}

    def of(self, finding: Finding) -> str:
        """The id of the incident that tells a finding; "" for none."""
        return self._of.get(finding.subject.id, "")


class _Once:
    """Says a sentence once that several checks, answers and notes have: a broker that does not answer, for example."""

    _SHORTEST = 20  # what is shorter is no sentence of its own

    def __init__(self, run: RunResult) -> None:
        messages = {one_line(result.message) for result in run.results if result.status == "error"}
        messages |= {one_line(note).partition(_UNREAD)[2] for note in run.notes}
        self._sentences = sorted((m for m in messages if len(m) >= self._SHORTEST), key=len, reverse=True)
        self._said: set[str] = set()

    def __call__(self, text: str) -> str:
        """The text; a sentence that was said before is left out of it."""
        for sentence in self._sentences:
            if sentence in text:
                if sentence in self._said:
                    return text.replace(sentence, "see above")
                self._said |= {part for part in self._sentences if part in sentence}
                break
        return text


def _together(results: Sequence[CheckResult]) -> list[list[CheckResult]]:
    """What failed, errored or warned; checks that could not be evaluated for one reason are together."""
    groups: dict[object, list[CheckResult]] = {}
    for result in results:
        if result.status in ("fail", "error", "warn"):
            same = result.status == "error" and result.message
            groups.setdefault((result.message,) if same else result.unique_id, []).append(result)
    return list(groups.values())


def _left_out(sink: SinkFacts) -> str:
    """How many of the rows read were not meant for the sink; "" where all were."""
    parts = []
    if sink.rows_filtered:
        parts.append(f"{plural(sink.rows_filtered, 'row')} filtered by the transform")
    if sink.rows_quarantined:
        parts.append(f"{plural(sink.rows_quarantined, 'row')} put into quarantine")
    return " and ".join(parts)


def _word(result: CheckResult) -> str:
    """Dbt's word for a status; failures and warnings with their count."""
    if result.status in ("fail", "warn"):
        count = "" if result.failures is None else f" {result.failures}"
        return result.status.upper() + count
    return {"pass": "PASS", "error": "ERROR", "skipped": "SKIP"}[result.status]


def _completed(run: RunResult) -> tuple[str, str]:
    counts = run.counts()
    errors, warnings = counts["fail"] + counts["error"], counts["warn"]
    if not errors and not warnings:
        if run.not_complete:
            return (f"Completed, but {plural(len(run.not_complete), 'pipeline')} not proved complete:", "yellow")
        return ("Completed successfully", "green")
    parts = [plural(errors, "error")] if errors else []
    parts += [plural(warnings, "warning")] if warnings else []
    return (f"Completed with {' and '.join(parts)}:", "red" if errors else "yellow")
