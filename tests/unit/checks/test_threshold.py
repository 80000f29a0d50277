"""dbt's severity, warn_if and error_if."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from recon.base.errors import ConfigError
from recon.checks import threshold
from recon.checks.base import EvidenceCheck
from recon.checks.bound import Bound
from recon.model import Code, Finding, Verdict, Witnesses
from recon.project import CheckConfig
from tests.support.messages import raises, same_message

AT = datetime(2026, 11, 21, 9, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Nothing(EvidenceCheck):
    test: ClassVar[str] = "nothing"

    def judge(self, witnesses: Witnesses) -> Verdict:
        raise AssertionError("not judged here")


def result_of(verdict: Verdict, **config: object):
    bound = Bound(
        check=Nothing(),
        config=CheckConfig(**config),
        unique_id="test.p.nothing_orders",
        name="nothing_orders",
        pipeline="orders",
        sink="lake",
        tags=("nightly",),
    )
    return threshold.settle(bound, verdict, AT, AT + timedelta(seconds=1.5), "lake/orders")


@pytest.mark.parametrize(
    ("expression", "met", "unmet"),
    [
        ("!=0", [1, 7], [0]),
        ("!= 0", [1], [0]),
        ("<> 3", [2], [3]),
        ("=0", [0], [1]),
        ("== 2", [2], [0]),
        (">10", [11], [10]),
        (">= 5", [5, 6], [4]),
        (" < 3 ", [2], [3]),
        ("<=3", [3], [4]),
        ("between 1 and 5", [1, 5], [0, 6]),
        ("NOT BETWEEN 1 AND 5", [0, 6], [1, 5]),
    ],
)
def test_expressions(expression, met, unmet):
    predicate = threshold.parse(expression)
    assert [predicate(n) for n in met] == [True] * len(met)
    assert [predicate(n) for n in unmet] == [False] * len(unmet)


@pytest.mark.parametrize("expression", ["", "5", ">", "> five", "> -1", "!=0 or true", "between 1", ">1.5", "!= 0;"])
def test_what_is_no_threshold_is_refused(expression):
    with raises(ConfigError):
        threshold.parse(expression)


@pytest.mark.parametrize(
    ("failures", "config", "status"),
    [
        (0, {}, "pass"),
        (1, {}, "fail"),
        (1, {"severity": "warn"}, "warn"),
        (0, {"severity": "warn"}, "pass"),
        (5, {"error_if": ">10"}, "warn"),  # warn_if stays != 0, as in dbt
        (11, {"error_if": ">10"}, "fail"),
        (5, {"error_if": ">10", "warn_if": ">5"}, "pass"),
        (6, {"error_if": ">10", "warn_if": ">5"}, "warn"),
        (99, {"severity": "warn", "error_if": ">10", "warn_if": ">100"}, "pass"),  # error_if is not asked
        (0, {"error_if": "=0"}, "fail"),
    ],
)
def test_status(failures, config, status):
    assert result_of(Verdict(failures=failures), **config).status == status


def test_warnings_warn_whatever_the_thresholds():
    assert result_of(Verdict(warnings=1)).status == "warn"
    assert result_of(Verdict(warnings=1), severity="warn", warn_if=">100").status == "warn"
    assert result_of(Verdict(warnings=1, failures=1)).status == "fail"


def test_unknown_is_never_pass():
    unproved = result_of(Verdict(unproved="no broker"), severity="warn", warn_if=">100", error_if=">100")
    assert (unproved.status, unproved.failures, unproved.message) == ("error", None, "no broker")
    skipped = result_of(Verdict(skipped="0 rows", unproved="no broker"))
    assert (skipped.status, skipped.failures, skipped.message) == ("skipped", None, "0 rows")


def test_messages_tell_the_threshold_only_when_it_is_not_the_default():
    assert same_message(result_of(Verdict(failures=7, message="7 keys repeat")).message)
    assert same_message(result_of(Verdict(failures=7)).message)
    failing = result_of(Verdict(failures=7, message="7 keys repeat"), error_if=">5")
    assert same_message(failing.message)
    warning = result_of(Verdict(failures=7, message="7 keys repeat"), warn_if="> 2", error_if=">10")
    assert same_message(warning.message)
    assert result_of(Verdict()).message == ""


def test_a_result_carries_its_place_and_times():
    result = result_of(Verdict(failures=2, samples=({"id": 1},), evidence={"rows": 9}))
    assert (result.unique_id, result.name, result.check, result.kind) == (
        "test.p.nothing_orders",
        "nothing_orders",
        "nothing",
        "evidence",
    )
    assert (result.pipeline, result.sink, result.tags, result.relation_name) == (
        "orders",
        "lake",
        ("nightly",),
        "lake/orders",
    )
    assert (result.failures, result.samples, result.evidence) == (2, ({"id": 1},), {"rows": 9})
    assert (result.started_at, result.completed_at, result.execution_time) == (
        AT,
        AT + timedelta(seconds=1.5),
        1.5,
    )


def test_a_message_keeps_what_the_check_hides():
    @dataclass(frozen=True, kw_only=True)
    class Discreet(Nothing):
        def hide(self, text: str) -> str:
            return text.replace("secret", "***")

    bound = Bound(check=Discreet(), config=CheckConfig(), unique_id="test.p.d", name="d", pipeline="orders")
    assert same_message(threshold.settle(bound, Verdict(unproved="no secret"), AT, AT).message)
    assert same_message(threshold.settle(bound, Verdict(failures=1, message="a secret"), AT, AT).message)


def test_failures_that_count_whatever_the_thresholds_say() -> None:
    verdict = Verdict(failures=1, regardless=True)
    lenient = {"warn_if": ">10", "error_if": ">100"}
    assert threshold.status_of(verdict, severity="error", **lenient) == "fail"
    assert threshold.status_of(verdict, severity="warn", **lenient) == "warn"
    assert threshold.status_of(Verdict(failures=1), severity="error", **lenient) == "pass"


@pytest.mark.parametrize("changed_by", [None, (), (3,)], ids=["not written", "a file is gone", "a commit took them"])
def test_records_without_a_row_fail_whoever_took_it(changed_by: tuple[int, ...] | None) -> None:
    gap = Finding(code=Code.GAP, message="", pipeline="p", sink="s", changed_by=changed_by)
    assert result_of(Verdict.of_findings([gap]), severity="warn", warn_if=">100").status == "fail"
    accepted = Finding(code=Code.ACCEPTED, message="", pipeline="p", sink="s", changed_by=changed_by)
    assert result_of(Verdict.of_findings([accepted]), severity="warn").status == "pass"
