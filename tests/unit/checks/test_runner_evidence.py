"""run_evidence: missing witnesses, questions and their answers, checks that break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from recon.base.errors import EvidenceError
from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.engine.reading import Reading
from recon.checks.engine.runner import run_evidence
from recon.model import ProbeAnswer, Unavailable, Verdict, Witnesses
from recon.model.offsets import Spans
from recon.project import CheckConfig
from tests.support.messages import same_message

AT = datetime(2026, 11, 21, 9, tzinfo=UTC)
NOTHING = Verdict()
ASKED = ("orders", 0)


@dataclass(frozen=True, kw_only=True)
class Canned(EvidenceCheck):
    """Gives the verdict it was made with."""

    test: ClassVar[str] = "canned"
    needs: ClassVar[tuple[str, ...]] = ("ledgers", "kafka")
    verdict: Verdict | Exception = NOTHING
    asks: Spans | None = None

    def questions(self, witnesses: Witnesses) -> Mapping[tuple[str, int], Spans]:
        return {} if self.asks is None else {ASKED: self.asks}

    def judge(self, witnesses: Witnesses) -> Verdict:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        seen = witnesses.with_answers(self.questions)
        return replace(self.verdict, evidence={"probes": sorted(seen.probes)})


def bound(check: Canned) -> Bound:
    return Bound(check=check, config=CheckConfig(), unique_id="test.p.c", name="c", pipeline="orders")


def witnesses(**given: object) -> Witnesses:
    nothing = Unavailable("rows", "not read")
    fields = {"ledgers": {}, "checkpoint": nothing, "kafka": {}, "delta": nothing, "rows": nothing} | given
    return Witnesses(
        pipeline="orders",
        sink=None,
        now=AT,
        isolation_level="read_committed",
        period_from=None,
        period_to=AT,
        **fields,
    )


def unasked(questions):
    raise AssertionError(f"nobody asked {questions}")


def run(*checks: Canned, seen: Witnesses | None = None, answer=unasked):
    ticks = (AT + timedelta(seconds=n) for n in range(100))
    found = seen or witnesses()

    def seen_by(_: Bound) -> Witnesses:
        return replace(found, reader=Reading(ask=answer))

    return list(run_evidence([bound(c) for c in checks], seen_by, lambda: next(ticks)))


def probe(spans: Spans) -> ProbeAnswer:
    return ProbeAnswer(
        topic="orders",
        partition=0,
        requested=spans,
        uncommitted=spans,
        committed=spans,
        log_start=0,
        last_stable=9,
    )


@pytest.mark.parametrize(("skipped", "status"), [(False, "error"), (True, "skipped")])
def test_a_witness_that_is_missing_is_never_a_pass(skipped, status):
    (result,) = run(Canned(), seen=witnesses(kafka=Unavailable("kafka", "no broker at b:9092", skipped)))
    assert (result.status, result.message, result.failures) == (status, "no broker at b:9092", None)


def test_a_witness_nobody_needs_may_be_missing():
    assert [r.status for r in run(Canned(), seen=witnesses(delta=Unavailable("delta", "gone")))] == ["pass"]


def test_a_check_that_breaks_is_an_error_and_the_others_run():
    broken = Canned(verdict=KeyError("heads"))
    told = Canned(verdict=EvidenceError("checkpoint c is torn; restore it"))
    results = run(broken, told, Canned(verdict=Verdict(failures=2)))
    assert [r.status for r in results] == ["error", "error", "fail"]
    assert same_message(results[0].message)
    assert same_message(results[1].message)


def test_witnesses_that_cannot_be_gathered_are_an_error():
    def torn(bound):
        raise EvidenceError("ledger _recon cannot be read")

    (result,) = run_evidence([bound(Canned())], torn, lambda: AT)
    assert (result.status, result.message) == ("error", "ledger _recon cannot be read")


def test_questions_are_answered_before_the_judge():
    spans = Spans.of([(3, 5)])
    asked = []

    def answer(questions):
        asked.append(questions)
        return {ASKED: probe(spans)}

    (result,) = run(Canned(asks=spans), answer=answer)
    assert asked == [{ASKED: spans}]
    assert (result.status, result.evidence) == ("pass", {"probes": [ASKED]})


def test_an_empty_question_is_not_put():
    assert [r.status for r in run(Canned(asks=Spans()))] == ["pass"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (Unavailable("kafka", "no broker"), "no broker"),
        ({}, "the probe gave no answer for 1 topic partition, orders-0 first"),
    ],
)
def test_an_open_question_is_never_a_pass(answers, reason):
    asks = Spans.of([(3, 5)])
    passing, failing = run(Canned(asks=asks), Canned(asks=asks, verdict=Verdict(failures=1)), answer=lambda q: answers)
    assert (passing.status, passing.message) == ("error", reason)
    assert (failing.status, failing.evidence["probe"]) == ("fail", reason)  # a refutation outranks a doubt


def test_times_are_the_clocks():
    first, second = run(Canned(), Canned())
    assert (first.started_at, first.execution_time) == (AT, 1.0)
    assert second.started_at == AT + timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class AsksAgain(Canned):
    """Asks about one range, and then, as the answer leaves it in order, about another one alone."""

    def questions(self, witnesses: Witnesses) -> Mapping[tuple[str, int], Spans]:
        return {ASKED: Spans.of([(0, 10)] if ASKED not in witnesses.probes else [(50, 90)])}

    def judge(self, witnesses: Witnesses) -> Verdict:
        answer = witnesses.with_answers(self.questions).probes[ASKED]
        return Verdict(evidence={"requested": list(answer.requested), "committed": list(answer.committed)})


def test_a_later_answer_adds_to_an_earlier_one() -> None:
    (result,) = run(
        AsksAgain(), answer=lambda questions: {ASKED: replace(probe(questions[ASKED]), committed=questions[ASKED])}
    )
    assert result.evidence == {"requested": [(0, 10), (50, 90)], "committed": [(0, 10), (50, 90)]}
