"""What an auditor's pack holds; tests/browser has the page that verifies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.audits import pack as packs
from recon.audits.pack import pack
from recon.audits.verify_pack import verify
from recon.base.errors import ConfigError
from recon.model.pack import figures_of
from recon.reports.pack import render
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import leaves, merkle
from recon.write.ledger.heads.signing import public_keys
from tests.support.heads import grow, linked, publish_heads, rewrite, signing_project

PERIOD = ("2026-11-20", "2026-11-21")


def test_a_pack_has_what_leads_from_the_entries_to_the_head(tmp_path: Path) -> None:
    project = signing_project(tmp_path, "orders", "copy")
    grow(project, 5)
    document = publish_heads(project)
    grow(project, 2)
    orders, copy = pack(project, *PERIOD).chains
    assert (orders.begin, len(orders.texts), orders.note) == (0, 7, document.heads[0].note)
    assert (orders.path, orders.before, orders.after) == ((), None, None)
    assert [figure.value for figure in figures_of(orders.texts).values()] == [7, 140, 140, 0, 0]
    assert (copy.texts, copy.note, copy.reason) == ((), "", "no signed head of it is known")
    page = render(pack(project, *PERIOD))
    assert "Not checked yet" in page and "http" not in page.split("<body>")[1].split("</main>")[0]


@pytest.mark.parametrize(("size", "begin", "end"), [(1, 0, 1), (7, 2, 5), (8, 0, 8), (13, 12, 13), (33, 5, 32)])
def test_the_roots_beside_a_range_of_leaves_lead_to_the_root(size: int, begin: int, end: int) -> None:
    tree = merkle.Leaves([leaves.leaf_of(str(n)) for n in range(size)])
    path = merkle.beside(tree, begin, end, size)

    def walk(low: int, high: int) -> bytes:
        if high <= begin or low >= end:
            return path.pop(0)
        if high - low == 1:
            return tree.hashes[low]
        middle = low + (1 << (high - low - 1).bit_length() - 1)
        return merkle.node_hash(walk(low, middle), walk(middle, high))

    assert walk(0, size) == tree.root(0, size) and not path


def test_a_ledger_that_does_not_lead_to_its_head_is_said(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    entries = grow(project, 5).entries("orders", "orders")
    publish_heads(project)
    rewrite(project, linked(entries[1:]))
    (chain,) = pack(project, *PERIOD).chains
    assert chain.note == "" and "entries were removed" in chain.reason
    assert chain.answer == "not complete"


def test_a_head_that_is_older_than_the_period(tmp_path: Path) -> None:
    from datetime import timedelta

    from tests.support.ledger_entries import AT, entry

    project = signing_project(tmp_path)
    grow(project, 2)
    publish_heads(project)
    ledger = open_ledger(project)
    ledger.append(entry(2, at=AT + timedelta(days=1)))
    (chain,) = pack(project, "2026-11-21", "2026-11-22").chains
    assert (len(chain.texts), chain.before is None, chain.note) == (1, False, "")
    assert "is older than the period" in chain.reason


def test_a_period_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "MOST_ENTRIES", 4)
    project = signing_project(tmp_path)
    grow(project, 5)
    with pytest.raises(ConfigError, match="the period has 5 entries, and a page can hold 4"):
        pack(project, *PERIOD)


def test_a_place_that_cannot_be_compared_is_named_and_nothing_is_right_over_it(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    grow(project, 5)
    document = publish_heads(project)
    (tmp_path / "outside" / document.name).write_text("x")  # the copy beside the ledger is right
    (chain,) = pack(project, *PERIOD).chains
    assert (chain.note, chain.path) == ("", ()) and "could not be compared" in chain.reason
    assert str(tmp_path / "outside") in chain.reason
    found = verify(pack(project, *PERIOD), public_keys(project), given=True)
    assert found.state == "unproved"
