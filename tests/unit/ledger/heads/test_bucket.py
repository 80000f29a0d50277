"""Heads that are published in a bucket of an object store, and compared with the ledger from there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from recon.base.storage import Storage
from recon.model import Code
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import verifying
from recon.write.ledger.heads.places import publish
from recon.write.ledger.heads.signing import public_keys, sign
from tests.support.heads import NOW, grow, linked, publish_heads, rewrite, signing_project
from tests.support.s3 import bucket


def test_heads_in_a_bucket_are_published_once_and_find_an_edited_ledger(tmp_path: Path) -> None:
    with bucket("heads") as options:
        place = {"folder": "s3://heads/lake", "storage_options": options}
        project = signing_project(tmp_path, publish=[place])
        there = Storage("s3://heads/lake", options)

        grow(project, 3)
        first = publish_heads(project)
        grow(project, 2)
        second = publish_heads(project)
        assert sorted(there.files()) == sorted([first.name, second.name])
        assert publish(project, second) == (["s3://heads/lake"], [])  # it is there already
        assert there.read(second.name) == second.dump()

        keys = public_keys(project)
        ledger = open_ledger(project)
        published = verifying.read(["s3://heads/lake"], keys, project)
        assert {document.name for document in published} == {first.name, second.name}
        assert not verifying.compare(project, ledger, published).findings
        alone = verifying.read([f"s3://heads/lake/{first.name}"], keys, project)
        assert alone == [first]

        rewrite(project, linked([replace(one, rows_written=19) for one in ledger.entries("orders", "orders")]))
        found = verifying.compare(project, open_ledger(project), published).findings
        assert {finding.code for finding in found} == {Code.TAMPERED}


def test_a_bucket_that_is_not_there_is_said_with_its_name(tmp_path: Path) -> None:
    with bucket("heads") as options:
        project = signing_project(tmp_path, publish=[{"folder": "s3://other/lake", "storage_options": options}])
        grow(project, 3)
        done = sign(project, open_ledger(project), NOW)
        assert done.document is not None
        published, (said,) = publish(project, done.document)
        assert not published
        assert said.startswith("s3://other/lake: ") and "bucket" in said.lower()
        assert "a-secret-key" not in said


def test_a_rollback_is_seen_in_a_bucket_to_which_others_add_objects(tmp_path: Path) -> None:
    with bucket("heads") as options:
        project = signing_project(tmp_path, publish=[{"folder": "s3://heads/lake", "storage_options": options}])
        there = Storage("s3://heads/lake", options)
        grow(project, 3)
        older = publish_heads(project)
        grow(project, 2)
        publish_heads(project, NOW + timedelta(hours=1))
        rewrite(project, open_ledger(project).entries("orders", "orders")[:3])
        shutil.rmtree(tmp_path / "_recon" / "heads")
        last = "29991231T235959Z-000000000000.json"
        there.create(last, older.dump())
        there.create(last.replace("2999", "2998"), b"x")
        there.create(last.replace("2999", "2997"), bytes(9 << 20))
        there.create(f"{last.replace('2999', '2996')}/below", b"x")  # a folder by the name of a document
        for number in range(1, 31):
            there.create(f"{last[:15]}Z-{number:012x}.json", older.dump())
        done = sign(project, open_ledger(project), NOW + timedelta(hours=2))
        assert done.document is None
        assert [(head.size, size) for head, size in done.contradictions] == [(5, 3)]
        assert done.notes[-1] == "left out of the signed heads, too: 28 more files"
        found = verifying.published(["s3://heads/lake"], public_keys(project), project)
        assert {finding.code for finding in found.findings} == {Code.UNUSUAL} and len(found.findings) == 33
        (finding,) = verifying.compare(project, open_ledger(project), found.documents).findings
        assert finding.code is Code.TAMPERED
