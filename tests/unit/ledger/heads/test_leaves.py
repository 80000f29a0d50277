"""The leaves of a chain's tree: their order, and the hashes that are kept of them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.base.storage import Storage
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import leaves, merkle
from recon.write.ledger.heads.notes import Head
from recon.write.ledger.heads.signing import leads_to
from recon.write.ledger.heads.tiles import HASH, TiledLeaves, Unusable, kept
from tests.support.heads import grow, rewrite, signing_project
from tests.support.ledger_entries import AT, entry

ONE = ("orders", "orders")


WIDTH = 8  # of tiles


def _hashes(count: int) -> bytes:
    return b"".join(merkle.leaf_hash(n.to_bytes(4, "big")) for n in range(count))


def _list(hashes: bytes) -> merkle.Leaves:
    return merkle.Leaves([hashes[at : at + HASH] for at in range(0, len(hashes), HASH)])


@given(size=st.integers(1, 70), old=st.integers(0, 70), data=st.data())
@settings(max_examples=60)
def test_tiles_give_what_the_leaves_give(size: int, old: int, data: st.DataObject) -> None:
    hashes, old = _hashes(size), min(old, size)
    tree = TiledLeaves.of(hashes[: old * HASH], 0, WIDTH).extended(hashes[old * HASH :], size)
    plain = _list(hashes)
    assert tree.size == size
    assert tree.root(0, size) == plain.root(0, size)
    index, before = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    assert merkle.inclusion(tree, index, size) == merkle.inclusion(plain, index, size)
    assert merkle.consistency(tree, before, size) == merkle.consistency(plain, before, size)
    assert tree.find(plain.hashes[index], data.draw(st.integers(-2, 80))) == index
    assert tree.find(merkle.leaf_hash(b"none"), index) is None


def _no_entries() -> TiledLeaves:
    raise AssertionError("nothing is damaged")


def test_kept_tiles_give_the_same_and_grow(tmp_path: Path) -> None:
    folder, hashes, size = Storage(str(tmp_path / "kept")), _hashes(53), 0
    for more in (3, 5, 8, 1, 30, 6):
        tree = kept(folder, _no_entries, width=WIDTH) if size else TiledLeaves.of(b"", 0, WIDTH)
        tree = tree.extended(hashes[size * HASH : (size + more) * HASH], size + more)
        tree.keep(folder, size)
        size += more
        again = kept(folder, _no_entries, width=WIDTH)
        assert (again.size, again.sequence) == (size, size)
        assert again.root(0, size) == _list(hashes).root(0, size)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("extent.json", b"{"),
        ("extent.json", b"[]"),
        ("extent.json", json.dumps({"size": -1, "sequence": 1}).encode()),
        ("extent.json", b'{"size": Infinity, "sequence": 12}'),
        ("extent.json", b'{"size": 12, "sequence": Infinity}'),
        ("extent.json", b'{"size": 12, "sequence": ' + b"9" * 40 + b"}"),
        ("extent.json", b'{"size": 1e400, "sequence": 12}'),
        ("extent.json", b'{"size": 12.0, "sequence": 12}'),
        ("extent.json", b'{"size": true, "sequence": 12}'),
        ("extent.json", b'{"size": ' + b"[" * 200_000),
        ("tops", b"x"),
        ("extent.json", None),
    ],
)
def test_damaged_tiles_are_unusable(tmp_path: Path, file: str, content: bytes | None) -> None:
    folder = Storage(str(tmp_path))
    TiledLeaves.of(_hashes(12), 12, WIDTH).keep(folder, 0)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(Unusable):
        kept(folder, _no_entries, width=WIDTH)


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(WIDTH * HASH), bytes(9_000_000)])
@pytest.mark.parametrize("tile", [0, 1, 2])
def test_a_tile_that_is_not_the_one_below_its_root_is_taken_from_the_entries(
    tmp_path: Path, tile: int, content: bytes | None
) -> None:
    folder, whole = Storage(str(tmp_path)), TiledLeaves.of(_hashes(20), 20, WIDTH)
    whole.keep(folder, 0)
    if content is None:
        (tmp_path / f"leaves-{tile}").unlink()
    else:
        (tmp_path / f"leaves-{tile}").write_bytes(content)
    asked: list[int] = []

    def entries() -> TiledLeaves:
        asked.append(tile)
        return whole

    tree = kept(folder, entries, width=WIDTH)
    begin = tile * WIDTH
    # Behind the last full tile no root is kept: the signed root of the whole tree shows the change.
    if tile < 2 or content in (None, b"", b"short"):
        assert tree.leaves(begin, begin + 1) == whole.leaves(begin, begin + 1)
        assert asked
    else:
        assert tree.root(0, 20) != whole.root(0, 20)


def test_the_order_of_leaves_is_that_of_the_chain_whatever_clocks_files_and_other_pipelines_do(tmp_path: Path) -> None:
    project = signing_project(tmp_path, "orders", "copy")
    ledger = open_ledger(project)
    for number, day in enumerate((0, -3, 40, 1)):
        ledger.append(entry(number, at=AT + timedelta(days=day)))
        ledger.append(entry(number, sink="copy"))
    expected = [leaves.leaf_of(one.entry_hash) for one in ledger.entries(*ONE)]
    tree = leaves.whole(ledger.store, *ONE)
    assert tree.leaves(0, 4) == expected and tree.sequence == 4
    ledger.compact()
    assert leaves.whole(open_ledger(project).store, *ONE).root(0, 4) == tree.root(0, 4)
    grow(project, 3)
    assert leaves.whole(open_ledger(project).store, *ONE).root(0, 4) == tree.root(0, 4)


def test_an_entry_that_is_stored_twice_is_one_leaf(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    entries = grow(project, 5).entries(*ONE)
    root = leaves.whole(open_ledger(project).store, *ONE).root(0, 5)
    rewrite(project, [*entries, *entries[1:3]])
    tree = leaves.whole(open_ledger(project).store, *ONE)
    assert (tree.size, tree.root(0, 5)) == (5, root)


def test_kept_hashes_go_on_at_the_entry_they_end_with(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    store = grow(project, 4).store
    before = leaves.whole(store, *ONE)
    grow(project, 3)
    store = open_ledger(project).store
    whole = leaves.whole(store, *ONE)
    assert leaves.continued(before, store, *ONE).root(0, 7) == whole.root(0, 7)
    # An extent that says more than was kept would leave entries out.
    for sequence in (0, 3, 5, 9):
        with pytest.raises(Unusable):
            leaves.continued(TiledLeaves(before._read, (), 4, sequence), store, *ONE)  # noqa: SLF001


@given(st.integers(1, 40), st.data())
def test_every_change_below_a_head_is_found_and_nothing_else(count: int, data: st.DataObject) -> None:
    """Edits, removals, inserts, exchanges and cuts of a list, held against heads of some of its beginnings."""
    before = [str(number) for number in range(count)]
    sizes = data.draw(st.sets(st.integers(1, count), min_size=1, max_size=4))
    at, other = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    after = list(before)
    what = data.draw(st.sampled_from(["nothing", "edit", "remove", "insert", "exchange", "cut off", "append"]))
    if what == "edit":
        after[at] = "edited"
    elif what == "remove":
        del after[at]
    elif what == "insert":
        after.insert(at, "inserted")
    elif what == "exchange":
        after[at], after[other] = after[other], after[at]
    elif what == "cut off":
        del after[at:]
    elif what == "append":
        after.append("appended")

    def tree(entries: list[str]) -> TiledLeaves:
        return TiledLeaves.of(b"".join(map(leaves.leaf_of, entries)), len(entries))

    for size in sizes:
        head = Head(origin="a/b/c", size=size, root=tree(before).root(0, size), at=AT, note="")
        assert leads_to(tree(after), head) == (after[:size] == before[:size])
