"""The compliance report: three-valued answers, one document in three formats."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from datetime import date
from types import SimpleNamespace

import pytest

from recon.base.errors import ConfigError
from recon.model import Code, Finding
from recon.model.controls import ControlDays, Stretch
from recon.reports import compliance, control_days
from tests.support import sample_run
from tests.support.messages import raises

BAD = "<script>alert('x')</script>|a`b\n# c"


@pytest.fixture
def report():
    return sample_run.sample_compliance()


def only(report, name, **changes):
    """A report of one sink alone, changed."""
    (sink,) = [s for s in report.sinks if s.sink == name]
    changed = dataclasses.replace(sink, **changes)
    return dataclasses.replace(report, sinks=(changed,), exceptions=())


def test_each_sinks_answer(report):
    assert [report.answer_of(s) for s in report.sinks] == ["complete", "not complete", "could not be proved"]
    assert report.answer == "not complete"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, "complete"),
        ({"batches_unproved": 1}, "could not be proved"),
        ({"ranges_unproved": 1}, "could not be proved"),
        ({"batches_refuted": 1, "batches_unproved": 1}, "not complete"),
        ({"ranges_refuted": 1}, "not complete"),
    ],
)
def test_the_figures_decide(report, changes, answer):
    one = only(report, "orders", **changes)
    assert one.answer == answer


@pytest.mark.parametrize(("verified", "answer"), [(False, "not complete"), (None, "could not be proved")])
def test_a_chain_that_does_not_hold_or_was_not_checked_is_no_proof(report, verified, answer):
    chain = dataclasses.replace(report.sinks[0].chain, verified=verified, reason="entry 7 was edited")
    one = only(report, "orders", chain=chain)
    assert one.answer == answer
    assert "entry 7 was edited" in compliance.render_markdown(one)


def test_without_an_audit_nothing_is_proved(report):
    one = dataclasses.replace(only(report, "orders"), audits=())
    assert one.answer == "could not be proved"
    assert "No audit ran in the period." in compliance.render_markdown(one)
    assert dataclasses.replace(report, sinks=()).answer == "could not be proved"


@pytest.mark.parametrize(
    ("code", "still_open", "answer"),
    [
        (Code.GAP, True, "not complete"),
        (Code.GAP, False, "complete"),
        (Code.INCONCLUSIVE, True, "could not be proved"),
        (Code.LAG, True, "complete"),
    ],
)
def test_open_exceptions_weigh_by_their_level(report, code, still_open, answer):
    exception = dataclasses.replace(
        report.exceptions[0], finding=Finding(code=code, message="m", pipeline="orders"), open=still_open
    )
    one = dataclasses.replace(only(report, "orders"), exceptions=(exception,))
    assert one.answer == answer


def test_a_sink_all_of_whose_batches_are_proved_names_what_is_open(report):
    message = "unique_orders_order_id: 40 values of order_id occur more than once, with 40 surplus rows"
    violation = dataclasses.replace(
        report.exceptions[0], finding=Finding(code=Code.VIOLATION, message=message, pipeline="orders"), open=True
    )
    gap = dataclasses.replace(violation, finding=Finding(code=Code.GAP, message="the worst", pipeline="orders"))
    one = dataclasses.replace(only(report, "orders"), exceptions=(violation,))
    assert one.answer == "not complete"
    assert f"not complete</span>: 1 exception is still open: VIOLATION: {message}." in compliance.render_html(one)
    two = dataclasses.replace(one, exceptions=(violation, gap))
    assert ": 2 exceptions are still open: GAP: the worst; and 1 more." in compliance.render_html(two)


def test_exceptions_of_another_sink_do_not_count(report):
    orders, payments, clicks = report.sinks
    assert report.exceptions_of(orders) == ()
    assert [e.finding.code for e in report.exceptions_of(payments)] == [Code.LOSS_RETENTION, Code.GAP]
    assert [e.finding.code for e in report.exceptions_of(clicks)] == [Code.INCONCLUSIVE]


@pytest.mark.parametrize("render", [compliance.render_html, compliance.render_markdown])
def test_the_document_holds_everything_an_auditor_asks_for(report, render):
    text = re.sub(r"\\([_\[\]|`*~])", r"\1", re.sub(r"<[^>]+>", "", render(report)))
    for part in (
        "2026-03-01 00:00:00 UTC up to, and not including, 2026-04-01 00:00:00 UTC",
        "3 pipelines, 3 sinks, 29 audits",
        "Of 11,628 micro-batches of 3 sinks, 11,522 were proved, 15 refuted and 91 could not be proved.",
        "15 micro-batches and 14 ranges were refuted.",
        "90 micro-batches and 270 ranges could not be proved.",
        "2026-03-22 to 2026-03-23",
        "LOSS_RETENTION",
        "[26658, 27000)",
        "not verified",
        report.sinks[0].chain.first,
        report.sinks[1].chain.last,
        report.audits[0].invocation_id,
        "Prepared by",
        "Reviewed by",
        "Could not be proved: a trace that is needed was missing",
        "never counted as proved",
    ):
        assert part.lower() in text.lower(), part
    assert text.lower().index("not complete") < text.index("Results") < text.index("Method")


@pytest.mark.parametrize("render", [compliance.render_html, compliance.render_markdown])
def test_positions_in_a_delta_table_are_no_number_of_offsets(report, render):
    assert "Offsets read" in render(only(report, "orders"))
    text = render(only(report, "orders", offsets=None))
    assert "Offsets read" not in text and "Rows written" in text


def test_a_complete_period_says_so_plainly(report):
    text = compliance.render_markdown(dataclasses.replace(only(report, "orders"), days_without_audit=()))
    assert "**Conclusion: complete.** All 4,464 micro-batches of 1 sink were proved" in text
    assert "## Exceptions\n\nNone: no audit" in text
    assert "Every day of the period was audited." in text


@pytest.fixture
def hostile(report):
    sinks = tuple(dataclasses.replace(s, target=BAD, topics=(BAD,), guarantee=BAD) for s in report.sinks)
    exceptions = tuple(
        dataclasses.replace(e, finding=dataclasses.replace(e.finding, message=BAD, topic=BAD))
        for e in report.exceptions
    )
    return dataclasses.replace(report, project=BAD, sinks=sinks, exceptions=exceptions)


def test_data_is_escaped_in_html(hostile):
    page = compliance.render_html(hostile)
    assert "<script>alert" not in page
    assert page.count("<script>") == 1
    assert "&lt;script&gt;alert" in page


def test_data_is_inert_in_markdown(hostile):
    text = compliance.render_markdown(hostile)
    assert "<script>" not in text
    assert not re.search(r"^# c", text, re.MULTILINE)
    rows = [line for line in text.splitlines() if line.startswith("| LOSS")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 8


def test_pdf(report, tmp_path, capfd):
    pytest.importorskip("weasyprint", exc_type=ImportError)
    path = compliance.write(report, tmp_path / "compliance.pdf", "pdf")
    content = path.read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert len(content) > 20_000
    assert capfd.readouterr().err == ""
    assert logging.getLogger("weasyprint").level != logging.ERROR


def test_nothing_on_paper_reaches_over_the_margin_and_the_signatures_do_not_stand_alone(report):
    weasyprint = pytest.importorskip("weasyprint", exc_type=ImportError)
    many = dataclasses.replace(report.audits[0], passed=12345, warned=12345, failed=12345, errored=12345, skipped=12345)
    accepted = "accepted by Ada Lovelace <ada.lovelace@payments.example.org> on 2026-03-21: test data, see DQ-4711"
    exceptions = tuple(dataclasses.replace(e, open=False, accepted=accepted) for e in report.exceptions)
    for audits in range(3, 30, 4):
        one = dataclasses.replace(report, audits=(many,) * audits, exceptions=exceptions)
        document = weasyprint.HTML(string=compliance.render_html(one)).render()
        texts = []
        for page in document.pages:
            box = page._page_box  # noqa: SLF001 - where WeasyPrint laid out what
            right = box.content_box_x() + box.width
            lines = [b for b in box.descendants() if type(b).__name__ == "TextBox" and b.element_tag != "@page"]
            of_margins = {b for margin in box.children[1:] for b in margin.descendants()}
            inside = [b for b in lines if b not in of_margins]
            assert max(b.position_x + b.width for b in inside) <= right + 0.5
            texts.append(" ".join(b.text for b in inside))
        assert "Signatures" in texts[-1] and "configured" in texts[-1]


def test_pdf_without_weasyprint_names_the_extra(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with raises(ConfigError):
        compliance.write(report, tmp_path / "compliance.pdf", "pdf")
    assert list(tmp_path.iterdir()) == []


def test_sinks_whose_days_are_alike_share_a_line():
    def days(name, *states):
        at = [date(2026, 3, n) for n in range(1, len(states) + 1)]
        stretches = tuple(Stretch(first=day, last=day, state=state) for day, state in zip(at, states, strict=True))
        return ControlDays(pipeline=name, sink=name, stretches=stretches)

    alike = [days(name, "shown", "no audit") for name in ("a", "b", "c")]
    control = SimpleNamespace(sinks=(alike[0], days("d", "refuted", "no audit"), *alike[1:]))
    one, other = control_days.rows(control)
    assert (one.name, one.said) == ("a, b, c", "each shown on 1 of 2 days; no audit on 1")
    assert (other.name, other.said) == ("d", "shown on 0 of 2 days; refuted on 1; no audit on 1")


def test_what_audits_ran_is_said_once_and_each_audit_names_it(report):
    first = dataclasses.replace(report.audits[0], checks=(("not_null", 2),), config_hash="a" * 64, by="ada on lake-1")
    second = dataclasses.replace(
        first, invocation_id="i-2", by="bob on lake-2", options="--full", partial="orders: some"
    )
    third = dataclasses.replace(first, invocation_id="i-3", config_hash="b" * 64)
    values = compliance.values(dataclasses.replace(report, audits=(first, second, third)))
    assert [(one.invocation_id, n) for one, n in values["audits"]] == [(first.invocation_id, 1), ("i-2", 1), ("i-3", 2)]
    assert [(one.config_hash[0], n) for one, n in values["ran"]] == [("a", 2), ("b", 1)]
    page = compliance.render_html(dataclasses.replace(report, audits=(first, second, third)))
    for said in ("ada on lake-1", "bob on lake-2 · --full", "</b> orders: some", "i-3", "a" * 12, "b" * 12):
        assert said in page, said
    assert page.count("not_null ×2") == 2, "once for each that ran"
