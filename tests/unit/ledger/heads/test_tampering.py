"""One who can write the whole ledger, its chain and what is kept beside it, but not the place of the heads."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recon.base.errors import EvidenceError, LedgerError
from recon.base.storage import Storage
from recon.model import Code, Finding, LedgerEntry
from recon.project import Project
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import leaves, proving, signing, verifying
from recon.write.ledger.heads.documents import Document
from recon.write.ledger.heads.merkle import is_consistent
from recon.write.ledger.heads.notes import signed, verified
from recon.write.ledger.heads.signing import public_keys
from tests.support.heads import NOW, OTHER_SEED, grow, linked, publish_heads, rewrite, signing_project

ONE = ("orders", "orders")
HOUR = timedelta(hours=1)


def _compared(project: Project, *places: str) -> Sequence[Finding]:
    published = verifying.read(places or [str(project.project_dir / "outside")], public_keys(project), project)
    return verifying.compare(project, open_ledger(project), published).findings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Heads of 5, 9 and 12 entries, and 14 entries."""
    project = signing_project(tmp_path)
    for hour, count in enumerate((5, 4, 3)):
        grow(project, count)
        publish_heads(project, NOW + hour * HOUR)
    grow(project, 2)
    return project


def test_an_honest_ledger_agrees_with_every_head_also_after_a_merge_of_its_files(project: Project) -> None:
    assert not _compared(project)
    open_ledger(project).compact()
    assert not _compared(project)
    shutil.rmtree(project.project_dir / "_recon" / "heads")  # all of it can be derived
    assert not _compared(project)
    publish_heads(project, NOW + 3 * HOUR)
    assert not _compared(project)


def _edited(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    return [replace(one, rows_written=19) if one.sequence == 7 else one for one in entries]


def _removed(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    return [one for one in entries if one.sequence != 7]


def _inserted(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    return [*entries[:6], replace(entries[6], batch_id=99), *entries[6:]]


def _reordered(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    return [*entries[:6], entries[7], entries[6], *entries[8:]]


@pytest.mark.parametrize("change", [_edited, _removed, _inserted, _reordered])
def test_who_rewrites_the_ledger_and_its_whole_chain_is_found(
    project: Project, change: Callable[[list[LedgerEntry]], list[LedgerEntry]]
) -> None:
    entries = open_ledger(project).entries(*ONE)
    rewrite(project, linked(change(entries)))
    # The chain itself is right: only the overwrite of the Delta table shows, and that log can be written anew, too.
    assert {finding.message.split(" was made by ")[1][:15] for finding in open_ledger(project).verify()} == {
        "WRITE overwrite"
    }
    findings = _compared(project)
    assert {finding.code for finding in findings} == {Code.TAMPERED}
    assert "of its entries 6 to 9 one was edited, removed, inserted" in findings[0].message
    # Kept hashes of before help nobody: no audit signs the changed ledger.
    for kept in (True, False):
        if not kept:
            shutil.rmtree(project.project_dir / "_recon" / "heads")
        done = signing.sign(project, open_ledger(project), NOW + 5 * HOUR)
        assert done.document is None
        assert [(head.size, size) for head, size in done.contradictions] == [(12, len(change(entries)))]


def test_a_ledger_that_was_cut_off_is_found(project: Project) -> None:
    entries = open_ledger(project).entries(*ONE)
    rewrite(project, entries[:10])
    (finding,) = _compared(project)
    assert finding.code is Code.TAMPERED
    assert "the ledger has 10 entries of orders.orders, and the head of 12 entries" in finding.message
    assert signing.sign(project, open_ledger(project), NOW).contradictions
    # An older copy of everything, with the heads that were kept then: no signature either.
    rewrite(project, [])
    assert "has 0 entries" in _compared(project)[0].message
    assert signing.sign(project, open_ledger(project), NOW).contradictions


def test_entries_that_no_head_covers_are_counted(project: Project) -> None:
    published = verifying.read([str(project.project_dir / "outside")], public_keys(project), project)
    compared = verifying.compare(project, open_ledger(project), published)
    assert compared.sentences == (
        "orders.orders: 3 heads, the newest of 12 entries, signed 2026-11-23 19:00:00Z; 2 entries of the ledger behind "
        "it",
    )


def test_an_old_head_that_is_replayed_shows_its_time_and_what_is_behind_it(project: Project) -> None:
    oldest = min((project.project_dir / "outside").iterdir())
    published = verifying.read([str(oldest)], public_keys(project), project)
    compared = verifying.compare(project, open_ledger(project), published)
    assert not compared.findings
    assert "signed 2026-11-23 17:00:00Z; 9 entries of the ledger behind it" in compared.sentences[0]


def test_two_heads_of_one_size_are_a_fork(project: Project, tmp_path: Path) -> None:
    """Who holds the key signs another history for another reader."""
    other = signing_project(tmp_path / "other", publish=[{"folder": str(tmp_path / "elsewhere")}])
    rewrite_from = linked(_edited(open_ledger(project).entries(*ONE)[:12]))
    grow(other, 1)
    rewrite(other, rewrite_from)
    publish_heads(other, NOW + 4 * HOUR)
    findings = _compared(project, str(tmp_path / "outside"), str(tmp_path / "elsewhere"))
    assert any("have different roots: two histories of the ledger were signed (a fork)" in f.message for f in findings)
    assert all(finding.code is Code.TAMPERED for finding in findings)
    # Each reader alone sees nothing: the heads of both are needed, which is why they are published.
    assert not _compared(project)
    assert not _compared(other, str(tmp_path / "elsewhere"))


def test_two_heads_of_different_sizes_are_a_fork_too(project: Project, tmp_path: Path) -> None:
    other = signing_project(tmp_path / "other", publish=[{"folder": str(tmp_path / "elsewhere")}])
    grow(other, 1)
    rewrite(other, linked(_edited(open_ledger(project).entries(*ONE)[:8])))
    publish_heads(other, NOW + 4 * HOUR)
    findings = _compared(project, str(tmp_path / "outside"), str(tmp_path / "elsewhere"))
    assert any(
        "the ledger leads to the head of 9 entries" in f.message and "two histories were signed (a fork)" in f.message
        for f in findings
    )
    # It was signed later, of fewer entries.
    assert any(f.code is Code.UNUSUAL and "has fewer entries than" in f.message for f in findings)


def test_a_document_whose_proof_was_edited_is_found(project: Project) -> None:
    newest = max((project.project_dir / "outside").iterdir())
    content = json.loads(newest.read_text())
    (proof,) = content["consistency"].values()
    assert proof["from"] == 9
    proof["hashes"].reverse()
    newest.write_text(json.dumps(content))
    (finding,) = _compared(project)
    assert "does not continue the head of 9 entries" in finding.message


def test_heads_of_another_key_of_another_ledger_and_of_nobody_are_refused(project: Project, tmp_path: Path) -> None:
    outside = str(tmp_path / "outside")
    with pytest.raises(LedgerError, match="by none of the known keys"):
        _compared(signing_project(tmp_path, key=OTHER_SEED))
    with pytest.raises(LedgerError, match="there is no head of elsewhere"):
        verifying.read([outside], public_keys(project), signing_project(tmp_path, origin="elsewhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LedgerError, match="no document of signed heads is there"):
        _compared(project, str(tmp_path / "empty"))
    with pytest.raises(LedgerError, match="does not exist"):
        _compared(project, str(tmp_path / "nowhere"))
    for cut_off in (tmp_path / "outside").iterdir():
        cut_off.write_bytes(cut_off.read_bytes()[:-90])
    with pytest.raises(LedgerError, match="cut off or edited"):
        _compared(project)


# -- one who can add any file to the place of the heads, and removes none ---------------------------------------------

LAST = "29991231T235959Z-000000000000.json"


def _roll_back(project: Project, count: int) -> None:
    """Puts the ledger back to an older copy, without what is kept beside it."""
    rewrite(project, open_ledger(project).entries(*ONE)[:count])
    shutil.rmtree(project.project_dir / "_recon" / "heads")


def _add_junk(project: Project, name: str, content: bytes | None) -> str:
    """Adds a file, or a sparse one of 1.5 GB, at the place of the heads; what lies there otherwise stays."""
    file = project.project_dir / "outside" / name
    assert not file.exists()
    if content is None:
        with file.open("wb") as sparse:
            sparse.truncate(1_500_000_000)
    else:
        file.write_bytes(content)
    return str(file)


def _signed(project: Project) -> signing.Signing:
    return signing.sign(project, open_ledger(project), NOW + 99 * HOUR)


def test_a_rollback_is_seen_behind_a_copy_of_an_older_document_under_the_last_name(project: Project) -> None:
    _roll_back(project, 6)
    oldest = min((project.project_dir / "outside").iterdir())
    added = _add_junk(project, LAST, oldest.read_bytes())
    done = _signed(project)
    assert done.document is None
    assert [(head.size, size) for head, size in done.contradictions] == [(12, 6)]
    (note,) = done.notes
    assert f"{added} has the content of {oldest.name}: it was copied to another name" in note
    found = verifying.published([str(oldest.parent)], public_keys(project), project)
    assert [finding.code for finding in found.findings] == [Code.UNUSUAL]
    assert len(found.documents) == 3


def test_a_rollback_is_seen_behind_any_number_of_later_heads_of_fewer_entries(project: Project) -> None:
    """Which clocks that ran ahead have signed: their documents have the names that they must have."""
    _roll_back(project, 5)
    key, tree = signing.key_of(project), leaves.whole(open_ledger(project).store, *ONE)
    assert key is not None
    for hour in range(9, 99):
        head = signed(key, "example.org/lake/orders/orders", 5, tree.root(0, 5), NOW + hour * HOUR)
        document = Document(origin="example.org/lake", heads=(head,))
        _add_junk(project, document.name, document.dump())
    assert [head.size for head, _ in _signed(project).contradictions] == [12]


def _edited_note(content: bytes, old: str, new: str) -> bytes:
    values = json.loads(content)
    values["notes"] = [note.replace(old, new) for note in values["notes"]]
    return json.dumps(values).encode()


def _with(content: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(content), **fields}).encode()


JUNK: list[tuple[str, Callable[[bytes], bytes | None]]] = [
    ("is no whole signed note", lambda content: b"x"),
    ("larger than 8 MiB", lambda content: None),
    ("Infinity is no number", lambda content: content.replace(b'"from": 9', b'"from": Infinity')),
    ("is no whole number", lambda content: content.replace(b'"from": 9', b'"from": 9.5')),
    ("a number of many digits is not within", lambda content: content.replace(b'"from": 9', b'"from": ' + b"9" * 40)),
    ("is no whole signed note", lambda content: _edited_note(content, "orders/orders", "orders/\ud800")),
    ("is no whole signed note", lambda content: _edited_note(content, "— ", "— \ud800")),
    ("nested too deep", lambda content: b'{"notes": ' + b"[" * 200_000),
    ("nested too deep", lambda content: b'{"a":' * 200_000),
    ("twice", lambda content: content.replace(b'"origin"', b'"notes": [], "origin"')),
    ("codec can't decode", lambda content: b"\xff" + content),
    ("it has no 'notes'", lambda content: b'{"origin": "example.org/lake"}'),
    ("where a list is expected", lambda content: _with(content, notes="x")),
    ("is no text", lambda content: _with(content, notes=[7])),
    ("is no object", lambda content: _with(content, consistency=[])),
    ("other notes than one for each chain", lambda content: _with(content, notes=[])),
    ("other notes than one for each chain", lambda content: _with(content, notes=json.loads(content)["notes"] * 2)),
    ("other notes than one for each chain", lambda content: _with(content, origin="example.org/other")),
    ("is no SHA-256 hash", lambda content: _with(content, consistency={"a": {"from": 1, "hashes": ["AAAA"]}})),
    ("is no head of a ledger", lambda content: _edited_note(content, "\n12\n", "\n" + "9" * 40 + "\n")),
    ("has no time of signing", lambda content: _edited_note(content, "at 2026", "at 99999")),
]


def test_files_that_are_no_documents_are_named_and_the_others_are_compared(project: Project) -> None:
    """At the place and beside the ledger."""
    outside = project.project_dir / "outside"
    right = max(outside.iterdir()).read_bytes()
    named = []
    for number, (said, junk) in enumerate(JUNK):
        for folder in ("", "../_recon/heads/documents/"):
            added = _add_junk(project, f"{folder}{LAST.replace('2359', f'23{number:02}')}", junk(right))
            named.append((added.replace("outside/../", ""), said))
    done = _signed(project)
    assert done.document is not None and done.document.heads[0].size == 14
    assert len(done.notes) == 6 and done.notes[5].endswith(f"too: {len(named) - 5} more files")
    assert proving.prove(project, open_ledger(project), public_keys(project), ONE, "3")["index"] == 2
    found = verifying.published(
        [str(outside), str(project.project_dir / "_recon/heads/documents")], public_keys(project), project
    )
    assert {finding.code for finding in found.findings} == {Code.UNUSUAL}
    assert not verifying.compare(project, open_ledger(project), found.documents).findings
    for added, said in named:
        (sentence,) = [finding.message for finding in found.findings if added in finding.message]
        assert said in sentence and sentence.isprintable() and len(sentence) < 500
    with pytest.raises(LedgerError, match="cannot be compared"):
        verifying.read([named[0][0]], public_keys(project), project)
    _roll_back(project, 6)
    assert [head.size for head, _ in _signed(project).contradictions] == [12]


def test_a_clone_that_was_put_back_is_compared_with_its_remote(tmp_path: Path) -> None:
    """Ledger, what is kept beside it and the clone are older copies; the remote has all heads."""
    bare, clone = tmp_path / "bare.git", tmp_path / "clone"
    _git("init", "-q", "--bare", "-b", "main", str(bare), cwd=tmp_path)
    _git("clone", "-q", str(bare), str(clone), cwd=tmp_path)
    _git("checkout", "-q", "-b", "main", cwd=clone)
    _git("config", "push.autoSetupRemote", "true", cwd=clone)
    project = signing_project(tmp_path, publish=[{"git": str(clone)}])
    for hour, count in enumerate((5, 4)):
        grow(project, count)
        publish_heads(project, NOW + hour * HOUR)
    _roll_back(project, 5)
    for way in (
        "update-ref refs/heads/main HEAD~1",
        "update-ref refs/remotes/origin/main main",
        "reset -q --hard main",
    ):
        _git(*way.split(), cwd=clone)
    assert [head.size for head, _ in _signed(project).contradictions] == [9]
    # What others add to the remote hides nothing: a document of another branch under a name that sorts last.
    other = tmp_path / "other"
    _git("clone", "-q", str(bare), str(other), cwd=tmp_path)
    _git("checkout", "-q", "-b", "aside", cwd=other)
    (newest,) = [file for file in other.glob("*.json") if b"\\n9\\n" in file.read_bytes()]
    newest.rename(other / "renamed.txt")
    (other / LAST).write_bytes(b"x")
    (other / LAST.replace("2999", "2998")).symlink_to("/dev/zero")
    (other / LAST.replace("2999", "2997")).write_bytes(b"x" * (9 << 20))
    _git("add", ".", cwd=other)
    submodule = f"160000,{'1' * 40},{LAST.replace('2999', '2996')}"
    _git("update-index", "--add", "--cacheinfo", submodule, cwd=other)
    _git("-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-q", "-m", "x", cwd=other)
    _git("push", "-q", "origin", "aside", cwd=other)
    done = _signed(project)
    assert [head.size for head, _ in done.contradictions] == [9]
    assert any("is no whole signed note" in note for note in done.notes)
    assert any("larger than 8 MiB" in note for note in done.notes)
    # Without its remote a clone may be older than it.
    bare.rename(tmp_path / "gone.git")
    done = _signed(project)
    assert done.document is None and "could not be compared" in done.notes[0]


def _git(*arguments: str, cwd: Path) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


def test_a_forged_head_is_left_out_and_named(project: Project, tmp_path: Path) -> None:
    """Of more entries than there are, by another key or edited, under the name that it must have."""
    stranger = signing.key_of(signing_project(tmp_path, key=OTHER_SEED))
    key = signing.key_of(project)
    assert stranger is not None and key is not None
    forged = signed(stranger, "example.org/lake/orders/orders", 99, bytes(32), NOW + 9 * HOUR)
    right = signed(key, "example.org/lake/orders/orders", 98, bytes(32), NOW + 9 * HOUR)
    edited = replace(right, note=right.note.replace("98", "99"), size=99)
    for head, said in ((forged, "by none of the known keys"), (edited, "was changed after")):
        document = Document(origin="example.org/lake", heads=(head,))
        added = _add_junk(project, document.name, document.dump())
        assert any(added in note and said in note for note in _signed(project).notes)
    assert _signed(project).document is not None


def test_what_is_no_file_is_no_document(project: Project) -> None:
    outside = project.project_dir / "outside"
    (outside / LAST).mkdir()
    (outside / LAST.replace("2999", "2998")).symlink_to(outside / "nowhere")
    (outside / LAST.replace("2999", "2997")).symlink_to("/dev/zero")
    os.mkfifo(outside / LAST.replace("2999", "2996"))
    done = _signed(project)
    assert done.document is not None and not done.notes
    assert not _compared(project)


def test_nothing_is_signed_over_a_place_that_cannot_be_compared(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its files is right, or one of them cannot be read: it may have the head that the ledger contradicts."""
    outside, kept = project.project_dir / "outside", project.project_dir / "_recon" / "heads" / "documents"
    right = {file: file.read_bytes() for file in outside.iterdir()}
    for file in right:
        file.write_bytes(b"x")
    done = _signed(project)
    assert done.document is None and not done.contradictions
    assert f"earlier heads at {outside} could not be compared: no document there is right" in done.notes[0]
    assert done.notes[-1].startswith("no head was signed")
    found = verifying.published([str(kept), str(outside)], public_keys(project), project)
    assert [finding.code for finding in found.findings] == [Code.INCONCLUSIVE] + [Code.UNUSUAL] * 3
    for file, content in right.items():
        file.write_bytes(content)
    read, gone = Storage.read, [min(right).name]

    def unreadable(self: Storage, name: str, most: int | None = None) -> bytes:
        if name in gone and self.uri == str(outside):
            raise EvidenceError(f"{self.uri}/{name} cannot be read: not in time")
        return read(self, name, most)

    monkeypatch.setattr(Storage, "read", unreadable)
    done = _signed(project)
    assert done.document is None and "cannot be read: not in time" in done.notes[0]
    found = verifying.published([str(kept), str(outside)], public_keys(project), project)
    assert [finding.code for finding in found.findings] == [Code.INCONCLUSIVE]
    # The others are compared, whatever their names.
    gone[:] = [max(right).name]
    found = verifying.published([str(outside)], public_keys(project), project)
    assert [head.size for document in found.documents for head in document.heads] == [9, 5]
    gone[:] = [min(right).name]
    _roll_back(project, 6)
    assert [head.size for head, _ in _signed(project).contradictions] == [12]


def test_kept_hashes_are_never_trusted(project: Project) -> None:
    """One who changes them gets neither a wrong signature nor a wrong proof."""
    (kept,) = (project.project_dir / "_recon/heads/hashes").iterdir()
    right = signing.sign(project, open_ledger(project), NOW + 5 * HOUR).document
    assert right is not None
    for name, content in (
        ("leaves-0", bytes(12 * 32)),
        ("leaves-0", bytes(3)),
        ("extent.json", json.dumps({"size": 12, "sequence": 14}).encode()),
        ("extent.json", json.dumps({"size": 12, "sequence": 2}).encode()),
        ("extent.json", json.dumps({"size": 2, "sequence": 14}).encode()),
        ("tops", b"x"),
    ):
        (kept / name).write_bytes(content)
        again = signing.sign(project, open_ledger(project), NOW + 5 * HOUR)
        assert again.document is not None and again.document.heads == right.heads
        (kept / name).write_bytes(content)
        proof = proving.prove(project, open_ledger(project), public_keys(project), ONE, "3")
        assert proof["index"] == 2


@pytest.mark.parametrize("content", [None, b"x", bytes(4096 * 32)])
def test_a_full_tile_that_was_changed_or_removed_is_made_again_from_the_entries(
    tmp_path: Path, content: bytes | None
) -> None:
    """Its hash, which the signed root vouches for, is kept beside it: the root alone does not show the change."""
    project = signing_project(tmp_path)
    grow(project, 1)
    (first,) = open_ledger(project).entries(*ONE)
    rewrite(project, linked([replace(first, batch_id=number) for number in range(5000)]))
    publish_heads(project, NOW)
    ledger, keys = open_ledger(project), public_keys(project)
    expected = proving.prove(project, ledger, keys, ONE, "7")
    (kept,) = (project.project_dir / "_recon/heads/hashes").iterdir()
    for tile in ("leaves-0", "leaves-1"):
        right = (kept / tile).read_bytes()
        (kept / tile).unlink()
        if content is not None:
            (kept / tile).write_bytes(content)
        assert proving.prove(project, ledger, keys, ONE, "7")["hashes"] == expected["hashes"]
        again = _signed(project)
        assert again.document is not None and not again.contradictions and not again.notes
        (kept / tile).write_bytes(right)


def test_an_entry_is_proved_in_less_than_2_kb(project: Project) -> None:
    ledger, keys = open_ledger(project), public_keys(project)
    entry = ledger.entries(*ONE)[6]
    for name in ("7", entry.entry_hash, entry.entry_hash[:12].upper()):
        proof = proving.prove(project, ledger, keys, ONE, name)
        assert (proof["sequence"], proof["entry_hash"], proof["index"]) == (7, entry.entry_hash, 6)
        assert verified(proof["note"], keys, "the proof").size == 12
    # Each doubling of the ledger is a hash more: 22 of them at 3 million entries.
    assert len(proving.dump({**proof, "hashes": proof["hashes"][:1] * 22})) < 2048


def test_what_cannot_be_proved_is_said(project: Project, tmp_path: Path) -> None:
    ledger, keys = open_ledger(project), public_keys(project)
    with pytest.raises(LedgerError, match=r"entry 13 of orders.orders is behind the head of 12 entries"):
        proving.prove(project, ledger, keys, ONE, "13")
    with pytest.raises(LedgerError, match=r"has no entry 15 of orders.orders"):
        proving.prove(project, ledger, keys, ONE, "15")
    with pytest.raises(LedgerError, match="has no entry abcdef0123"):
        proving.prove(project, ledger, keys, ONE, "abcdef0123")
    entries = ledger.entries(*ONE)
    rewrite(project, _edited(entries))
    with pytest.raises(LedgerError, match=r"entry 7 of orders.orders does not match its own hash"):
        proving.prove(project, open_ledger(project), keys, ONE, "7")
    rewrite(project, linked(_edited(entries)))
    with pytest.raises(LedgerError, match="do not lead to the head of 12 entries"):
        proving.prove(project, open_ledger(project), keys, ONE, "7")
    unsigned = signing_project(tmp_path / "unsigned")
    with pytest.raises(LedgerError, match=r"no signed head of orders.orders is known"):
        proving.prove(unsigned, grow(unsigned, 2), keys, ONE, "1")


def test_a_head_that_is_continued_is_proved_to_who_has_no_ledger(project: Project) -> None:
    ledger, keys = open_ledger(project), public_keys(project)
    oldest = min((project.project_dir / "outside").iterdir())
    (old,) = verifying.read([str(oldest)], keys, project)[0].heads
    proof = proving.prove_growth(project, ledger, keys, ONE, old)
    new = verified(proof["note"], keys, "the proof")
    path = [base64.b64decode(node) for node in proof["hashes"]]
    assert (old.size, new.size) == (5, 12)
    assert is_consistent(old.root, old.size, new.root, new.size, path)
    assert not is_consistent(old.root, old.size, new.root, new.size, path[1:])


def test_pipelines_that_append_at_the_same_moment_only_append(tmp_path: Path) -> None:
    project = signing_project(tmp_path, "orders", "copy")
    for hour in range(4):
        grow(project, 2 + hour)
        grow(project, 3, "copy")
        grow(project, 1)
        document = publish_heads(project, NOW + hour * HOUR)
        assert {head.chain for head in document.heads} == {ONE, ("orders", "copy")}
    assert not _compared(project)
