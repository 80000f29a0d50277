"""The wording of controls: recon's own, a project's file, and what is wrong with one, with its line."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from recon.audits.accept import accept
from recon.audits.compliance import compliance
from recon.audits.controls.catalog import Statement, catalog
from recon.base.errors import ConfigError
from recon.checks import registry
from recon.model import Code, Finding
from recon.model.compliance import ComplianceReport
from recon.model.controls import AGAINST, CONTROLS, contradicts
from recon.project import Project, load
from recon.reports.compliance import render_html, render_markdown
from recon.reports.control_days import said
from tests.support.audited_lake import BEGIN, DAY, HOUR, AuditedLake
from tests.unit.audits.test_control_days import open_finding

RECON_YML = """version: 2
name: lake
ledger: _recon
{compliance}
pipelines:
  - {{name: orders, checkpoint: cp, sinks: [{{name: orders, kind: delta, target: orders}}]}}
"""
STATEMENT = """
      - id: {id}
        title: All orders arrive
        control: completeness
        checks: [{checks}]
        shown: Every offset is accounted for.
        limits: Nothing else.
"""


def project(folder: Path, compliance: str = "") -> Project:
    (folder / "recon.yml").write_text(RECON_YML.format(compliance=compliance))
    return load(folder)


def with_file(folder: Path, text: str) -> Project:
    (folder / "controls.yml").write_text(text)
    return project(folder, "compliance: {controls: controls.yml}")


def framework(*statements: str, name: str = "internal") -> str:
    return f"frameworks:\n  - name: {name}\n    title: Ours\n    source: The handbook.\n    statements:" + "".join(
        statements
    )


def test_recon_brings_six_controls_and_four_frameworks(tmp_path: Path) -> None:
    found = catalog(project(tmp_path))
    assert tuple(control.id for control in found.controls) == CONTROLS
    assert [one.name for one in found.frameworks] == ["sox_itgc", "soc2_pi1", "bcbs_239", "iso_27001"]
    every = [*found.controls, *(s for one in found.frameworks for s in one.statements)]
    assert all(registry.known(name) for s in every for group in s.checks for name in group)
    # Whatever a check says of a ledger that was edited is worth nothing, so each statement rests on the chain, too.
    assert all(("ledger_integrity",) in s.checks for s in every)


def test_no_statement_says_that_a_requirement_is_met(tmp_path: Path) -> None:
    found = catalog(project(tmp_path))
    for one in (*found.controls, *(s for f in found.frameworks for s in f.statements)):
        words = f"{one.shown} {one.title}".lower()
        assert not any(word in words for word in ("complian", "complies", "satisf", "is met", "guarantee", "certif"))


def test_a_statement_of_the_rows_in_the_sink_rests_on_checks_of_them(tmp_path: Path) -> None:
    for one in catalog(project(tmp_path)).frameworks:
        for statement in one.statements:
            names = {name for group in statement.checks for name in group}
            if "accuracy" in statement.control:
                assert "source_rows" in names, statement.id
            if "timeliness" in statement.control:
                assert "kafka_end_offsets" in names, statement.id


def test_a_projects_file_adds_frameworks_and_rewords_controls(tmp_path: Path) -> None:
    text = framework(STATEMENT.format(id="C-1", checks="ledger_integrity, [delta_history, sink_commits]"))
    own = "controls:" + STATEMENT.format(id="completeness", checks="source_rows")
    found = catalog(with_file(tmp_path, f"{own}{text}"))
    assert found.controls[0].checks == (("source_rows",),)
    assert found.frameworks[-1].statements[0].checks == (("ledger_integrity",), ("delta_history", "sink_commits"))
    (tmp_path / "recon.yml").write_text(
        RECON_YML.format(compliance="compliance: {controls: controls.yml, frameworks: [internal, soc2_pi1]}")
    )
    assert [one.name for one in catalog(load(tmp_path)).frameworks] == ["internal", "soc2_pi1"]


def test_a_projects_framework_of_recons_name_takes_its_place(tmp_path: Path) -> None:
    text = framework(STATEMENT.format(id="C-1", checks="source_rows"), name="iso_27001")
    assert [
        s.id for f in catalog(with_file(tmp_path, text)).frameworks if f.name == "iso_27001" for s in f.statements
    ] == ["C-1"]


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        (
            framework(STATEMENT.format(id="C-1", checks="ledger_integrity, source_row")),
            9,
            ["source_row", "source_rows"],
        ),
        (
            framework(
                STATEMENT.format(id="C-1", checks="source_rows"), STATEMENT.format(id="C-1", checks="source_rows")
            ),
            13,
            ["two statements have the id 'C-1'"],
        ),
        (framework(STATEMENT.format(id="C-1", checks="")), 9, ["checks"]),
        (framework(STATEMENT.format(id="C-1", checks="source_rows").replace("limits", "limit")), 11, ["limits"]),
        (
            framework(STATEMENT.format(id="C-1", checks="source_rows").replace("completeness", "complete")),
            8,
            ["control"],
        ),
        (framework(STATEMENT.format(id="C-1", checks="source_rows").replace("Nothing else.", "''")), 11, ["empty"]),
        ("controls:" + STATEMENT.format(id="C-1", checks="source_rows"), 2, ["C-1", "completeness"]),
        ("- a", 1, ["mapping"]),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, text: str, line: int, parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        catalog(with_file(tmp_path, text))
    assert f"controls.yml:{line}: " in str(error.value), error.value
    assert all(part in str(error.value) for part in parts), error.value


def test_a_framework_that_does_not_exist_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        catalog(project(tmp_path, "compliance:\n  frameworks: [soc2_pi]"))
    assert "recon.yml:5: " in str(error.value) and "soc2_pi1" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controls\.yml"):
        catalog(project(tmp_path, "compliance: {controls: controls.yml}"))


@pytest.mark.parametrize("key", ["control", "line"])
def test_an_unknown_key_of_recon_yml_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{key}'"):
        project(tmp_path, f"compliance: {{{key}: 1}}")


# What a sentence says, by words of it, and the codes that make it untrue.
CLAIMS: dict[str, set[Code]] = {
    "offset that the stream read is accounted for": {Code.GAP, Code.LOSS, Code.LOSS_RETENTION, Code.SKIPPED},
    "offset that the stream read from the topics named in this report is accounted": {Code.GAP, Code.LOSS},
    "received every offset that the stream read": {Code.GAP, Code.SKIPPED, Code.PARTIAL, Code.MUTATED},
    "No offset was read by two micro-batches": {Code.OVERLAP, Code.DUPLICATE},
    "no micro-batch was written twice": {Code.DUPLICATE, Code.REPEATED},
    "none was left out": {Code.GAP, Code.SKIPPED, Code.LEDGER_ORPHAN},
    "join without a gap": {Code.GAP, Code.LOSS_RETENTION},
    "each planned micro-batch is accounted for": {Code.GAP, Code.SKIPPED},
    "is of an aborted transaction": {Code.PHANTOM_ROWS},
    "is there in part or with other rows after a replay": {Code.PARTIAL, Code.NONDETERMINISTIC},
    "agree in number with what was read": {Code.GAP, Code.DUPLICATE, Code.PARTIAL, Code.PHANTOM_ROWS, Code.SKIPPED},
    "and agree with it": {Code.GAP, Code.DUPLICATE, Code.PARTIAL, Code.PHANTOM_ROWS, Code.MUTATED, Code.SKIPPED},
    "has its commit in the sink": {Code.SKIPPED, Code.LEDGER_ORPHAN},
    "with the same ranges and number of rows": {Code.PARTIAL, Code.DUPLICATE, Code.GAP},
    "No finding says that rows were changed": {Code.MUTATED},
    "no finding says that rows were changed": {Code.MUTATED},
    "no finding says that they were changed": {Code.MUTATED},
    "removed or added by others": {Code.MUTATED, Code.UNSTAMPED},
    "No commit of others changed or added rows": {Code.MUTATED, Code.UNSTAMPED},
    "looked for in the sink's own record, and none was found": {Code.MUTATED, Code.UNSTAMPED},
    "no unread record was older than the limit": {Code.LAG},
    "Audits looked for planned micro-batches that were not finished": set(),
    "unbroken": {Code.TAMPERED},
    "stored results match their hashes": {Code.TAMPERED},
    "Each write of the streams is in a ledger": {Code.LEDGER_MISSING},
}


def statements(project: Project) -> list[Statement]:
    found = catalog(project)
    return [*found.controls, *(one for framework in found.frameworks for one in framework.statements)]


def test_what_makes_a_sentence_untrue_speaks_against_its_statement(tmp_path: Path) -> None:
    for one in statements(project(tmp_path)):
        claims = [codes for words, codes in CLAIMS.items() if words in one.shown]
        assert claims, f"say in CLAIMS what makes it untrue: {one.shown}"
        untold = {str(code) for codes in claims for code in codes if not contradicts(code, one.control)}
        assert not untold, f"{one.id}: {one.shown}"


CODES = sorted({code for codes in AGAINST.values() for code in codes})
OUTCOMES = {
    "found": ("refuted", "and open"),
    "accepted": ("answered", "accepted"),
    "repaired": ("answered", "closed"),
    "not looked for": ("not shown", ""),
}


@pytest.fixture(scope="module", params=OUTCOMES)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ComplianceReport]:
    """A report of days on each of which another code was found, and one on which nothing was."""
    lake, days = AuditedLake(tmp_path_factory.mktemp("lake")), len(CODES)
    lake.write(days + 1)
    known = [
        open_finding(
            Finding(
                code=code, message="it was found", pipeline="orders", sink="orders", topic="orders", topic_id="id-1",
                partition=0, start_offset=10 * day + 2, end_offset=10 * day + 5, batch_id=day, epoch=0,
            ),
            days,
        )
        for day, code in enumerate(CODES)
    ]  # fmt: skip
    findings = [one.finding for one in known]
    end = BEGIN + (days + 1) * DAY
    looks = {"judged": (1, days + 1), "begin": BEGIN, "end": end}
    if request.param == "not looked for":
        lake.audit(days - 1, judged=(1, days), begin=BEGIN, checks=("throughput", "own"))
        lake.audit(days)
        return request.param, lake.report(days + 1)
    lake.audit(days, *findings, open_=known, status={"source_rows": "fail"}, at=end - HOUR, **looks)
    if request.param == "accepted":
        for one in known:
            accept(lake.project, one.id, reason="test data", by="Ada")
    if request.param == "repaired":
        repaired = [replace(one, code=Code.REPAIRED) for one in findings]
        lake.audit(days + 1, *repaired, status={"source_rows": "pass"}, **looks)
    return request.param, lake.report(days + 1)


def test_no_sentence_is_said_of_a_day_on_which_it_is_not_so(told: tuple[str, ComplianceReport]) -> None:
    outcome, report = told
    state, how = OUTCOMES[outcome]
    pages = unescape(render_html(report)), render_markdown(report).replace("\\", "")
    every = [*report.controls, *(one for framework in report.frameworks for one in framework.statements)]
    assert len(every) == 19
    for one in every:
        against = [code for code in CODES if contradicts(code, one.controls)]
        # What is about the instant is of the day of the audit, the last one.
        days = {
            len(CODES) if code in (Code.LAG, Code.STALLED, Code.LOSS_AHEAD) else CODES.index(code) for code in against
        }
        lost = len(days) if outcome != "not looked for" else len(CODES)
        assert (one.count(state), one.count("shown")) == (lost, len(CODES) + 1 - lost), one.id
        first, sentence = said(one)
        assert sentence == one.shown and first.endswith((f"Of the other {one.count('shown')} days:", "the other day:"))
        assert first.startswith(f"{'Found' if how else 'Not shown'} on {lost} day"), one.id
        assert how in first and (outcome == "not looked for" or all(str(code) in first for code in against)), one.id
        for page in pages:
            assert f"{first} {one.shown}" in page.replace("</b>", ""), one.id
            assert page.count(one.shown) == sum(other.shown == one.shown for other in every), "nowhere else"


def test_a_sentence_is_said_of_no_day_where_there_is_none(tmp_path: Path) -> None:
    lake = AuditedLake(tmp_path)
    lake.write(1)
    for report in (lake.report(1), compliance(lake.project, BEGIN - 9 * DAY, BEGIN + DAY)):
        for one in report.controls:
            assert said(one) == ("No audit on 1 day.", "")
            assert one.shown not in render_markdown(report).replace("\\", "")
