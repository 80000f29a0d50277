"""The wording of controls: recon's own, a project's file, and what is wrong with one, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.audit.controls.catalog import catalog
from recon.checks import registry
from recon.errors import ConfigError
from recon.model.controls import CONTROLS
from recon.project import Project, load

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
            if statement.control == "accuracy":
                assert "source_rows" in names, statement.id
            if statement.control == "timeliness":
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
