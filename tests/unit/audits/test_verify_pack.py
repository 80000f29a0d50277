"""recon compliance verify of an auditor's pack: by the rules of its page, and every edit of that page is found.

`packs/version1.html` is a pack of the first format, with its own numbers in the page.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recon.audits.compliance import compliance
from recon.audits.pack import pack
from recon.audits.packs import read
from recon.audits.verify_pack import PackVerification, verify
from recon.cli.app import app
from recon.model import REMOVALS, REPAIRS
from recon.model.offsets import OffsetSpan
from recon.model.pack import FIGURES, figures_of
from recon.project import Project
from recon.reports.pack import render, shell_hash
from recon.write.ledger import open_ledger
from recon.write.ledger.heads.keys import PublicKey
from recon.write.ledger.heads.signing import key_of
from tests.support import pack_edits
from tests.support.heads import OTHER_SEED, grow, publish_heads, signing_project
from tests.support.ledger_entries import AT, entry
from tests.support.pack_edits import with_data

PERIOD = ("2026-11-20", "2026-11-20")
ROOT = Path(__file__).parents[3]
FIRST = Path(__file__).parent / "packs" / "version1.html"
SIGNERS = "example.org/lake+cf89c3db+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"


@pytest.fixture
def made(tmp_path: Path) -> Project:
    project = signing_project(tmp_path)
    ledger = open_ledger(project)
    for number, day in enumerate((-1, -1, 0, 0, 0, 1, 1)):
        ledger.append(entry(number, at=AT + timedelta(days=day, seconds=number)))
    publish_heads(project)
    return project


@pytest.fixture
def page(made: Project) -> str:
    return render(pack(made, *PERIOD))


def verified(tmp_path: Path, page: str, key: str = SIGNERS, *, given: bool = True) -> PackVerification:
    file = tmp_path / "pack.html"
    file.write_text(page)
    found = read(file)
    return verify(found.pack, [PublicKey.parse(key)], given=given, beside=found.beside)


def states(found: PackVerification) -> list[str]:
    return [check.state for of in found.chains for check in of.checks.values()]


def told(tmp_path: Path, page: str, *options: str) -> tuple[int, str]:
    """Exit code and output of the command, in a folder without recon.yml."""
    file = tmp_path / "told.html"
    file.write_text(page)
    ended = CliRunner().invoke(app, ["compliance", "verify", str(file), *options])
    return ended.exit_code, ended.output


def test_a_pack_is_right_by_the_key_of_the_reader(tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = verified(tmp_path, page)
    assert states(found) == ["right"] * 4
    assert found.summary == "Right: 1 signed head, 3 entries and 5 numbers of 1 sink of example.org/lake."
    assert found.chains[0].checks["entries"].text == "3 to 5"
    code, output = told(tmp_path, page, "--key", SIGNERS)
    assert code == 0 and "Not checked: whether the ledger has other sinks" in output
    code, output = told(tmp_path, page)
    assert code == 1 and "A key in a file proves nothing: give yours by --key." in output
    other = str(key_of(signing_project(tmp_path / "other", key=OTHER_SEED)).public)  # type: ignore[union-attr]
    code, output = told(tmp_path, page, "--key", other)
    assert code == 1 and "Nothing is proved: the key that you gave did not sign what this file holds." in output
    assert json.loads(told(tmp_path, page, "--key", SIGNERS, "--output", "json")[1])["state"] == "right"


def test_keys_of_recon_yml_are_the_readers(tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recon.yml").write_text(
        f"version: 2\nname: reader\nledger: _recon\nheads: {{public_keys: ['{SIGNERS}']}}\n"
        "pipelines: [{name: orders, checkpoint: cp, source: {topics: [orders]}, "
        "sinks: [{name: orders, kind: delta, target: orders}]}]\n"
    )
    assert told(tmp_path, page)[0] == 0


def test_what_is_not_known_is_named(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    ledger = open_ledger(project)
    for number, filtered in enumerate((1, None, 2)):
        ledger.append(entry(number, rows_filtered=filtered))
    publish_heads(project)
    found = verified(tmp_path, render(pack(project, *PERIOD)))
    assert found.unknown == ("rows filtered of orders (1 of 3 entries did not count them)",)


@pytest.mark.parametrize(
    ("move", "said"),
    [
        ((-1, 0), "the entry before them is of 2026-11-19"),
        ((0, 1), "the entry after them is of 2026-11-21"),
        ((0, -1), "not of the period"),
        ((1, 1), "not of the period"),
    ],
)
def test_another_period_is_not_proved(tmp_path: Path, page: str, move: tuple[int, int], said: str) -> None:
    def moved(data: dict[str, Any]) -> None:
        data["period"] = [at + days * 86_400_000_000 for at, days in zip(data["period"], move, strict=True)]

    found = verified(tmp_path, with_data(page, moved))
    assert found.chains[0].checks["period"].state == "unproved" and said in found.chains[0].checks["period"].text


def test_a_head_from_within_the_period_does_not_prove_its_end(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    grow(project, 3)
    publish_heads(project, AT + timedelta(minutes=1))
    (of,) = verified(tmp_path, render(pack(project, *PERIOD))).chains
    assert of.checks["period"].state == "unproved" and "before the period ends" in of.checks["period"].text


def test_a_period_without_entries_is_between_two(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    ledger = open_ledger(project)
    for number, day in enumerate((-2, 2)):
        ledger.append(entry(number, at=AT + timedelta(days=day)))
    publish_heads(project)
    found = verified(tmp_path, render(pack(project, *PERIOD)))
    assert states(found) == ["right"] * 4 and found.chains[0].checks["entries"].text == "none"
    assert [figure.value for figure in found.chains[0].figures.values()] == [0] * 5


def test_a_page_that_was_edited_outside_of_its_data_is_refused(tmp_path: Path, page: str) -> None:
    code, output = told(tmp_path, page.replace("</main>", "<p>Right.</p></main>"), "--key", SIGNERS)
    assert code == 2 and "was edited, or another version of recon wrote it" in output
    code, output = told(tmp_path, page.replace("rows written 60", "rows written 61"), "--key", SIGNERS)
    assert code == 2 and "it shows 'rows written 61' where its data give 'rows written 60'" in output
    code, output = told(tmp_path, page.replace("\n", "\r\n"), "--key", SIGNERS)
    assert code == 0


def test_no_edit_of_the_data_is_right_unless_it_changes_nothing(tmp_path: Path, page: str) -> None:
    """The same edits as in the browser, all of them."""
    original, seen = verified(tmp_path, page), 0
    facts = [(of.name, of.checks, of.figures) for of in original.chains]
    for name, splice in pack_edits.of_data(page):
        seen += 1
        try:
            found = verified(tmp_path, pack_edits.spliced(page, splice))
        except Exception as error:
            assert type(error).__name__ == "ConfigError", name
            continue
        if found.state == "right":
            assert [(of.name, of.checks, of.figures) for of in found.chains] == facts, name
    assert seen > 500


def test_the_hash_of_the_page_is_documented_with_the_command_that_computes_it(tmp_path: Path, page: str) -> None:
    """Where the page changes, docs/heads.md gets the new hash, and `EARLIER` of recon.audits.packs the one before."""
    block = re.search(r"\$ (sed .*)\n([0-9a-f]{64})  -\n", (ROOT / "docs" / "heads.md").read_text())
    assert block is not None and block[2] == shell_hash()
    (tmp_path / "pack.html").write_text(page)
    by_hand = subprocess.run(block[1], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert by_hand.split()[0] == shell_hash()
    (tmp_path / "pack.html").write_text(page.replace("</pre>", '</pre>\n<pre id="given">Right</pre>'))
    by_hand = subprocess.run(block[1], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert by_hand.split()[0] != shell_hash()


# -- numbers are those of the compliance report ------------------------------------------------------------------------

_SPANS = tuple(OffsetSpan("orders", "id-1", 0, at, at + 10) for at in (0, 10))


@pytest.mark.parametrize(
    "changes",
    [
        [{}, {"status": "already_committed", "attempt": 2}, {}],
        [{"rows_written": None}, {}],
        [{"rows_filtered": None, "rows_quarantined": None}, {"rows_filtered": 3}],
        [{}, {"epoch": REPAIRS, "status": "repaired", "batch_id": 0, "by": "Ada", "reason": "x"}],
        [{}, {"epoch": REMOVALS, "status": "repaired", "rows_removed": 4, "rows_written": 1, "by": "Ada"}],
        [{"epoch": -1, "status": "released", "offsets": (), "by": "Ada"}, {}],
        [{"offsets": (*_SPANS, OffsetSpan("delta:0b9e", "x", 0, 3, 9, 1))}, {"offsets": ()}],
        [{"epoch": 0}, {"epoch": 1, "batch_id": 0}],
    ],
)
def test_the_numbers_are_those_of_the_compliance_report(tmp_path: Path, changes: list[dict[str, Any]]) -> None:
    project = signing_project(tmp_path)
    ledger = open_ledger(project)
    for number, change in enumerate(changes):
        ledger.append(
            entry(number, at=AT + timedelta(seconds=number), **change)
            if "batch_id" not in change
            else entry(at=AT + timedelta(seconds=number), **change)
        )
    (sink,) = compliance(project, *PERIOD).sinks
    (chain,) = pack(project, *PERIOD).chains
    figures = figures_of(chain.texts)
    assert {name: figures[name].value for name in FIGURES} == {name: getattr(sink, name) for name in FIGURES}


# -- packs of the first format -----------------------------------------------------------------------------------------


def test_a_pack_of_the_first_format_is_read(tmp_path: Path) -> None:
    found = verified(tmp_path, FIRST.read_text())
    assert states(found) == ["right"] * 8
    assert found.summary == "Right: 2 signed heads, 13 entries and 9 numbers of 2 sinks of example.org/lake."
    assert found.unknown == ("rows filtered of orders → copy (4 of 4 entries did not count them)",)
    code, output = told(tmp_path, FIRST.read_text(), "--key", SIGNERS)
    assert code == 0 and "Not checked: whether the entries are all of the period" in output


def _replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    def edit(page: str) -> str:
        assert old in page
        return page.replace(old, new, count)

    return edit


def _data(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    return lambda page: with_data(page, change)


def _swapped(page: str) -> str:
    labels = {"orders": "orders → copy", "orders → copy": "orders"}
    return re.sub(r'(?<=<th scope="row">)[^<]*', lambda found: labels[found[0]], page)


def _last_text_dropped(page: str) -> str:
    page = with_data(page, lambda data: data["chains"][0]["texts"].pop())
    for name, before, after in (("batches", 9, 8), ("offsets", 180, 160), ("rows_written", 180, 160)):
        page = page.replace(f'data-figure="{name}">{before}<', f'data-figure="{name}">{after}<')
    return page.replace('data-figure="rows_filtered">18<', 'data-figure="rows_filtered">16<')


ROW = '<tr id="figures-0">'
CELL = '<td class="num right" data-figure="rows_written">180<'


@pytest.mark.parametrize(
    "edit",
    [
        _replaced(CELL, '<td class="num right">999<'),
        _replaced(CELL, '<td class="num right" data-figure="rows_written">unknown<'),
        _swapped,
        _last_text_dropped,
        _replaced(ROW, f'<tr><th scope="row">orders → more</th>{"<td>5</td>" * 6}</tr>\n{ROW}'),
        _replaced(ROW, f'<tr id="figures-9"><th scope="row">orders → more</th>{"<td>5</td>" * 6}</tr>\n{ROW}'),
        _replaced(CELL, f'<td class="num right">999</td>{CELL.replace("<td", "<td hidden")}'),
        _replaced("2026-11-20 00:00:00 UTC to", "2026-11-20 13:00:00 UTC to"),
        _replaced("2026-11-21 00:00:00 UTC,", "2026-11-20 12:00:02 UTC,"),
        _replaced("<td data-check=", "<td hidden data-check="),
        _replaced("In this file: ", "In this file, and right: "),
        _data(lambda data: data.update(keys=[])),
        _data(lambda data: data["chains"].pop()),
        _data(lambda data: data["chains"][0].update(begin=4)),
        _data(lambda data: data["chains"][0]["path"].reverse()),
        _data(lambda data: data["chains"][0]["hashes"].pop()),
        _replaced("</style>", "td { display: none } </style>"),
        _replaced('<body>\n', '<body hidden>\n'),
    ],
)  # fmt: skip
def test_an_edited_pack_of_the_first_format_is_found(tmp_path: Path, edit: Callable[[str], str]) -> None:
    code, output = told(tmp_path, edit(FIRST.read_text()), "--key", SIGNERS)
    assert code in (1, 2) and "Right: " not in output and "Traceback" not in output
